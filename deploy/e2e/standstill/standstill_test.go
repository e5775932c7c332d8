package standstill

import (
	"testing"
	"time"
)

func TestWatch_StoodStillWhileItDidNotLook(t *testing.T) {
	t.Parallel()
	begun := time.Now().Add(time.Hour) // so that no true instant comes between
	at := func(d time.Duration) time.Time { return begun.Add(d) }
	w := &Watch{last: begun}
	for n := range 20 {
		w.moved(at(time.Duration(n) * noticed))
	}
	from := w.last
	w.moved(from.Add(5 * time.Second))
	w.moved(from.Add(5*time.Second + noticed))
	for _, row := range []struct {
		name     string
		from, to time.Time
		want     time.Duration
	}{
		{"before it", begun, from, 0},
		{"all of it", begun, from.Add(time.Minute), 5 * time.Second},
		{"amid it", from.Add(time.Second), from.Add(3 * time.Second), 2 * time.Second},
		{"behind it", from.Add(5 * time.Second), from.Add(time.Minute), 0},
	} {
		if still, moving := w.within(row.from, row.to), w.Moving(row.from, row.to); still != row.want || moving != row.to.Sub(row.from)-row.want {
			t.Errorf("%s: still for %s, moving for %s, want %s still", row.name, still, moving, row.want)
		}
	}
}
