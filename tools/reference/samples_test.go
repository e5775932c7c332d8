package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// described contains the parts of the API description that the test reads.
type described struct {
	Paths map[string]map[string]json.RawMessage `json:"paths"`
}

type codeSamples struct {
	Samples     []struct{ Lang, Source string } `json:"x-codeSamples"`
	Security    []any
	RequestBody *struct{ Required bool }
}

// inAllLanguages are the paths for which the samples in all languages are run.
var inAllLanguages = []string{
	"/v1/calls", "/admin/v1/workspaces/{id}/rates", "/console/v1/members/{person_id}", "/console/v1/sign-in/code",
	"/admin/v1/workspaces/{id}/opt-out-imports/{import_id}/parts/{part}",
}

// sentRequest is a request that a sample sent.
type sentRequest struct {
	Method, Path, Key, Workspace string
	Body                         any
}

// TestSamples_OfOneOperationSendTheSameRequest runs the samples that languagesOf selects. All
// samples of an operation must send the same request.
func TestSamples_OfOneOperationSendTheSameRequest(t *testing.T) {
	var sent []sentRequest
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := sentRequest{
			Method: r.Method, Path: r.URL.EscapedPath(), Key: r.Header.Get("Authorization"),
			Workspace: r.Header.Get("Ringfence-Workspace"),
		}
		body, _ := io.ReadAll(r.Body)
		if json.Unmarshal(body, &request.Body) != nil && len(body) > 0 {
			request.Body = string(body)
		}
		sent = append(sent, request)
		_, _ = w.Write([]byte(`{"id":"7"}`))
	}))
	t.Cleanup(server.Close)
	for file, prefix := range map[string]string{"openapi": "/v1/", "operator": "/admin/v1/", "console": "/console/v1/"} {
		description, err := os.ReadFile("../../proto/openapi/" + file + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var api described
		if err := json.Unmarshal(description, &api); err != nil {
			t.Fatal(err)
		}
		run := 0
		for path, item := range api.Paths {
			for method, raw := range item {
				if method == "parameters" || !strings.HasPrefix(path, prefix) {
					continue
				}
				var of codeSamples
				if err := json.Unmarshal(raw, &of); err != nil {
					t.Fatal(err)
				}
				sent = nil
				run += of.runAll(t, server.URL, languagesOf(file, path))
				checkSent(t, strings.ToUpper(method), path, of, sent)
			}
		}
		if run < 30 {
			t.Errorf("%s: %d samples were run, want at least 30", file, run)
		}
	}
}

// languagesOf returns the languages in which the samples of a path are run. Go samples are run only
// for a few paths, because compiling them takes time.
func languagesOf(file, path string) []string {
	switch {
	case slices.Contains(inAllLanguages, path):
		return []string{"shell", "typescript", "python", "go"}
	case file == "openapi":
		return []string{"shell", "typescript", "python"}
	default:
		return []string{"shell"}
	}
}

// runAll runs the samples in these languages, and returns how many were run.
func (c codeSamples) runAll(t *testing.T, url string, languages []string) (run int) {
	t.Helper()
	if len(c.Samples) != 4 {
		t.Errorf("an operation has %d samples, want 4", len(c.Samples))
	}
	for _, sample := range c.Samples {
		if slices.Contains(languages, sample.Lang) && runSample(t, url, sample.Lang, sample.Source) {
			run++
		}
	}
	return run
}

func checkSent(t *testing.T, method, path string, of codeSamples, sent []sentRequest) {
	t.Helper()
	key := "Bearer a-key"
	if of.Security != nil {
		key = ""
	}
	for _, request := range sent {
		if diff := cmp.Diff(sent[0], request); diff != "" {
			t.Errorf("%s %s: the samples send different requests:\n%s", method, path, diff)
		}
		if request.Method != method {
			t.Errorf("%s %s: method = %q", method, path, request.Method)
		}
		if request.Key != key {
			t.Errorf("%s %s: Authorization = %q, want %q", method, path, request.Key, key)
		}
		if of.RequestBody != nil && of.RequestBody.Required && request.Body == nil {
			t.Errorf("%s %s: the request has no body", method, path)
		}
		if strings.Contains(request.Path, "{") {
			t.Errorf("%s %s: path = %q, want it without parameters", method, path, request.Path)
		}
	}
}

// runSample runs a sample and returns false if the machine has no program for the language.
func runSample(t *testing.T, url, language, source string) bool {
	t.Helper()
	command, known := map[string][]string{
		"shell": {"sh"}, "typescript": {"node"}, "python": {"python3"}, "go": {"go", "run"},
	}[language]
	file := map[string]string{
		"shell": "sample.sh", "typescript": "sample.mjs", "python": "sample.py", "go": "sample.go",
	}[language]
	if !known {
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
	//nolint:gosec // the programs are listed above
	program := exec.CommandContext(t.Context(), command[0], append(command[1:], name)...)
	program.Env = append(os.Environ(), "RINGFENCE_URL="+url, "RINGFENCE_KEY=a-key", "RINGFENCE_ADMIN_URL="+url,
		"RINGFENCE_ADMIN_TOKEN=a-key", "RINGFENCE_CONSOLE_URL="+url, "RINGFENCE_SESSION=a-key", "GOWORK=off", "GOFLAGS=")
	output, err := program.CombinedOutput()
	if err != nil {
		t.Errorf("%s sample: %v\n%s\n%s", language, err, output, source)
	}
	return true
}

func TestPythonLiteral_ReplacesJSONWordsOutsideOfStrings(t *testing.T) {
	const body = "{\n \"true\": true,\n \"a\": [null, false, \"null, true\", -1.5]\n}"
	const want = "{\n \"true\": True,\n \"a\": [None, False, \"null, true\", -1.5]\n}"
	if got := pythonLiteral(body); got != want {
		t.Errorf("pythonLiteral = %s, want %s", got, want)
	}
}
