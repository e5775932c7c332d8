package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ringfence.dev/docs"
)

// writeDocs renders the documentation into the folder and prints the path of its first page.
func writeDocs(out io.Writer, folder string) error {
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
	_, err = fmt.Fprintln(out, "wrote", filepath.Join(folder, "index.html"))
	return err
}
