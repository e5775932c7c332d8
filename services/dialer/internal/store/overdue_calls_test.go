package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

func overdueInbound(workspace uuid.UUID) callstate.Call {
	ringing := time.Now().Add(-2 * time.Hour)
	answered := ringing.Add(time.Second)
	return callstate.Call{
		CallID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace, Direction: callstate.Inbound, From: "+14155550100",
		To: "+15005550006", AgentID: uuid.Must(uuid.NewV7()), Status: callstate.InProgress, RingingAt: &ringing,
		AnsweredAt: &answered, Version: 2,
	}
}

func TestEndOverdueCall_PublishesTheEndOfACallThatIsNotInProgress(t *testing.T) {
	t.Parallel()
	const insertRow = `INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status,
		ringing_at, answered_at, ended_at, hangup_cause, version, max_call_seconds, deadline_at)
		VALUES ($1, $2, 'inbound', '', '', $1, $3, now(), now(), $4, 'normal_clearing', 3, 600, now() + interval '1 hour')`
	reportedAt := time.Now()
	ago := func(d time.Duration) *time.Time { at := reportedAt.Add(-d); return &at }
	tests := []struct {
		name string
		// status is the status of the call's row. It is empty if the database has no row.
		status string
		ended  *time.Time
		// If moved is true, the database server is not reconciled.
		moved      bool
		want       dialqueue.Found
		wantStatus string // the status in the event, or "" if no event is published
		wantCause  string
	}{
		{name: "the call is unknown", want: dialqueue.Lost, wantStatus: "failed", wantCause: "unspecified"},
		{name: "the call is unknown, and the server is not reconciled", moved: true, want: dialqueue.Waiting},
		{name: "the call is live", status: "in_progress", want: dialqueue.Waiting},
		{name: "the call has just ended", status: "completed", ended: ago(time.Second), want: dialqueue.Waiting},
		{
			name: "the call has ended", status: "completed", ended: ago(time.Hour), want: dialqueue.Over,
			wantStatus: "completed", wantCause: "normal_clearing",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t)
			st, call := newStore(pool), overdueInbound(uuid.Must(uuid.NewV7()))
			if tt.status != "" {
				if _, err := pool.Exec(t.Context(), insertRow, call.CallID, call.WorkspaceID, tt.status, tt.ended); err != nil {
					t.Fatal(err)
				}
			}
			if tt.moved {
				st.UseServer("a server that is gone")
			}
			runTx(t, pool, func(tx pgx.Tx) error {
				found, err := st.EndOverdueCall(t.Context(), tx, call, reportedAt)
				if err == nil && found != tt.want {
					t.Errorf("EndOverdueCall = %s, want %s", found, tt.want)
				}
				return err
			})
			if tt.wantStatus != "" {
				checkPublishedEnd(t, pool, call.CallID, tt.wantStatus, tt.wantCause)
			} else if got := countRows(t, pool, `SELECT count(*) FROM outbox`); got != 0 {
				t.Errorf("published events = %d, want 0", got)
			}
		})
	}
}

// checkPublishedEnd checks the event `ended` of a call in the outbox.
func checkPublishedEnd(t *testing.T, pool *pgxpool.Pool, callID uuid.UUID, status, cause string) {
	t.Helper()
	var payload []byte
	const query = `SELECT payload FROM outbox WHERE key = convert_to($1::text, 'UTF8')`
	if err := pool.QueryRow(t.Context(), query, callID).Scan(&payload); err != nil {
		t.Fatalf("read the event of the call: %v", err)
	}
	var event eventv1.DialEvent
	if err := proto.Unmarshal(payload, &event); err != nil {
		t.Fatal(err)
	}
	if event.GetEnded() == nil {
		t.Errorf("event = %T, want ended", event.GetEvent())
	}
	if got := event.GetCall().GetStatus(); got != status {
		t.Errorf("status = %q, want %q", got, status)
	}
	if got := event.GetCall().GetHangupCause(); got != cause {
		t.Errorf("hangup cause = %q, want %q", got, cause)
	}
	if got := event.GetCall().GetBillableSeconds(); got != 0 {
		t.Errorf("billable seconds = %d, want 0", got)
	}
}

// A published end of the call would also end the open request.
func TestEndOverdueCall_WaitsForTheEndOfTheRequest(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	st, r := newStore(pool), aRequest(uuid.Must(uuid.NewV7()), 1)
	fenced(t, pool, st, r)
	other := overdueInbound(r.WorkspaceID)
	other.Direction, other.CallRequestID = callstate.Outbound, &r.CallRequestID
	for _, step := range []struct {
		state string
		ended *time.Time
		want  dialqueue.Found
	}{
		{state: "dialing", want: dialqueue.Waiting},
		{state: "ended", ended: other.AnsweredAt, want: dialqueue.Lost},
	} {
		const update = `UPDATE dial_queue SET state = $1, ended_at = $2`
		if _, err := pool.Exec(t.Context(), update, step.state, step.ended); err != nil {
			t.Fatal(err)
		}
		runTx(t, pool, func(tx pgx.Tx) error {
			found, err := st.EndOverdueCall(t.Context(), tx, other, time.Now())
			if err == nil && found != step.want {
				t.Errorf("%s: EndOverdueCall = %s, want %s", step.state, found, step.want)
			}
			return err
		})
	}
	const unknown = `SELECT count(*) FROM outbox WHERE position('dial_state_unknown'::bytea IN payload) > 0`
	if got := countRows(t, pool, unknown); got != 1 {
		t.Errorf("events with dial_state_unknown = %d, want 1", got)
	}
}
