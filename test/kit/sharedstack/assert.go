package sharedstack

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal reports an error if got and want differ. name describes the compared value, for example
// "status".
func Equal[T any](t testing.TB, name string, got, want T) {
	t.Helper()
	if !cmp.Equal(got, want) {
		t.Errorf("%s = %v, want %v", name, got, want)
	}
}

// Contains reports an error if text does not contain want. name describes the text, for example
// "body".
func Contains(t testing.TB, name, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("%s = %q, want it to contain %q", name, text, want)
	}
}

// Value returns the value that p points to, or the zero value if p is nil.
func Value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
