package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringfence.dev/test/kit/sharedstack"
)

// Calls of the simulated carrier have no audio, so the test stores a recording for a call.
func TestCustomer_CanReadTheTranscriptAndTheRecording(t *testing.T) {
	w := workspace(t, set{"features": set{"transcripts": true, "recordings": true}})
	otherTenant := workspace(t)
	w.topUp(t, "10")
	request := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id")
	path := "/v1/calls/" + w.ended(t, request).text("call_id")
	until(t, "there is a transcript", func() bool { return w.read.send(t, "GET", path+"/transcript", nil).status == 200 })
	spoken := w.read.want(t, 200, "GET", path+"/transcript", nil)
	whole := w.read.want(t, 200, "GET", path, nil)
	if turns, _ := spoken.members()["turns"].([]any); len(turns) < 2 {
		t.Errorf("transcript: length of turns = %d, want at least 2; spoken.body = %s; whole.body = %s",
			len(turns), spoken.body, whole.body)
	} else if fmt.Sprint(spoken.members()) != fmt.Sprint(whole.members()["transcript"]) {
		t.Errorf("transcript: fmt.Sprint(spoken.members()) = %v, want %v; spoken.body = %s; whole.body = %s",
			fmt.Sprint(spoken.members()), fmt.Sprint(whole.members()["transcript"]), spoken.body, whole.body)
	}
	w.read.refused(t, 404, "recording_not_available", "GET", path+"/recording", nil)

	key := w.id + "/2026/06/04" + strings.TrimPrefix(path, "/v1/calls") + ".wav"
	file := filepath.Join(stack(t).Home, "recordings", filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("RIFF of the test"), 0o600); err != nil {
		t.Fatal(err)
	}
	const laid = `UPDATE calls.calls SET recording_key = $2 WHERE id = $1`
	if done, err := database(t).Exec(t.Context(), laid, strings.TrimPrefix(path, "/v1/calls/"), key); err != nil {
		t.Fatalf("Exec: %v", err)
	} else if got := done.RowsAffected(); got != 1 {
		t.Fatalf("Exec: done.RowsAffected() = %v, want 1", got)
	}
	until(t, "the calls service has applied the features of the workspace", func() bool {
		return w.read.send(t, "GET", path+"/recording", nil).status == 200
	})
	got := w.read.want(t, 200, "GET", path+"/recording", nil)
	sharedstack.Equal(t, "expires_in", got.text("expires_in"), "3600")
	sharedstack.Equal(t, "len(got.members())", len(got.members()), 2)
	sharedstack.Equal(t, "got.header.Get('Cache-Control')", got.header.Get("Cache-Control"), "no-store")
	if whole = w.read.want(t, 200, "GET", path, nil); whole.text("recording_url") == "" {
		t.Errorf(`call: whole.text("recording_url") is empty, want a value; whole.body = %s`, whole.body)
	} else if whole.header.Get("Cache-Control") != "no-store" {
		t.Errorf(`call: whole.header.Get("Cache-Control") = %q, want "no-store"; whole.body = %s`,
			whole.header.Get("Cache-Control"), whole.body)
	}
	w.download(t, got.text("url"))
	for _, of := range []string{"", "/transcript", "/recording"} {
		otherTenant.read.refused(t, 404, "not_found", "GET", path+of, nil)
	}

	w.operator.want(t, 200, "PATCH", w.admin, set{"features": set{"transcripts": false, "recordings": false}})
	until(t, "transcript and recording are hidden", func() bool {
		return w.read.send(t, "GET", path+"/transcript", nil).status == 404 &&
			w.read.send(t, "GET", path+"/recording", nil).status == 404
	})
}

// The link of a recording needs no API key.
func (w *tenant) download(t *testing.T, link string) {
	t.Helper()
	anybody := customer(t, "")
	path, ours := strings.CutPrefix(link, anybody.base)
	if !ours {
		t.Fatalf("the link is %s, want it to lead to %s", link, anybody.base)
	}
	anybody.http.Transport = transport("") // the link is not an operation of the OpenAPI description
	if file := anybody.want(t, 200, "GET", path, nil); file.body != "RIFF of the test" {
		t.Errorf(`file: file.body = %q, want "RIFF of the test"`, file.body)
	} else if file.header.Get("Content-Type") != "audio/wav" {
		t.Errorf(`file: file.header.Get("Content-Type") = %q, want "audio/wav"`, file.header.Get("Content-Type"))
	}
	for _, other := range []string{
		strings.Replace(path, "signature=", "signature=0", 1), strings.Replace(path, "expires=1", "expires=9", 1), strings.Replace(path, ".wav", ".wav.x", 1),
		strings.Replace(path, w.id, "01a1fe16-7bf6-7d8f-b534-2e98b17693a4", 1), strings.Split(path, "?")[0],
	} {
		anybody.refused(t, 404, "not_found", "GET", other, nil)
	}
}
