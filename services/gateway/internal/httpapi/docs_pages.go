package httpapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/swaggest/swgui/v5/static"

	"ringfence.dev/docs"
	"ringfence.dev/proto/openapi"
)

//go:embed page
var pages embed.FS

// Policy is the Content-Security-Policy header of all documents. It permits only resources of this
// server. It permits no inline scripts or styles.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Document is one file, in a plain and a compressed form.
type Document struct {
	// Kind is the media type.
	Kind string
	// Plain and Zipped are the content, without and with gzip compression.
	Plain, Zipped []byte
	// Tag is a hash of the content. It is the value of the ETag header.
	Tag string
}

// Docs contains the documents for developers, by path: the OpenAPI document at /openapi.json, the
// Swagger UI page at /docs, the documentation at /docs/guides, and /llms.txt. All files are
// embedded, and the pages load nothing from other hosts.
type Docs struct {
	documents map[string]Document
	// adminDocuments are served on the admin address instead of the documents with the same path.
	adminDocuments map[string]Document
	// console is the description of the routes that only the console listener serves.
	console Document
	// Requests with the header Prefer: handling=strict are checked against these API descriptions.
	api, operatorAPI, consoleAPI *description
}

// NewDocs reads the embedded files and renders the documentation.
func NewDocs() (*Docs, error) {
	s := &Docs{documents: map[string]Document{}, adminDocuments: map[string]Document{}}
	var err error
	if s.api, err = newDescription(openapi.Description); err != nil {
		return nil, err
	}
	if s.operatorAPI, err = newDescription(openapi.OperatorDescription); err != nil {
		return nil, err
	}
	if s.consoleAPI, err = newDescription(openapi.ConsoleDescription); err != nil {
		return nil, err
	}
	if err := s.put("/openapi.json", mediaTypes[".json"], openapi.Description); err != nil {
		return nil, err
	}
	if err := s.putOperator("/openapi.json", mediaTypes[".json"], openapi.OperatorDescription); err != nil {
		return nil, err
	}
	if s.console, err = newDocument(mediaTypes[".json"], openapi.ConsoleDescription); err != nil {
		return nil, fmt.Errorf("compress the description of the console API: %w", err)
	}
	operatorPage, err := pages.ReadFile("page/operator.html")
	if err != nil {
		return nil, fmt.Errorf("read the reference page: %w", err)
	}
	if err := s.putOperator("/docs", mediaTypes[".html"], operatorPage); err != nil {
		return nil, err
	}
	for _, own := range []struct{ path, file, kind string }{
		{"/docs", "index.html", mediaTypes[".html"]},
		{"/docs/reference.css", "reference.css", "text/css; charset=utf-8"},
		{"/docs/reference.js", "reference.js", "text/javascript; charset=utf-8"},
		{"/docs/mark.svg", "mark.svg", "image/svg+xml"},
	} {
		body, err := pages.ReadFile("page/" + own.file)
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
	return s, s.putGuides()
}

const guides = "/docs/guides/"

var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".md": "text/markdown; charset=utf-8", ".txt": "text/plain; charset=utf-8",
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".json": "application/json",
	".svg": "image/svg+xml", ".png": "image/png", ".csv": "text/csv; charset=utf-8",
}

func (s *Docs) putGuides() error {
	files, err := docs.Render()
	if err != nil {
		return fmt.Errorf("render the documentation: %w", err)
	}
	for name, content := range files {
		kind, ok := mediaTypes[path.Ext(name)]
		if !ok {
			return fmt.Errorf("media type of %s is unknown", name)
		}
		if err := s.put(guides+name, kind, content); err != nil {
			return err
		}
	}
	list, err := docs.List(guides)
	if err != nil {
		return fmt.Errorf("list the documentation: %w", err)
	}
	return s.put("/llms.txt", mediaTypes[".txt"], list)
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

func (s *Docs) put(path, kind string, plain []byte) error {
	document, err := newDocument(kind, plain)
	if err != nil {
		return fmt.Errorf("compress %s: %w", path, err)
	}
	s.documents[path] = document
	return nil
}

func (s *Docs) putOperator(path, kind string, plain []byte) error {
	document, err := newDocument(kind, plain)
	if err != nil {
		return fmt.Errorf("compress %s of the operator API: %w", path, err)
	}
	s.adminDocuments[path] = document
	return nil
}

func newDocument(kind string, plain []byte) (Document, error) {
	var zip bytes.Buffer
	writer, err := gzip.NewWriterLevel(&zip, gzip.BestCompression)
	if err == nil {
		_, err = writer.Write(plain)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		return Document{}, err
	}
	sum := sha256.Sum256(plain)
	return Document{
		Kind:   kind,
		Plain:  plain,
		Zipped: zip.Bytes(),
		Tag:    base64.RawURLEncoding.EncodeToString(sum[:12]),
	}, nil
}

// Find returns the document with this path. /docs/ and /docs are the same page.
func (s *Docs) Find(path string) (Document, bool) {
	if path == "/docs/" {
		path = "/docs"
	}
	found, ok := s.documents[path]
	return found, ok
}

// FindOperator returns the document with this path at the admin address. These are the description
// of the operator API at /openapi.json, its page at /docs, and the other documents of Find.
func (s *Docs) FindOperator(path string) (Document, bool) {
	if found, ok := s.adminDocuments[strings.TrimSuffix(path, "/")]; ok {
		return found, true
	}
	return s.Find(path)
}
