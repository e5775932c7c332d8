package dial_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

func (d *fixture) setDialing(paused bool) {
	d.t.Helper()
	scope := dialqueue.PauseScope{Level: dialqueue.PauseWorkspace, ID: d.request.WorkspaceID}
	change := dialqueue.DialingChange{Paused: paused, Reason: "r",
		Actor: dialqueue.Actor{Type: dialqueue.ActorOperator, Name: "ops"}}
	if _, err := d.store().SetDialing(context.Background(), scope, change); err != nil {
		d.t.Error(err)
	}
}

// Dialing is paused during an attempt, before a phone rings. The request must be queued again and
// dialed after the pause.
func TestPause_RequestWithoutARingingPhoneIsQueuedAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		// originate is the first Originate after dialing was paused.
		originate func(carrier.Originate) error
	}{
		{name: "before the first INVITE", originate: func(o carrier.Originate) error {
			return fmt.Errorf("originate: %w", carrier.ErrNotPermitted)
		}},
		{name: "before the INVITE with credentials", originate: func(o carrier.Originate) error {
			return &carrier.Refused{Cause: callstate.NormalTemporaryFailure, Err: carrier.ErrNotPermitted}
		}},
		{name: "before the INVITE to the next address, another trunk is left", originate: func(o carrier.Originate) error {
			return &carrier.Refused{
				Cause: callstate.NormalTemporaryFailure, RefusedBy: uuid.NewString(), Err: carrier.ErrNotPermitted,
			}
		}},
		{name: "before the next trunk", originate: func(o carrier.Originate) error {
			return refuse(callstate.NormalTemporaryFailure, uuid.NewString())(o)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.pauses = dialqueue.NewPauseMonitor(d.store().LatestPauses, prometheus.NewRegistry())
			during := func(o carrier.Originate) error {
				d.setDialing(true)
				testkit.Until(t, "the INVITE is not permitted", func() bool { return !o.Permitted(context.Background()) })
				go func() {
					testkit.Until(t, "the request is queued", func() bool {
						state, _, _ := d.state()
						return state == "queued"
					})
					d.setDialing(false)
				}()
				return tt.originate(o)
			}
			over := &fakeCarrier{answers: []func(carrier.Originate) error{during, accept}}
			d.dialAll(over)
			if got, want := d.calls(), []string{"void", "initiated"}; !slices.Equal(trimCauses(got), want) {
				t.Errorf("calls = %q, want %q", got, want)
			}
			if state, _, _ := d.state(); state != "dialing" {
				t.Errorf("state = %q, want dialing", state)
			}
		})
	}
}

// A trunk is paused during an attempt, before a phone rings, and there is no other trunk for the
// call. The request must be queued again.
func TestPause_RequestAtAPausedTrunkIsQueuedAgain(t *testing.T) {
	t.Parallel()
	paused := func(carrier.Originate) error { return fmt.Errorf("originate: %w", carrier.ErrTrunkPaused) }
	pausedLater := func(refusedBy string) func(carrier.Originate) error {
		return func(carrier.Originate) error {
			return &carrier.Refused{
				Cause: callstate.NormalTemporaryFailure, RefusedBy: refusedBy, Err: carrier.ErrTrunkPaused,
			}
		}
	}
	busy := refuse(callstate.NormalTemporaryFailure, uuid.NewString())
	noOther := func(carrier.Originate) error {
		return &carrier.Refused{Cause: callstate.NetworkOutOfOrder, NotSent: true, OperatorFault: true}
	}
	for _, tt := range []struct {
		name    string
		answers []func(carrier.Originate) error
		calls   []string
	}{
		{name: "before the first INVITE", answers: []func(carrier.Originate) error{paused, accept},
			calls: []string{"void", "initiated"}},
		{name: "before the INVITE with credentials", answers: []func(carrier.Originate) error{pausedLater(""), accept},
			calls: []string{"void", "initiated"}},
		{name: "before the first INVITE to the second trunk", answers: []func(carrier.Originate) error{busy, paused, accept},
			calls: []string{"void", "void", "initiated"}},
		{name: "before the INVITE with credentials to the second trunk",
			answers: []func(carrier.Originate) error{busy, pausedLater(""), accept}, calls: []string{"void", "void",
				"initiated"}},
		{name: "the next trunk carries the call",
			answers: []func(carrier.Originate) error{pausedLater(uuid.NewString()), accept}, calls: []string{"void",
				"initiated"}},
		{name: "the next trunk cannot take the call",
			answers: []func(carrier.Originate) error{pausedLater(uuid.NewString()), noOther, accept},
			calls:   []string{"void", "void", "initiated"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.dialAll(&fakeCarrier{answers: tt.answers})
			if got := trimCauses(d.calls()); !slices.Equal(got, tt.calls) {
				t.Errorf("calls = %q, want %q", got, tt.calls)
			}
			if state, _, _ := d.state(); state != "dialing" {
				t.Errorf("state = %q, want dialing", state)
			}
		})
	}
}

func trimCauses(calls []string) (statuses []string) {
	for _, call := range calls {
		var status string
		_, _ = fmt.Sscan(call, &status)
		statuses = append(statuses, status)
	}
	return statuses
}

// The first trunk refused the call. Dialing is paused while the second trunk processes the call.
func TestPause_RequestIsQueuedAgainDuringItsAttemptAtASecondTrunk(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.pauses = dialqueue.NewPauseMonitor(d.store().LatestPauses, prometheus.NewRegistry())
	second := func(o carrier.Originate) error {
		d.setDialing(true)
		testkit.Until(t, "the INVITE is not permitted", func() bool { return !o.Permitted(context.Background()) })
		go func() {
			testkit.Until(t, "the request is queued", func() bool {
				state, _, _ := d.state()
				return state == "queued"
			})
			d.setDialing(false)
		}()
		return fmt.Errorf("originate: %w", carrier.ErrNotPermitted)
	}
	over := &fakeCarrier{answers: []func(carrier.Originate) error{
		refuse(callstate.NormalTemporaryFailure, uuid.NewString()), second, accept,
	}}
	d.dialAll(over)
	if got, want := d.calls(), []string{"void", "void", "initiated"}; !slices.Equal(trimCauses(got), want) {
		t.Errorf("calls = %q, want %q", got, want)
	}
}
