package pages

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var staticFiles embed.FS

// assets serves the embedded files. The address of each file contains a hash of all files, so
// browsers can cache the files permanently.
type assets struct {
	version string
	files   map[string]asset
}

type asset struct {
	kind        string
	plain, zip  []byte
	compression bool
}

func newAssets() (*assets, error) {
	a := &assets{files: map[string]asset{}}
	hash := sha256.New()
	err := fs.WalkDir(staticFiles, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := staticFiles.ReadFile(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(hash, "%s %d\n", name, len(content))
		hash.Write(content)
		a.files[strings.TrimPrefix(name, "static/")], err = newAsset(name, content)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the embedded files: %w", err)
	}
	a.version = hex.EncodeToString(hash.Sum(nil)[:8])
	return a, nil
}

func newAsset(name string, content []byte) (asset, error) {
	kind := mime.TypeByExtension(path.Ext(name))
	switch path.Ext(name) {
	case ".js":
		kind = "text/javascript; charset=utf-8"
	case ".woff2":
		return asset{kind: "font/woff2", plain: content}, nil
	}
	var zipped bytes.Buffer
	writer, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return asset{}, err
	}
	if _, err := writer.Write(content); err != nil {
		return asset{}, err
	}
	err = writer.Close()
	return asset{kind: kind, plain: content, zip: zipped.Bytes(), compression: true}, err
}

// url returns the address of an embedded file.
func (a *assets) url(name string) (string, error) {
	if _, ok := a.files[name]; !ok {
		return "", fmt.Errorf("no embedded file %s", name)
	}
	return "/assets/" + a.version + "/" + name, nil
}

// ServeHTTP serves /assets/{version}/{name}. For another version than the current one, it serves
// the current content without caching. A page of a previous release therefore still works.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	version, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/assets/"), "/")
	file, ok := a.files[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if version == a.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Content-Type", file.kind)
	body := file.plain
	if file.compression {
		w.Header().Set("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			body = file.zip
		}
	}
	_, _ = w.Write(body) // an error means that the browser has disconnected
}
