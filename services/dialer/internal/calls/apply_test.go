package calls_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/calls"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
)

const lease = time.Minute

type fixture struct {
	t      *testing.T
	pool   *pgxpool.Pool
	store  *store.Store
	owner  *store.Legs
	callID uuid.UUID
	begun  time.Time
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	pool := pgtest.New(
		t,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
	d := &fixture{
		t: t, pool: pool, callID: uuid.Must(uuid.NewV7()), begun: time.Now().UTC().Truncate(time.Second),
		store: store.New(pool, uuid.New(), store.Timing{InstanceLease: lease, RingLimit: lease, WatchdogGrace: lease}),
		owner: store.NewLegs(pool, pool, uuid.New(), lease),
	}
	const fenced = `
		INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, status,
			max_call_seconds, deadline_at)
		VALUES ($1, $1, $1, 'outbound', '+15005550006', '+14155550101', $1, 'fenced', 600, now() + interval '1 hour')`
	d.exec(fenced, d.callID)
	leg := store.Leg{
		CallID: d.callID, TrunkID: uuid.New(), From: "+15005550006", To: "+14155550101", Teardown: []byte("state"),
		Attempt: store.TrunkAttempt{ID: uuid.New(), Trunk: "far", SIPCallID: "one"},
	}
	if err := d.owner.StoreOutbound(t.Context(), leg); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *fixture) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.pool.Exec(d.t.Context(), sql, args...); err != nil {
		d.t.Fatal(err)
	}
}

func (d *fixture) event(kind carrier.Kind, seconds int) carrier.Event {
	dialed := d.begun
	return carrier.Event{
		At: d.begun.Add(time.Duration(seconds) * time.Second), Kind: kind, CallID: d.callID, From: "+15005550006",
		To: "+14155550101", DialedAt: &dialed,
	}
}

func (d *fixture) ended(seconds int) carrier.Event {
	e := d.event(carrier.Ended, seconds)
	e.Cause, e.Outcome, e.Reached = callstate.NormalClearing, agent.OutcomeInterested, agent.ReachedHuman
	return e
}

func (d *fixture) utterance(text string, seconds int) carrier.Event {
	e := d.event(carrier.Utterance, seconds)
	e.Role, e.Text = agent.RolePerson, text
	return e
}

func (d *fixture) apply(guard store.Guard, events ...carrier.Event) error {
	return calls.NewApplier(d.store, nil, nil).Apply(d.t.Context(), guard, events)
}

type row struct {
	Status, Cause string
	Turns         int
	Ended         bool
	OptOuts       int
}

func (d *fixture) row() (r row) {
	d.t.Helper()
	const read = `
		SELECT status, hangup_cause, json_array_length(turns::json), ended_at IS NOT NULL, (SELECT count(*) FROM opt_outs)
		FROM calls WHERE call_id = $1`
	err := d.pool.QueryRow(d.t.Context(), read, d.callID).Scan(&r.Status, &r.Cause, &r.Turns, &r.Ended, &r.OptOuts)
	if err != nil {
		d.t.Fatal(err)
	}
	return r
}

func (d *fixture) events() []string {
	d.t.Helper()
	rows, err := d.pool.Query(d.t.Context(), "SELECT payload FROM outbox ORDER BY id")
	if err != nil {
		d.t.Fatal(err)
	}
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		d.t.Fatal(err)
	}
	var kinds []string
	for _, payload := range payloads {
		var event eventv1.DialEvent
		if err := proto.Unmarshal(payload, &event); err != nil {
			d.t.Fatal(err)
		}
		message := event.ProtoReflect()
		kinds = append(kinds, string(message.WhichOneof(message.Descriptor().Oneofs().ByName("event")).Name()))
	}
	return kinds
}

