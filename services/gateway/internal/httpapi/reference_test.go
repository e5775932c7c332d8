package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/gateway/internal/httpapi"
)

// getWithoutKey sends a request without a key, as a browser does. headers contains pairs of name
// and value. Accept-Encoding is sent only if headers contains it.
func getWithoutKey(t *testing.T, r *rig, method, path string, headers ...string) answered {
	t.Helper()
	header := http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	if header.Get("Accept-Encoding") == "" {
		header.Set("Accept-Encoding", "identity")
	}
	return send(t, method, r.public.URL+path, "", "", header)
}

func TestReference_ServesTheOpenAPIDocument(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	plain := getWithoutKey(t, r, "GET", "/openapi.json")
	if plain.status != 200 {
		t.Errorf("plain.status = %v, want 200", plain.status)
	}
	if plain.header.Get("Content-Type") != "application/json" {
		t.Errorf("plain: Content-Type = %q, want \"application/json\"", plain.header.Get("Content-Type"))
	}
	if plain.body != string(openapi.Description) {
		t.Errorf("plain.body = %v, want %v", plain.body, string(openapi.Description))
	}
	var description struct {
		Info struct{ Version string }
	}
	if err := json.Unmarshal([]byte(plain.body), &description); err != nil {
		t.Errorf("info.version: json.Unmarshal: %v", err)
	} else if description.Info.Version != httpserver.Version {
		t.Errorf("info.version: description.Info.Version = %v, want %v", description.Info.Version, httpserver.Version)
	}
	zipped := getWithoutKey(t, r, "GET", "/openapi.json", "Accept-Encoding", "br, GZIP;q=0.5")
	reader, err := gzip.NewReader(strings.NewReader(zipped.body))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(body, openapi.Description) {
		t.Errorf("body = %v, want %v", body, openapi.Description)
	}
	if zipped.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("Content-Encoding = %q, want \"gzip\"", zipped.header.Get("Content-Encoding"))
	}
	for _, accepted := range []string{"gzip;q=0", "gzip; q=0.000", "identity", "xgzip"} {
		got := getWithoutKey(t, r, "GET", "/openapi.json", "Accept-Encoding", accepted)
		if got.header.Get("Content-Encoding") != "" {
			t.Errorf("Accept-Encoding %q was answered with gzip", accepted)
		}
	}
}

func TestReference_EveryResponseHasTheContentSecurityPolicy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, path := range []string{"/docs", "/docs/", "/docs/reference.js", "/docs/swagger-ui.css", "/openapi.json"} {
		got := getWithoutKey(t, r, "GET", path)
		if got.status != 200 {
			t.Errorf("%s: got.status = %v, want 200", path, got.status)
		}
		if got.header.Get("Content-Security-Policy") != httpapi.Policy {
			t.Errorf("%s: Content-Security-Policy = %v, want %v", path, got.header.Get("Content-Security-Policy"),
				httpapi.Policy)
		}
		if !strings.Contains(got.header.Get("Cache-Control"), "max-age=") {
			t.Errorf("%s: Cache-Control = %q, want it to contain %q", path, got.header.Get("Cache-Control"), "max-age=")
		}
	}
	if slash, page := getWithoutKey(t, r, "GET", "/docs/"), getWithoutKey(t, r, "GET", "/docs"); slash.body != page.body {
		t.Errorf("slash.body = %v, want %v", slash.body, page.body)
	} else if !strings.HasPrefix(page.header.Get("Content-Type"), "text/html") {
		t.Errorf(`page.header.Get("Content-Type") = %q, want it to begin with "text/html"`, page.header.Get("Content-Type"))
	}
}

func TestReference_UnchangedDocumentGets304(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tag := getWithoutKey(t, r, "GET", "/docs").header.Get("ETag")
	ziptag := getWithoutKey(t, r, "GET", "/docs", "Accept-Encoding", "gzip").header.Get("ETag")
	if len(tag) < 10 {
		t.Fatalf("ETag: length of tag = %d, want at least 10", len(tag))
	}
	if tag == ziptag {
		t.Fatalf("ETag: tag = %v, want another value", tag)
	}
	for _, row := range []struct {
		name, known, accepted string
		status                int
	}{
		{"the current tag", tag, "", 304},
		{"the current tag as a weak tag", "W/" + tag, "", 304},
		{"the current tag among others", `"x", ` + tag, "", 304},
		{"any tag", "*", "", 304},
		{"the tag of the compressed document", ziptag, "gzip", 304},
		{"another document's tag", `"x"`, "", 200},
		{"the tag of the other encoding", tag, "gzip", 200},
	} {
		got := getWithoutKey(t, r, "GET", "/docs", "If-None-Match", row.known, "Accept-Encoding", row.accepted)
		if got.status != row.status {
			t.Errorf("%s: got.status = %v, want %v", row.name, got.status, row.status)
		}
		if (row.status == 304) != (len(got.body) == 0) {
			t.Errorf("%s: status is 304 = %v, want %v", row.name, (row.status == 304), (len(got.body) == 0))
		}
		if got.header.Get("ETag") == "" {
			t.Errorf("%s: ETag is empty", row.name)
		}
	}
}
