// Package reference owns what a developer reads: the interface description at /openapi.json and the page at /docs
// that shows it. All of it is in the binary, and the page can load nothing from elsewhere. Swagger UI draws the page;
// the frame, the style and the start of it are ours.
package reference

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"

	"github.com/swaggest/swgui/v5/static"

	"ringfence.dev/proto/openapi"
)

//go:embed page
var page embed.FS

// Policy lets the page run and show what this server sends and nothing else: no other host, no inline script or style.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Document is one file in both of its encodings.
type Document struct {
	// Kind is its media type.
	Kind string
	// Plain and Zipped (gzip) are the same bytes.
	Plain, Zipped []byte
	// Tag tells this content from any other.
	Tag string
}

// Shelf holds every document by its path.
type Shelf struct{ documents map[string]Document }

// New reads what is embedded.
func New() (*Shelf, error) {
	s := &Shelf{documents: map[string]Document{}}
	if err := s.put("/openapi.json", "application/json", openapi.Description); err != nil {
		return nil, err
	}
	for _, own := range []struct{ path, file, kind string }{
		{"/docs", "index.html", "text/html; charset=utf-8"},
		{"/docs/reference.css", "reference.css", "text/css; charset=utf-8"},
		{"/docs/reference.js", "reference.js", "text/javascript; charset=utf-8"},
		{"/docs/mark.svg", "mark.svg", "image/svg+xml"},
	} {
		body, err := page.ReadFile("page/" + own.file)
		if err != nil {
			return nil, fmt.Errorf("read the reference page: %w", err)
		}
		if err := s.put(own.path, own.kind, body); err != nil {
			return nil, err
		}
	}
	for file, kind := range map[string]string{
		"swagger-ui.css": "text/css; charset=utf-8", "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
	} {
		body, err := unzipped(static.FS, file+".gz")
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if err := s.put("/docs/"+file, kind, body); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func unzipped(files fs.FS, name string) ([]byte, error) {
	file, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	reader, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

func (s *Shelf) put(path, kind string, plain []byte) error {
	var zip bytes.Buffer
	writer, err := gzip.NewWriterLevel(&zip, gzip.BestCompression)
	if err == nil {
		_, err = writer.Write(plain)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		return fmt.Errorf("compress %s: %w", path, err)
	}
	sum := sha256.Sum256(plain)
	s.documents[path] = Document{Kind: kind, Plain: plain, Zipped: zip.Bytes(), Tag: base64.RawURLEncoding.EncodeToString(sum[:12])}
	return nil
}

// Find is the document at a path; /docs/ is the page as well.
func (s *Shelf) Find(path string) (Document, bool) {
	if path == "/docs/" {
		path = "/docs"
	}
	found, ok := s.documents[path]
	return found, ok
}
