package stopwatch

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTook_IsTheClocksTimeWhereNothingStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := Start(t.Context())
		time.Sleep(3*time.Second + beat/2)
		if took := w.Took(); took != 3*time.Second+beat/2 {
			t.Errorf("it took %s, want what the clock says", took)
		}
	})
}

func TestStill_IsWhatABeatIsLate(t *testing.T) {
	t.Parallel()
	begun := time.Now().Add(time.Hour) // so that no true instant comes between
	w := &Watch{begun: begun, last: begun}
	for n := range 20 {
		w.moved(begun.Add(time.Duration(n) * (beat + noticed))) // slow, and not still
	}
	from := w.last
	w.moved(from.Add(beat + 5*time.Second))
	w.moved(from.Add(2*beat + 5*time.Second))
	from = from.Add(beat)
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
		if still, moving := w.still(row.from, row.to), w.Moving(row.from, row.to); still != row.want || moving != row.to.Sub(row.from)-row.want {
			t.Errorf("%s: still for %s, moving for %s, want %s still", row.name, still, moving, row.want)
		}
	}
}

func TestWithin_EndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := Within(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		<-ctx.Done()
		if took := time.Since(begun); took < time.Second || took > time.Second+2*beat {
			t.Errorf("it ended after %s, want a second", took)
		}
	})
}
