// Command build writes the documentation as static files into a folder.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"ringfence.dev/docs"
)

func main() {
	folder := flag.String("o", "bin/docs", "folder that receives the files")
	flag.Parse()
	if err := write(*folder); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
	fmt.Println("wrote", filepath.Join(*folder, "index.html"))
}

func write(folder string) error {
	files, err := docs.Render()
	if err != nil {
		return err
	}
	for name, content := range files {
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
