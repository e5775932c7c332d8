package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// described contains the parts of the API description that the test reads.
type described struct {
	Paths map[string]map[string]json.RawMessage `json:"paths"`
}

type codeSamples struct {
	Samples []struct{ Lang, Source string } `json:"x-codeSamples"`
}

// sentRequest is a request that a sample sent.
type sentRequest struct {
	Method, Path, Key string
	Body              any
}

// TestSamples_OfOneOperationSendTheSameRequest runs the samples of every operation. All samples of an
// operation must send the same request. It runs the Go samples of only two operations, because
// each of them is compiled.
func TestSamples_OfOneOperationSendTheSameRequest(t *testing.T) {
	description, err := os.ReadFile("../../proto/openapi/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var api described
	if err := json.Unmarshal(description, &api); err != nil {
		t.Fatal(err)
	}
	var sent []sentRequest
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := sentRequest{Method: r.Method, Path: r.URL.EscapedPath(), Key: r.Header.Get("Authorization")}
		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &request.Body)
		sent = append(sent, request)
		_, _ = w.Write([]byte(`{"id":"7"}`))
	}))
	t.Cleanup(server.Close)
	run := 0
	for path, item := range api.Paths {
		for method, raw := range item {
			var of codeSamples
			if method == "parameters" || json.Unmarshal(raw, &of) != nil || !strings.HasPrefix(path, "/v1/") {
				continue
			}
			if len(of.Samples) != 4 {
				t.Errorf("%s %s has %d samples, want 4", method, path, len(of.Samples))
			}
			sent = nil
			for _, sample := range of.Samples {
				if sample.Lang == "go" && path != "/v1/calls" {
					continue
				}
				if runSample(t, server.URL, sample.Lang, sample.Source) {
					run++
				}
			}
			for _, request := range sent {
				if diff := cmp.Diff(sent[0], request); diff != "" {
					t.Errorf("%s %s: the samples send different requests:\n%s", method, path, diff)
				}
			}
			if len(sent) > 0 && (sent[0].Method != strings.ToUpper(method) || sent[0].Key != "Bearer a-key" || strings.Contains(sent[0].Path, "{")) {
				t.Errorf("%s %s: the samples send %+v", method, path, sent[0])
			}
		}
	}
	if run < 40 {
		t.Errorf("%d samples were run, want at least 40", run)
	}
}

// runSample runs a sample and returns false if the machine has no program for the language.
func runSample(t *testing.T, url, language, source string) bool {
	t.Helper()
	file := map[string]string{"shell": "sample.sh", "typescript": "sample.mjs", "python": "sample.py", "go": "sample.go"}[language]
	command := map[string][]string{"shell": {"sh"}, "typescript": {"node"}, "python": {"python3"}, "go": {"go", "run"}}[language]
	if command == nil {
		t.Errorf("unknown language %q", language)
		return false
	}
	if _, err := exec.LookPath(command[0]); err != nil {
		return false
	}
	name := filepath.Join(t.TempDir(), file)
	if err := os.WriteFile(name, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	program := exec.CommandContext(t.Context(), command[0], append(command[1:], name)...) //nolint:gosec // a program of this test
	program.Env = append(os.Environ(), "RINGFENCE_URL="+url, "RINGFENCE_KEY=a-key", "GOWORK=off", "GOFLAGS=")
	output, err := program.CombinedOutput()
	if err != nil {
		t.Errorf("%s sample: %v\n%s\n%s", language, err, output, source)
	}
	return true
}

func TestPythonLiteral_ReplacesWordsOutsideOfTexts(t *testing.T) {
	const body = "{\n \"true\": true,\n \"a\": [null, false, \"null, true\", -1.5]\n}"
	const want = "{\n \"true\": True,\n \"a\": [None, False, \"null, true\", -1.5]\n}"
	if got := pythonLiteral(body); got != want {
		t.Errorf("pythonLiteral = %s, want %s", got, want)
	}
}