func TestApply_CommitsCallsAndOutboxTogether(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	answer := d.event(carrier.Answered, 2)
	steps := [][]carrier.Event{
		{d.event(carrier.Accepted, 0), d.event(carrier.Ringing, 1)},
		{answer},
	}
	guards := []store.Guard{d.owner.Guard(d.callID), d.owner.AnswerGuard(d.callID, answer.At)}
	for i, events := range steps {
		for range 2 { // the second run repeats a commit whose response was lost
			if err := d.apply(guards[i], events...); err != nil {
				t.Fatal(err)
			}
		}
	}
	end := store.End{At: d.begun.Add(5 * time.Second), Cause: callstate.NormalClearing}
	last := []carrier.Event{d.utterance("hello\x00", 3), d.utterance("bye", 4), d.ended(5)}
	if err := d.apply(d.owner.EndGuard(d.callID, end), last...); err != nil {
		t.Fatal(err)
	}
	if err := d.apply(d.owner.EndGuard(d.callID, end), last...); !errors.Is(err, store.ErrLost) {
		t.Errorf("Apply of the end again = %v, want ErrLost", err)
	}
	if diff := cmp.Diff(row{Status: "completed", Cause: "normal_clearing", Turns: 2, Ended: true}, d.row()); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"dialing", "ringing", "answered", "ended"}, d.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestApply_ProcessThatNoLongerOwnsTheCallStoresOnlyTheOptOut(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	answer := d.event(carrier.Answered, 1)
	if err := d.apply(d.owner.AnswerGuard(d.callID, answer.At), answer); err != nil {
		t.Fatal(err)
	}
	before := d.row()
	d.exec("UPDATE sip_legs SET owner = gen_random_uuid()")
	end := store.End{At: d.begun.Add(3 * time.Second), Cause: callstate.NormalClearing}
	for name, err := range map[string]error{
		"utterance":       d.apply(d.owner.Guard(d.callID), d.utterance("hello", 2)),
		"end of the call": d.apply(d.owner.EndGuard(d.callID, end), d.utterance("hello", 2), d.ended(3)),
	} {
		if !errors.Is(err, store.ErrLost) {
			t.Errorf("%s: Apply = %v, want ErrLost", name, err)
		}
	}
	if diff := cmp.Diff(before, d.row()); diff != "" {
		t.Errorf("call (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"dialing", "answered"}, d.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	optOut := d.event(carrier.OptedOut, 2)
	optOut.Text = "never again"
	if err := d.apply(nil, optOut); err != nil {
		t.Fatal(err)
	}
	if got := d.row().OptOuts; got != 1 {
		t.Errorf("opt-outs = %d, want 1", got)
	}
}

// A database server that is not reconciled can lack the rows of outbound calls, which the
// reconciliation inserts later. Only an opt-out must be stored immediately.
func TestApply_EventsOfMissingCallsWaitForTheReconciliation(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.store.UseServer("a server that is gone")
	if err := d.apply(d.owner.Guard(d.callID), d.event(carrier.Ringing, 1)); err != nil {
		t.Errorf("Apply to a call with a row = %v, want nil", err)
	}
	lost := d.event(carrier.Ringing, 1)
	lost.CallID = uuid.Must(uuid.NewV7())
	if err := d.apply(nil, lost); !errors.Is(err, store.ErrServerChanged) {
		t.Errorf("Apply to a call without a row = %v, want ErrServerChanged", err)
	}
	optOut := lost
	optOut.Kind, optOut.Text, optOut.WorkspaceID = carrier.OptedOut, "never again", uuid.New()
	if err := d.apply(nil, optOut); err != nil {
		t.Errorf("Apply of an opt-out without a row = %v, want nil", err)
	}
	if got := d.row().OptOuts; got != 1 {
		t.Errorf("opt-outs = %d, want 1", got)
	}
	optOut.WorkspaceID = uuid.Nil
	if err := d.apply(nil, optOut); !errors.Is(err, store.ErrLost) {
		t.Errorf("Apply of an opt-out without a row and a workspace = %v, want ErrLost", err)
	}
}

// The cause of the end event is possible only for answered calls, but there is no answer event.
func TestApply_QueriesTheCarrierForAMissingAnswer(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	asked := 0
	find := func(context.Context, uuid.UUID) (carrier.CallStatus, error) {
		asked++
		answered := d.begun.Add(time.Second)
		return carrier.CallStatus{DialedAt: &d.begun, AnsweredAt: &answered}, nil
	}
	err := calls.NewApplier(d.store, nil, find).Apply(t.Context(), nil, []carrier.Event{d.ended(3)})
	if err != nil {
		t.Fatal(err)
	}
	if asked != 1 {
		t.Errorf("Find requests = %d, want 1", asked)
	}
	if diff := cmp.Diff([]string{"dialing", "answered", "ended"}, d.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
