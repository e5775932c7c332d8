package dial_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
)

type recordedIntents struct {
	mu        sync.Mutex
	lines     []string
	all       []store.Intent
	withdrawn []uuid.UUID
	// intend returns the result of publishing the nth intent; the first n is 1. If intend is nil,
	// every intent is acknowledged.
	intend func(n int, i store.Intent) error
}

func (j *recordedIntents) Intend(_ context.Context, i store.Intent) error {
	j.mu.Lock()
	j.lines, j.all = append(j.lines, "intended"), append(j.all, i)
	n := len(j.all)
	j.mu.Unlock()
	if j.intend != nil {
		return j.intend(n, i)
	}
	return nil
}

func (j *recordedIntents) Withdraw(i store.Intent) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines, j.withdrawn = append(j.lines, "withdrawn"), append(j.withdrawn, i.CallID)
}

func (j *recordedIntents) publishedIntents() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

func (d *fixture) fences() (n int) {
	d.t.Helper()
	if err := d.pool.QueryRow(d.t.Context(), `SELECT count(*) FROM fences`).Scan(&n); err != nil {
		d.t.Error(err)
	}
	return n
}

func TestIntend_IntentIsPublishedBeforeEachFence(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	var before []int
	d.intents.intend = func(int, store.Intent) error {
		before = append(before, d.fences())
		return nil
	}
	over := &fakeCarrier{answers: []func(carrier.Originate) error{refuse("normal_temporary_failure", "one"), accept}}
	d.dialAll(over)
	if want := []int{0, 1}; !slices.Equal(before, want) {
		t.Errorf("fences when an intent is published = %v, want %v", before, want)
	}
	for n, o := range over.originates() {
		if got := d.intents.all[n].CallID; got != o.CallID {
			t.Errorf("call of intent %d = %s, want %s", n, got, o.CallID)
		}
	}
}

func TestIntend_NoFenceIsCommittedWithoutAnAcknowledgement(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	var fences int
	d.intents.intend = func(n int, _ store.Intent) error {
		if n == 1 {
			return errors.New("no acknowledgement")
		}
		fences = d.fences()
		return nil
	}
	d.dialAll(&fakeCarrier{answers: []func(carrier.Originate) error{accept}})
	if fences != 0 {
		t.Errorf("fences after an intent without acknowledgement = %d, want 0", fences)
	}
	if got, want := d.calls(), []string{"initiated"}; !slices.Equal(got, want) {
		t.Errorf("calls = %q, want %q", got, want)
	}
}

func TestRun_ClaimsNothingWhileMayDialIsFalse(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	var asked, claimed atomic.Int64
	d.mayDial = func() bool {
		if asked.Add(1) > 3 {
			return true // the dialer may have claimed the request before MayDial became false
		}
		var n int64
		const query = `SELECT count(*) FROM dial_queue WHERE claimed_by IS NOT NULL`
		if err := d.pool.QueryRow(context.Background(), query).Scan(&n); err != nil {
			t.Error(err)
		}
		claimed.Store(max(claimed.Load(), n))
		return asked.Load() > 2
	}
	d.dialAll(&fakeCarrier{answers: []func(carrier.Originate) error{accept}})
	if got := claimed.Load(); got != 0 {
		t.Errorf("claimed requests while MayDial is false = %d, want 0", got)
	}
}

