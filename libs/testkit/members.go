package testkit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Members compares the members of got that want names. A member that is absent is equal to nil.
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
