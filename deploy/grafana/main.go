// Command grafana writes the dashboards from deploy/grafana/internal/board.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"ringfence.dev/deploy/grafana/internal/board"
)

func main() {
	folder := flag.String("to", "deploy/grafana/dashboards", "the folder to write to")
	flag.Parse()
	if err := write(*folder); err != nil {
		fmt.Fprintln(os.Stderr, "grafana:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, b := range board.All() {
		text, err := render(b)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, b.UID+".json"), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func render(b board.Board) ([]byte, error) {
	model, err := board.Render(b)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // queries are to be read
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(model); err != nil {
		return nil, fmt.Errorf("encode dashboard %s: %w", b.UID, err)
	}
	return text.Bytes(), nil
}
