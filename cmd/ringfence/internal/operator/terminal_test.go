package operator

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// Without a terminal, the objects are always printed as a table.
func TestTable_PrintsObjectsOneByOneInANarrowTerminal(t *testing.T) {
	members := []json.RawMessage{
		json.RawMessage(`{"id":"019728a4-3f00-7a10-8000-0000000000aa","name":"日本語","created_at":"2026-06-04T09:00:00Z","status":"active"}`),
		json.RawMessage(`{"id":"019728a4-42e8-7a10-8000-0000000000bb","name":"e\u0301cole",` +
			`"created_at":"2026-06-04T09:00:01Z","status":null}`),
	}
	columns := []string{"id", "name", "created_at", "status"}
	const table = "ID             NAME    CREATED AT               STATUS\n" +
		"019728a4-3f00  日本語  2026-06-04 04:00:00 EST  active\n" +
		"019728a4-42e8  e\u0301cole   2026-06-04 04:00:01 EST  -\n"
	for width, want := range map[int]string{
		0:  table,
		54: table,
		53: "ID          019728a4-3f00\nNAME        日本語\nCREATED AT  2026-06-04 04:00:00 EST\nSTATUS      active\n\n" +
			"ID          019728a4-42e8\nNAME        e\u0301cole\nCREATED AT  2026-06-04 04:00:01 EST\nSTATUS      -\n",
	} {
		d, printed := open(t, false, nil)
		d.columns = width
		if err := d.Table(members, columns); err != nil {
			t.Fatal(err)
		}
		if got := printed.String(); got != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", width, got, want)
		}
	}
	d, printed := open(t, false, nil)
	d.columns = 80
	if err := d.Member(json.RawMessage(`{"id":"7","short":{"a":1},"history":[{"attempt":1,"at":"2026-06-04T09:00:00Z","code":503},{"attempt":2,"at":"2026-06-04T09:01:00Z","code":200}]}`)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(printed.String()) {
		if len(line) > 81 {
			t.Errorf("%d characters in %q", len(line), line)
		}
	}
}

func TestConfirm_AcceptsOnlyYes(t *testing.T) {
	const refused = "not confirmed: nothing was changed"
	replies := map[string]string{"yes\n": "", " YES \n": "", "yes": "", "y\n": refused, "no\n": refused, "": refused}
	for reply, want := range replies {
		d, printed := open(t, false, nil)
		d.answers = strings.NewReader(reply)
		err := Confirmation{}.Confirm(t.Context(), d, "This deletes %s", "a\x1bb")
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("answer %q: error = %q, want %q", reply, got, want)
		}
		if want := "This deletes a"; !strings.Contains(printed.String(), want) {
			t.Errorf("question = %q, want it to contain %q", printed, want)
		}
		if strings.Contains(printed.String(), "\x1b") {
			t.Errorf("question = %q, want it without the escape character", printed)
		}
	}
	unattended, _ := open(t, false, nil)
	wantError(t, (Confirmation{}).Confirm(t.Context(), unattended, "This deletes it"), "add --yes", "\n")
	if err := (Confirmation{Yes: true}).Confirm(t.Context(), unattended, "This deletes it"); err != nil {
		t.Errorf("--yes: %v", err)
	}
}

func TestStdin_EndsWhenTheContextEnds(t *testing.T) {
	silent, _ := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := io.ReadAll(readerUntil(ctx, silent)); !errors.Is(err, context.Canceled) {
		t.Errorf("read = %v, want the stop", err)
	}
	d, _ := open(t, false, nil)
	d.answers = silent
	if err := (Confirmation{}).Confirm(ctx, d, "This deletes it"); !errors.Is(err, context.Canceled) {
		t.Errorf("asked = %v, want the stop", err)
	}
	got, err := io.ReadAll(readerUntil(t.Context(), strings.NewReader("whole")))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != "whole" {
		t.Errorf("read %q, want whole", got)
	}
}

// A path with an empty id, "." or ".." would name the collection or its parent.
func TestClient_RefusesPathsWithEmptyOrDotSegments(t *testing.T) {
	d, _ := open(t, false, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked %s", r.URL) })
	for _, id := range []string{"", ".", ".."} {
		for _, path := range []string{At("trunks", id), At("workspaces", id, "api-keys") + "?limit=1", At("workspaces", "7", "api-keys", id)} {
			_, err := d.Ask(t.Context(), http.MethodDelete, path, nil)
			wantError(t, err, "is not a valid id", "\n")
		}
	}
}