func TestWithdraw_OnlyIntentsOfRequeuedRequestsAreWithdrawn(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		before  string
		answers []func(carrier.Originate) error
		want    []string
	}{
		{
			name: "another call to the number is live, so the fence is rejected",
			before: `INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id,
				status, max_call_seconds, deadline_at) SELECT gen_random_uuid(), gen_random_uuid(), workspace_id, 'outbound',
					'', to_e164,
				agent_id, 'ringing', 1, now() FROM dial_queue`,
			want: []string{"intended", "withdrawn"},
		},
		{
			name: "the trunk refuses the operator's account", answers: []func(carrier.Originate) error{operatorFault("")},
			want: []string{"intended", "withdrawn"},
		},
		{
			name: "the trunk accepts the call", answers: []func(carrier.Originate) error{accept}, want: []string{"intended"},
		},
		{
			name: "the callee is busy", answers: []func(carrier.Originate) error{refuse("user_busy", "")},
			want: []string{"intended"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			if tt.before != "" {
				d.intents.intend = func(n int, _ store.Intent) error {
					if n == 1 {
						d.exec(tt.before)
					}
					return nil
				}
			}
			d.runUntil(&fakeCarrier{answers: tt.answers}, func() error {
				if got := d.intents.publishedIntents(); len(got) < len(tt.want) {
					return errors.New("the attempt has not ended")
				}
				return nil
			})
			if got := d.intents.publishedIntents(); !slices.Equal(got[:len(tt.want)], tt.want) {
				t.Errorf("published = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWithdraw_IntentOfACallThatAnotherProcessEndsStaysValid(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	takenOver := func(o carrier.Originate) error {
		d.exec(`UPDATE calls SET ending = $1`, string(callstate.EndingRecovery))
		return operatorFault("")(o)
	}
	d.dialAll(&fakeCarrier{answers: []func(carrier.Originate) error{takenOver}})
	if got, want := d.intents.publishedIntents(), []string{"intended"}; !slices.Equal(got, want) {
		t.Errorf("published = %q, want %q", got, want)
	}
}

func TestWithdraw_OnlyTheIntentWithoutAValidFenceIsWithdrawn(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		// meanwhile runs before the first trunk refuses the call.
		meanwhile func(d *fixture, callID uuid.UUID)
		want      int
	}{
		{name: "the fence for the second trunk is committed", meanwhile: func(*fixture, uuid.UUID) {}, want: 0},
		{
			name: "the fence for the second trunk is rejected",
			meanwhile: func(d *fixture, callID uuid.UUID) {
				d.exec(`UPDATE calls SET owner = gen_random_uuid(), ending = 'recovery' WHERE call_id = $1`, callID)
			},
			want: 1,
		},
		{
			name: "the commit of the second fence fails",
			meanwhile: func(d *fixture, _ uuid.UUID) {
				owner := pgtest.Owner(d.t, d.pool, "dialer")
				if _, err := owner.Exec(context.Background(), `ALTER TABLE fences ADD CHECK (attempt < 2)`); err != nil {
					d.t.Error(err)
				}
			},
			want: 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			first := func(o carrier.Originate) error {
				tt.meanwhile(d, o.CallID)
				return refuse("normal_temporary_failure", "one")(o)
			}
			d.runUntil(&fakeCarrier{answers: []func(carrier.Originate) error{first, accept}}, func() error {
				if got := len(d.intents.publishedIntents()); got < 2 {
					return errors.New("the second trunk is not tried")
				}
				return nil
			})
			if got, want := len(d.intents.all), 2; got != want {
				t.Fatalf("intents = %d, want %d", got, want)
			}
			if got, want := d.intents.withdrawn, []uuid.UUID{d.intents.all[tt.want].CallID}; !slices.Equal(got, want) {
				t.Errorf("withdrawn calls = %v, want %v", got, want)
			}
		})
	}
}

// A call of this process has a fence but no running attempt. The reconciliation after a failover
// can insert such a call.
func TestReview_CallWithoutAnAttemptContinuesOnlyIfTheCarrierKnowsIt(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		known bool
		want  string
	}{
		{name: "the carrier finds the call", known: true, want: "initiated"},
		{name: "the carrier does not find the call", want: "fenced  dial_unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			d.reviewUntil(&fakeCarrier{knowsCalls: tt.known}, func() error {
				if got := d.calls(); !slices.Equal(got, []string{tt.want}) {
					return errors.New("the call is not resolved")
				}
				return nil
			})
		})
	}
}
