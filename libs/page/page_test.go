package page

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
)

func TestParse_ReadsValidAndRefusesInvalidParameters(t *testing.T) {
	id := uuid.Must(uuid.NewV7())
	for _, row := range []struct {
		name, query string
		want        Request
		fault       string
	}{
		{"an empty query means 25 items from the newest", "", Request{Limit: 25}, ""},
		{"the smallest limit", "limit=1", Request{Limit: 1}, ""},
		{"the largest limit, after an id", "limit=100&starting_after=" + id.String(), Request{Limit: 100, After: id}, ""},
		{"limit 0 is refused", "limit=0", Request{}, "limit"},
		{"limit 101 is refused", "limit=101", Request{}, "limit"},
		{"a limit that is text is refused", "limit=ten", Request{}, "limit"},
		{"an empty limit is refused", "limit=", Request{}, "limit"},
		{"a limit with a plus sign is refused", "limit=%2B5", Request{}, "limit"},
		{"a limit with a fraction is refused", "limit=2.5", Request{}, "limit"},
		{"an id without hyphens is refused", "starting_after=" + strings.ReplaceAll(id.String(), "-", ""), Request{}, "starting_after"},
		{"an empty id is refused", "starting_after=", Request{}, "starting_after"},
		{
			"the nil id is refused, because it would mean the first page", "starting_after=" + uuid.Nil.String(), Request{},
			"starting_after",
		},
	} {
		query, err := url.ParseQuery(row.query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(query)
		if row.fault != "" {
			if err == nil {
				t.Errorf("%s: error = nil, want an error", row.name)
			} else if !strings.HasPrefix(err.Error(), "validation_error: "+row.fault) {
				t.Errorf("%s: err = %q, want it to begin with %q", row.name, err.Error(), "validation_error: "+row.fault)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: Parse: %v", row.name, err)
		} else if got != row.want {
			t.Errorf("%s: got = %v, want %v", row.name, got, row.want)
		}
	}
}

func TestPageOf_ReturnsNoMoreItemsThanTheLimit(t *testing.T) {
	double := func(n int) int { return 2 * n }
	asked := Request{Limit: 2}
	got := Of(asked, []int{1, 2, 3}, double)
	if len(got.Data) != 2 {
		t.Fatalf("Of three rows: length of got.Data = %v, want 2", len(got.Data))
	}
	if got.Data[1] != 4 {
		t.Errorf("Of three rows: got.Data[1] = %v, want 4", got.Data[1])
	}
	if !got.HasMore {
		t.Errorf("Of three rows: got.HasMore = false, want true")
	}
	if got := Of(asked, []int{1, 2}, double); len(got.Data) != 2 {
		t.Errorf("Of two rows: length of got.Data = %d, want 2", len(got.Data))
	} else if got.HasMore {
		t.Error("Of two rows: got.HasMore = true, want false")
	}
	empty, err := json.Marshal(Of(asked, nil, double))
	if err != nil {
		t.Errorf("an empty page: json.Marshal: %v", err)
	} else if string(empty) != `{"data":[],"has_more":false}` {
		t.Errorf("an empty page: empty = %q, want %q", string(empty), `{"data":[],"has_more":false}`)
	}
}
