package testkit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestWalkTimestamps_FindsEveryTimestamp(t *testing.T) {
	t.Parallel()
	document := map[string]any{
		"created_at": "2026-06-04T09:00:00Z",
		"data":       []any{map[string]any{"at": "2026-06-04T09:00:00.000Z"}, "no time", 7.0, nil},
		"metadata":   map[string]any{"theirs": "2026-06-04T09:00:00Z"},
	}
	want := []timestamp{
		{path: ".created_at", text: "2026-06-04T09:00:00Z"},
		{path: ".data[0].at", text: "2026-06-04T09:00:00.000Z"},
	}
	byPath := cmpopts.SortSlices(func(a, b timestamp) bool { return a.path < b.path })
	if diff := cmp.Diff(want, walkTimestamps("", document, []string{"metadata"}), cmp.AllowUnexported(timestamp{}),
		byPath); diff != "" {
		t.Errorf("walk (-want +got):\n%s", diff)
	}
}

func TestCheckTimestamps_AcceptsThreeDecimalsInUTCOnly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"2026-06-04T09:00:00.000Z":      true,
		"2026-06-04T09:00:00.120Z":      true,
		"2026-06-04T09:00:00Z":          false,
		"2026-06-04T09:00:00.12Z":       false,
		"2026-06-04T09:00:00.123456Z":   false,
		"2026-06-04T11:00:00.000+02:00": false,
	} {
		if got := shown.MatchString(text); got != want {
			t.Errorf("%s: shown = %v, want %v", text, got, want)
		}
	}
}
