package operator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// newID returns an id that contains the creation time. Ids with different n are different.
func newID(created time.Time, n int) string {
	milliseconds := fmt.Sprintf("%012x", created.UnixMilli())
	return fmt.Sprintf("%s-%s-7000-8000-%012d", milliseconds[:8], milliseconds[8:], n)
}

// collection serves lists of items, newest first, in pages of the given size. It ignores the
// filters created_after and created_before, except for calls.
type collection struct {
	ids   []string
	asked []string
}

func (c *collection) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	c.asked = append(c.asked, r.Method+" "+r.URL.Path)
	limit, started := 0, query.Get("starting_after") == ""
	_, _ = fmt.Sscan(query.Get("limit"), &limit)
	if limit == 0 { // the request is not for a list
		_, _ = w.Write([]byte(`{"ok":true}`))
		return
	}
	data, more := []map[string]string{}, false
	for _, id := range c.ids {
		switch {
		case !started:
			started = id == query.Get("starting_after")
		case len(data) == limit:
			more = true
		default:
			data = append(data, map[string]string{"id": id})
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"data": data, "has_more": more})
}

func TestClient_ExpandsShortIDs(t *testing.T) {
	at := time.Date(2026, 6, 4, 9, 0, 0, 0, time.UTC)
	served := &collection{}
	for n := range 250 {
		served.ids = append(served.ids, newID(at.Add(-time.Duration(n)*time.Second), n))
	}
	twin := newID(at.Add(-200*time.Second), 999)
	served.ids = append(served.ids[:200], append([]string{twin}, served.ids[200:]...)...)
	d, _ := open(t, false, served.ServeHTTP)
	workspace := At("workspaces", "1")
	numbers, calls, hooks := workspace+"/numbers/", workspace+"/calls/", workspace+"/webhook-subscriptions/"
	for _, test := range []struct{ name, path, want, err string }{
		{name: "a whole id", path: calls + twin, want: calls + twin},
		{name: "no id", path: workspace + "/contacts/+14155550100", want: workspace + "/contacts/+14155550100"},
		{name: "the newest", path: calls + served.ids[0][:13], want: calls + served.ids[0]},
		{name: "on the second page", path: numbers + served.ids[150][:13], want: numbers + served.ids[150]},
		{name: "a longer beginning", path: numbers + served.ids[150][:20], want: numbers + served.ids[150]},
		{
			name: "two short ids", path: hooks + served.ids[1][:13] + "/deliveries/" + served.ids[2][:13],
			want: hooks + served.ids[1] + "/deliveries/" + served.ids[2],
		},
		{
			name: "the key of an agent", path: workspace + "/agent-keys/" + served.ids[1][:13],
			want: workspace + "/agent-keys/" + served.ids[1],
		},
		{
			name: "in the query", path: workspace + "/attempts?of=" + served.ids[1][:13],
			want: workspace + "/attempts?of=" + served.ids[1],
		},
		{
			name: "two ids of one millisecond", path: numbers + twin[:13],
			err: "2 ids begin with " + twin[:13] + ": " + twin,
		},
		{name: "of no object", path: numbers + "01970000-0000", err: "no id begins with 01970000-0000 in the list"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := d.expandIDs(t.Context(), test.path)
			if test.err != "" {
				wantError(t, err, test.err, "\n")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("path = %q, want %q", got, test.want)
			}
		})
	}
	served.asked = nil
	if _, err := d.expandIDs(t.Context(), numbers+served.ids[5][:13]); err != nil {
		t.Fatal(err)
	}
	if len(served.asked) != 1 {
		t.Errorf("requests for an id of the first page = %q, want one", served.asked)
	}
}

func TestTable_PrintsAShortIDOnlyIfItIsUnique(t *testing.T) {
	at := time.Date(2026, 6, 4, 9, 0, 0, 0, time.UTC)
	a, b, c := newID(at, 1), newID(at, 2), newID(at.Add(time.Hour), 3)
	members := []json.RawMessage{}
	for _, id := range []string{a, b, c} {
		members = append(members, json.RawMessage(fmt.Sprintf(`{"id":%q,"call_id":%q,"reference":%q}`, id, a, a)))
	}
	d, printed := open(t, false, nil)
	if err := d.Table(members, []string{"id", "call_id", "reference"}); err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"ID", "CALL", "ID", "REFERENCE"}, {a, a[:13], a}, {b, a[:13], a}, {c[:13], a[:13], a}}
	for i, line := range strings.Split(strings.TrimSpace(printed.String()), "\n") {
		if got := strings.Join(strings.Fields(line), " "); got != strings.Join(want[i], " ") {
			t.Errorf("line %d = %q, want %q", i, got, want[i])
		}
	}
	for _, output := range []Output{Wide, JSON} {
		d, printed := open(t, false, nil)
		d.output = output
		if err := d.Table(members, []string{"id", "call_id"}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(printed.String(), c); got != 1 {
			t.Errorf("%s: whole ids = %d, want 1: %s", output, got, printed)
		}
	}
}
