package testkit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Members compares those members of got whose names are in want. An absent member is equal to nil.
func Members(t testing.TB, what string, got, want map[string]any) {
	t.Helper()
	named := map[string]any{}
	for name := range want {
		named[name] = got[name]
	}
	if diff := cmp.Diff(want, named); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
