package sipcarrier

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestRecent_KeepsOnlyTheNewestValues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recent[int]
		r.add(1)
		time.Sleep(recentPeriod - time.Second)
		r.add(2)
		time.Sleep(2 * time.Second)
		if got, want := r.all(), []int{2}; !slices.Equal(got, want) {
			t.Errorf("values after the period = %v, want %v", got, want)
		}
		for n := range maxRecent {
			r.add(3 + n)
		}
		got := r.all()
		if len(got) != maxRecent {
			t.Errorf("number of values = %d, want %d", len(got), maxRecent)
		}
		if got[0] != 3 {
			t.Errorf("oldest value = %d, want 3", got[0])
		}
	})
}
