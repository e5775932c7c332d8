package rejoining_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store/past"
)

// lives has the older database know of a call that has not ended there.
func (r *restored) lives(id, call uuid.UUID, to, status string, dialled time.Time) {
	r.Helper()
	err := past.New(r.pool).Settle(r.Context(), []past.Told{{RequestID: id, WorkspaceID: r.workspace, State: request.Dialing,
		Call: &past.Call{ID: call, AgentID: uuid.New(), To: to, Status: status, DialedAt: &dialled}}})
	if err != nil {
		r.Fatal(err)
	}
}

func (r *restored) status(call uuid.UUID) (status string) {
	r.Helper()
	if err := r.pool.QueryRow(r.Context(), `SELECT trim(status || ' ' || error_code) FROM calls WHERE call_id = $1`, call).Scan(&status); err != nil {
		r.Errorf("call %s: %v", call, err)
	}
	return status
}

// TestAwait_ANumberHasOneLiveCall: what was told says that a call lives, or has ended, whose number is in another call as far as the older database knows. That one was over by then: a try
// that a trunk refused before anything rang, whose place the next try took, or the call of another request, whose end no fact told. The hold ends all the same.
func TestAwait_ANumberHasOneLiveCall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, told string
		// same: the call that lives in the database is of the same request; status is its own there.
		same   bool
		status string
		since  time.Duration
		// before and after are what becomes of it, and of the one that was told; state is that of the told one's request, facts how many are told of the other.
		before, after, state string
		facts                int
	}{
		{"the next try of a request that a trunk refused", "ringing", true, "fenced", time.Minute, "void", "ringing", "dialing", 0},
		{"the next try, which has ended", "completed", true, "fenced", time.Minute, "void", "completed", "ended", 0},
		{"the call of another request", "ringing", false, "ringing", time.Minute, "failed dial_state_unknown", "ringing", "dialing", 1},
		{"the call of another request, dialled later", "ringing", false, "ringing", -time.Minute, "ringing", "", "failed", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, id, before, after := newRestored(t), uuid.New(), uuid.New(), uuid.New()
			r.order(id)
			event, of := called(id, after, tt.told, 2), id
			if !tt.same {
				of = uuid.New()
				r.order(of)
			}
			r.lives(of, before, event.GetCall().GetToE164(), tt.status, time.Now().Add(-tt.since))
			r.told(event)
			if err := r.awaitFor(20 * time.Second); err != nil {
				t.Fatalf("the hold does not end: %v", err)
			}
			if got := r.status(before); got != tt.before {
				t.Errorf("the call that lived is %q, want %q", got, tt.before)
			}
			if tt.after != "" {
				if got := r.status(after); got != tt.after {
					t.Errorf("the call that was told is %q, want %q", got, tt.after)
				}
			}
			if state, _ := r.state(id); state != tt.state {
				t.Errorf("its request is %s, want %s", state, tt.state)
			}
			var facts int
			if err := r.pool.QueryRow(t.Context(), `SELECT count(*) FROM outbox WHERE key = convert_to($1, 'UTF8')`,
				of.String()).Scan(&facts); err != nil {
				t.Errorf("QueryRow: %v", err)
			} else if facts != tt.facts {
				t.Errorf("facts = %v, want %v", facts, tt.facts)
			}
			if r.order(id) {
				t.Error("what was dialled was queued when it came again")
			}
		})
	}
}
