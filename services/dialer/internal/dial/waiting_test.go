package dial_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/services/dialer/internal/carrier"
)

func TestRun_AttemptThatWaitsForATrunkReleasesItsWorker(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.attempts = 1
	other := d.request
	other.CallRequestID, other.To = uuid.Must(uuid.NewV7()), "+14155550102"
	err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
		_, err := d.store().Enqueue(t.Context(), tx, other)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan struct{})
	d.dialAll(&fakeCarrier{answers: []func(carrier.Originate) error{
		func(o carrier.Originate) error {
			select {
			case <-o.Waiting():
				return errors.New("the process stopped before the second request was dialed")
			case <-second:
				return nil
			}
		},
		func(carrier.Originate) error {
			close(second)
			return nil
		},
	}})
	calls := d.calls()
	if got, want := len(calls), 2; got != want {
		t.Fatalf("calls = %q, want %d", calls, want)
	}
	for _, got := range calls {
		if want := "initiated"; got != want {
			t.Errorf("call = %q, want %q", got, want)
		}
	}
}

// A stopping process must not wait for the response of a slow trunk.
func TestRun_StoppingDialerDoesNotWaitForASlowTrunk(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.dialAll(&fakeCarrier{answers: []func(carrier.Originate) error{func(o carrier.Originate) error {
		<-o.Waiting()
		return nil
	}}})
	calls := d.calls()
	if got, want := len(calls), 1; got != want {
		t.Fatalf("calls = %q, want %d", calls, want)
	}
	if got, want := calls[0], "initiated"; got != want {
		t.Errorf("call = %q, want %q", got, want)
	}
}
