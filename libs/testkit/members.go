package testkit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Members compares the members of the JSON object want with the members of the same names in got.
// It ignores all other members of got. A member that is missing in got is equal to nil.
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
