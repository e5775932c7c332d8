package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// serveTrace starts a server of /admin/v1 that returns text as the trace of a trunk. queries
// receives the query string of each request.
func serveTrace(t *testing.T, text string) (queries *[]string) {
	t.Helper()
	queries = &[]string{}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /admin/v1/trunks", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"data":[{"id":"7","name":"Main"}],"has_more":false}`))
	})
	routes.HandleFunc("GET /admin/v1/trunks/7/trace", func(w http.ResponseWriter, r *http.Request) {
		*queries = append(*queries, r.URL.RawQuery)
		if r.URL.Query().Get("format") == "pcap" {
			text = "\xd4\xc3\xb2\xa1\x00"
		}
		_, _ = w.Write([]byte(text))
	})
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	t.Setenv("RINGFENCE_ADMIN_URL", server.URL)
	t.Setenv("RINGFENCE_ADMIN_TOKEN", "a-token-of-the-test")
	return queries
}

func TestTrunksTrace_PrintsMessagesWithoutControlCharacters(t *testing.T) {
	for _, row := range []struct{ name, recorded, want string }{
		{name: "no messages", recorded: "", want: "No message was recorded.\n"},
		{name: "a message with control characters", recorded: "SIP/2.0 200 \x1b[2JOK\nTo: a\n\n",
			want: "SIP/2.0 200 \ufffd[2JOK\nTo: a\n\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			queries := serveTrace(t, row.recorded)
			code, out, faults := runCommand(t, "trunks", "trace", "main", "--call", "a b@c")
			wantCode(t, row.name, code, 0)
			wantText(t, "stdout", out, row.want)
			wantText(t, "stderr", faults, "")
			wantText(t, "query", (*queries)[0], "format=text&sip_call_id=a+b%40c")
		})
	}
}

func TestTrunksTrace_WritesAPacketCapture(t *testing.T) {
	queries := serveTrace(t, "")
	file := filepath.Join(t.TempDir(), "trunk.pcap")
	code, out, _ := runCommand(t, "trunks", "trace", "7", "--pcap", file)
	wantCode(t, "trunks trace", code, 0)
	wantText(t, "stdout", out, "5 bytes written to "+file+".\n")
	wantText(t, "query", (*queries)[0], "format=pcap")
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wantText(t, "file", string(written), "\xd4\xc3\xb2\xa1\x00")
}
