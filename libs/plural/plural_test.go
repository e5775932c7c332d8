package plural_test

import (
	"testing"

	"ringfence.dev/libs/plural"
)

func TestOf_OneIsNotMany(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{-1: "-1 rows", 0: "0 rows", 1: "1 row", 2: "2 rows", 20_000: "20000 rows"} {
		if got := plural.Of(n, "row"); got != want {
			t.Errorf("Of(%d) = %q, want %q", n, got, want)
		}
	}
}
