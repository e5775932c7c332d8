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
		if took := w.Took(); took != 3*time.Second {
			t.Errorf("it took %s, want 3 s", took)
		}
	})
}

func TestCounted_AStandstillIsTwoBeats(t *testing.T) {
	for between, want := range map[time.Duration]time.Duration{beat: beat, 2 * beat: 2 * beat, 7 * time.Second: 2 * beat} {
		if got := counted(between); got != want {
			t.Errorf("%s between two beats count for %s, want %s", between, got, want)
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
