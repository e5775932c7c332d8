package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"regexp"
	"strings"
	"testing"

	"ringfence.dev/services/gateway/internal/httpapi"
)

func text(t *testing.T, shelf *httpapi.Docs, path string) string {
	t.Helper()
	found, ok := shelf.Find(path)
	if !ok {
		t.Errorf("there is nothing at %s", path)
	}
	return string(found.Plain)
}

func newShelf(t *testing.T) *httpapi.Docs {
	t.Helper()
	shelf, err := httpapi.NewDocs()
	if err != nil {
		t.Fatal(err)
	}
	return shelf
}

var (
	named  = regexp.MustCompile(`(?:src|href|action|data)\s*=\s*["']?([^"'\s>]*)`)
	loaded = regexp.MustCompile(`(?:url\(|@import)\s*["']?([^"')]{0,80})`)
	scheme = regexp.MustCompile(`(?i)\b(?:https?|wss?|ftp):|["'(=]\s*//`)
)

func TestDocs_PageLoadsOnlyFilesOfTheGateway(t *testing.T) {
	t.Parallel()
	shelf := newShelf(t)
	page := text(t, shelf, "/docs")
	files := map[string]string{"/docs": page}
	for _, match := range named.FindAllStringSubmatch(page, -1) {
		path, _, _ := strings.Cut(match[1], "#")
		if path == "" {
			continue
		}
		if !strings.HasPrefix(path, "/") {
			t.Errorf(`path = %q, want it to begin with "/"; match[1] = %q`, path, match[1])
		} else if strings.HasPrefix(path, "//") {
			t.Errorf(`path = %q, want it not to begin with "//"; match[1] = %q`, path, match[1])
		}
		files[path] = text(t, shelf, path)
	}
	for _, want := range []string{"/docs/reference.css", "/docs/reference.js", "/docs/mark.svg", "/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js"} {
		if files[want] == "" {
			t.Errorf("the page does not name %s", want)
		}
	}
	for path, text := range files {
		if path == "/docs/swagger-ui-bundle.js" || path == "/openapi.json" {
			// These two files contain URLs of other hosts in texts and links. The content security policy
			// forbids pages to load anything from these hosts.
			continue
		}
		for _, match := range loaded.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(match[1], "data:") {
				t.Errorf("%s loads %q", path, match[1])
			}
		}
		if path == "/docs/swagger-ui.css" {
			continue // embedded pictures contain the URLs of XML namespaces
		}
		if found := scheme.FindString(strings.ReplaceAll(text, `xmlns="http://www.w3.org/2000/svg"`, "")); found != "" {
			t.Errorf("%s names another host: %q", path, found)
		}
	}
	if strings.Contains(page, "<style") {
		t.Errorf(`the page has script or style inside, which the policy forbids: page = %q, want it without "<style"`, page)
	} else if regexp.MustCompile(`<script[^>]*>[^<]|\son\w+=|\sstyle=`).MatchString(page) {
		t.Error("the page has inline script or style, want none")
	}
}

func TestDocs_ContentSecurityPolicyPermitsOnlyTheGatewaysHost(t *testing.T) {
	t.Parallel()
	if !strings.HasPrefix(httpapi.Policy, "default-src 'none'; ") {
		t.Errorf("policy = %q", httpapi.Policy)
	}
	for _, directive := range strings.Split(httpapi.Policy, ";") {
		words := strings.Fields(directive)
		for _, source := range words[1:] {
			if source != "'none'" && source != "'self'" && (source != "data:" || words[0] != "img-src") {
				t.Errorf("%s allows %s", words[0], source)
			}
		}
	}
	for _, needed := range []string{"base-uri 'none'", "form-action 'none'",
		"frame-ancestors 'none'"} { // default-src does not apply to these directives, so the policy must contain them
		if !strings.Contains(httpapi.Policy, needed) {
			t.Errorf("policy lacks %s", needed)
		}
	}
}

func TestDocs_CompressedContentEqualsPlainContent(t *testing.T) {
	t.Parallel()
	shelf := newShelf(t)
	tags := map[string]string{}
	for _, path := range []string{"/openapi.json", "/docs", "/docs/reference.css", "/docs/reference.js", "/docs/swagger-ui-bundle.js"} {
		found, _ := shelf.Find(path)
		reader, err := gzip.NewReader(bytes.NewReader(found.Zipped))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		read, err := io.ReadAll(reader)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(read) == 0 {
			t.Fatalf("%s: length of read = 0, want more", path)
		}
		if !bytes.Equal(read, found.Plain) {
			t.Errorf("%s: read = %v, want %v", path, read, found.Plain)
		}
		if other, taken := tags[found.Tag]; taken {
			t.Errorf("taken = true, want false; path = %s; other = %s", path, other)
		} else if found.Tag == "" {
			t.Errorf("found.Tag is empty, want a value; path = %s; other = %s", path, other)
		}
		tags[found.Tag] = path
	}
}
