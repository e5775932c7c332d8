package dialing_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

// If no number can be chosen now, the request is put back. It does not keep its slot until the end of its claim.
func TestRun_NoNumberNowPutsTheRequestBack(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var chosen atomic.Int64
	d.from = func(context.Context, string, []string) (number, over string, err error) {
		chosen.Add(1)
		return "", "", errors.New("no trunk with a number has a free channel")
	}
	over := &trunks{}
	d.run(over, func() error {
		if chosen.Load() == 0 {
			return errors.New("no number was asked for")
		}
		return nil
	})
	state, slots, _ := d.state()
	if want := "queued"; state != want {
		t.Errorf("state = %q, want %q", state, want)
	}
	if slots != 0 {
		t.Errorf("slots = %d, want 0", slots)
	}
	if got := len(over.asked()); got != 0 {
		t.Errorf("originates = %d, want 0", got)
	}
}
