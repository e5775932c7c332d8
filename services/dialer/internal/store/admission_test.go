package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// inboundTenant is a workspace with an agent and a number.
type inboundTenant struct {
	*testing.T
	pool             *pgxpool.Pool
	store            *store.Store
	workspace, agent uuid.UUID
	number           string
	version          int64
}

func newInboundTenant(t *testing.T, pool *pgxpool.Pool, number string, settings *dialqueue.Inbound) *inboundTenant {
	t.Helper()
	w := &inboundTenant{
		T: t, pool: pool, store: newStore(pool), workspace: uuid.New(), agent: uuid.New(), number: number,
	}
	w.apply(settings)
	err := w.store.ApplyAgent(t.Context(), dialqueue.Agent{
		AgentID: w.agent, WorkspaceID: w.workspace, Version: 1, Name: "Ada", MaxCallSeconds: 60, Settings: []byte("{}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	const insert = "INSERT INTO numbers (number_id, workspace_id, phone_e164, agent_id) VALUES ($1, $2, $3, $4)"
	if _, err := pool.Exec(t.Context(), insert, uuid.New(), w.workspace, number, w.agent); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *inboundTenant) apply(settings *dialqueue.Inbound) {
	w.Helper()
	w.version++
	err := w.store.ApplyWorkspace(w.Context(), dialqueue.Workspace{
		WorkspaceID: w.workspace, Version: w.version, Status: "active", APIEnabled: true, MaxLiveCalls: 10,
		CallsPerSecond: 10, Inbound: settings,
	})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *inboundTenant) arrive() uuid.UUID {
	w.Helper()
	id := uuid.Must(uuid.NewV7())
	err := w.store.ApplyEvents(w.Context(), store.Events{
		Calls:   []uuid.UUID{id},
		Arrived: []store.Arrived{{CallID: id, From: "+14155550199", To: w.number, RingingAt: time.Now()}},
		Fold: func(map[uuid.UUID]*callstate.Call, bool) (store.Folded, error) {
			return store.Folded{}, nil
		},
	})
	if err != nil {
		w.Fatal(err)
	}
	return id
}

func (w *inboundTenant) admit(id uuid.UUID) store.Admission {
	w.Helper()
	a, live, err := w.store.Admit(w.Context(), w.workspace, id, func(c *callstate.Call) { c.Arrive() })
	if err != nil {
		w.Fatal(err)
	}
	if !live {
		w.Fatalf("call %s is not live", id)
	}
	return a
}

func (w *inboundTenant) change(id uuid.UUID, change func(*callstate.Call)) {
	w.Helper()
	err := w.store.Change(w.Context(), []uuid.UUID{id}, func(calls map[uuid.UUID]*callstate.Call) { change(calls[id]) })
	if err != nil {
		w.Fatal(err)
	}
}

func TestAdmit_LimitsTheCallsOfOneWorkspace(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	settings := &dialqueue.Inbound{IncrementSeconds: 1, MaxConcurrent: 2, MaxCallSeconds: 30}
	w := newInboundTenant(t, pool, "+14155550171", settings)
	other := newInboundTenant(t, pool, "+14155550172", nil)
	first, second, third := w.arrive(), w.arrive(), w.arrive()
	for _, id := range []uuid.UUID{first, second, first} { // an admission can be repeated
		if w.admit(id).Refused {
			t.Errorf("call %s was refused below the limit", id)
		}
	}
	if !w.admit(third).Refused {
		t.Error("the third call was admitted")
	}
	if _, live, err := w.store.Admit(t.Context(), w.workspace, third, func(*callstate.Call) {}); err != nil {
		t.Errorf("Admit of a refused call: %v", err)
	} else if live {
		t.Error("a refused call is admitted again")
	}
	if other.admit(other.arrive()).Refused {
		t.Error("the limit of another workspace refused a call")
	}
	w.change(first, func(c *callstate.Call) {
		c.End(callstate.End{At: time.Now(), Cause: callstate.OriginatorCancel})
	})
	if w.admit(w.arrive()).Refused {
		t.Error("a call was refused after another call had ended")
	}
	w.change(second, func(c *callstate.Call) { c.Refuse() }) // refused after its admission, for example for lack of credit
	if w.admit(w.arrive()).Refused {
		t.Error("a refused call counts")
	}
}

func TestAdmit_ConcurrentCallsDoNotExceedTheLimit(t *testing.T) {
	t.Parallel()
	const limit, calls = 3, 12
	pool := newPool(t)
	w := newInboundTenant(t, pool, "+14155550171",
		&dialqueue.Inbound{IncrementSeconds: 1, MaxConcurrent: limit, MaxCallSeconds: 30})
	var group sync.WaitGroup
	admitted := make(chan bool, calls)
	for range calls {
		id := w.arrive()
		group.Go(func() {
			a, _, err := w.store.Admit(t.Context(), w.workspace, id, func(c *callstate.Call) { c.Arrive() })
			if err != nil {
				t.Errorf("Admit: %v", err)
			}
			admitted <- !a.Refused
		})
	}
	group.Wait()
	close(admitted)
	n := 0
	for one := range admitted {
		if one {
			n++
		}
	}
	if n != limit {
		t.Errorf("admitted calls = %d, want %d", n, limit)
	}
}

func TestAdmit_ReturnsThePriceAndTheMaximumDuration(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		settings *dialqueue.Inbound
		want     store.Admission
	}{
		{name: "no settings", want: store.Admission{IncrementSeconds: 1, MaxCallSeconds: 60}},
		{
			name:     "the workspace limits the call",
			settings: &dialqueue.Inbound{PerMinute: 20_000, IncrementSeconds: 6, MaxConcurrent: 1, MaxCallSeconds: 30},
			want:     store.Admission{Priced: true, PerMinute: 20_000, IncrementSeconds: 6, MaxCallSeconds: 30},
		},
		{
			name:     "the agent limits the call",
			settings: &dialqueue.Inbound{PerMinute: 20_000, IncrementSeconds: 6, MaxConcurrent: 1, MaxCallSeconds: 3600},
			want:     store.Admission{Priced: true, PerMinute: 20_000, IncrementSeconds: 6, MaxCallSeconds: 60},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newInboundTenant(t, newPool(t), "+14155550171", tt.settings)
			if got := w.admit(w.arrive()); got != tt.want {
				t.Errorf("Admit = %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A gateway of an earlier version publishes the workspace without its inbound settings.
func TestSaveWorkspace_EventWithoutInboundSettingsKeepsTheStoredOnes(t *testing.T) {
	t.Parallel()
	settings := dialqueue.Inbound{PerMinute: 20_000, IncrementSeconds: 6, MaxConcurrent: 1, MaxCallSeconds: 30}
	w := newInboundTenant(t, newPool(t), "+14155550171", nil)
	read := func() (stored dialqueue.Inbound) {
		t.Helper()
		const query = `SELECT inbound_per_minute_micro, inbound_increment_seconds, inbound_max_concurrent,
			inbound_max_call_seconds FROM workspaces WHERE workspace_id = $1`
		err := w.pool.QueryRow(t.Context(), query, w.workspace).Scan(&stored.PerMinute, &stored.IncrementSeconds,
			&stored.MaxConcurrent, &stored.MaxCallSeconds)
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	if got := read(); got != dialqueue.DefaultInbound() {
		t.Errorf("settings of a new workspace = %+v, want the defaults", got)
	}
	w.apply(&settings)
	w.apply(nil)
	if got := read(); got != settings {
		t.Errorf("settings = %+v, want %+v", got, settings)
	}
}

func TestReportInbound_PublishesAnEventForEndedAndUnknownCalls(t *testing.T) {
	t.Parallel()
	w := newInboundTenant(t, newPool(t), "+14155550171", nil)
	live, over := w.arrive(), w.arrive()
	w.change(over, func(c *callstate.Call) {
		c.Answer(time.Now())
		c.End(callstate.End{At: time.Now().Add(time.Minute), Cause: callstate.NormalClearing})
	})
	if _, err := w.pool.Exec(t.Context(), "DELETE FROM outbox"); err != nil {
		t.Fatal(err)
	}
	report := func(workspace, id uuid.UUID) *eventv1.DialEvent {
		t.Helper()
		var reported bool
		err := pg.InTx(t.Context(), w.pool, func(tx pgx.Tx) (err error) {
			reported, err = w.store.ReportInbound(t.Context(), tx, workspace, id)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var payload []byte
		const query = "DELETE FROM outbox WHERE convert_from(key, 'UTF8') = $1 RETURNING payload"
		if err := w.pool.QueryRow(t.Context(), query, id.String()).Scan(&payload); (err == nil) != reported {
			t.Fatalf("reported = %t, outbox: %v", reported, err)
		}
		var event eventv1.DialEvent
		if err := proto.Unmarshal(payload, &event); err != nil {
			t.Fatal(err)
		}
		return &event
	}
	if got := report(w.workspace, live); got.GetEvent() != nil {
		t.Errorf("event of a live call = %v, want none", got)
	}
	ended := report(w.workspace, over)
	if ended.GetEnded() == nil {
		t.Errorf("event of an ended call = %v, want ended", ended)
	}
	if !ended.GetCall().GetPriced() {
		t.Error("the end of a call with a hold does not state that the call has a price")
	}
	if got := ended.GetCall().GetBillableSeconds(); got < 60 {
		t.Errorf("billable seconds = %d, want a minute", got)
	}
	// A call of another workspace is unknown.
	for _, id := range []uuid.UUID{uuid.New(), over} {
		if got := report(uuid.New(), id).GetCallUnknown().GetCallId(); got != id.String() {
			t.Errorf("call_id of the unknown call = %q, want %s", got, id)
		}
	}
}

func (w *inboundTenant) due(st *store.Store, priced bool, limit int) (ids []uuid.UUID) {
	w.Helper()
	due, err := st.DueAnswers(w.Context(), priced, limit)
	if err != nil {
		w.Fatal(err)
	}
	for _, arrival := range due {
		ids = append(ids, arrival.CallID)
	}
	return ids
}

func TestDueAnswers_ClaimsANewCallBeforeAWaitingCall(t *testing.T) {
	t.Parallel()
	price := dialqueue.Inbound{PerMinute: 20_000, IncrementSeconds: 1, MaxConcurrent: 9, MaxCallSeconds: 60}
	w := newInboundTenant(t, newPool(t), "+14155550171", &price)
	waiting, next := w.arrive(), w.arrive()
	w.admit(waiting) // its hold did not succeed
	free := price
	free.PerMinute = 0
	w.apply(&free)
	unpriced := w.arrive()
	for _, step := range []struct {
		name   string
		priced bool
		limit  int
		want   []uuid.UUID
	}{
		{name: "the new call", priced: true, limit: 1, want: []uuid.UUID{next}},
		{name: "the waiting call", priced: true, limit: 9, want: []uuid.UUID{waiting}},
		{name: "the call without a price", limit: 9, want: []uuid.UUID{unpriced}},
		{name: "no call is claimed twice", priced: true, limit: 9},
	} {
		if diff := cmp.Diff(step.want, w.due(w.store, step.priced, step.limit)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// A process claims a call, but another process claims the call before the first process has the
// response of billing-wallet. The second process can have answered the call.
func TestRefuseOwned_HasNoEffectAfterAnotherProcessClaimedTheCall(t *testing.T) {
	t.Parallel()
	settings := &dialqueue.Inbound{PerMinute: 20_000, IncrementSeconds: 1, MaxConcurrent: 9, MaxCallSeconds: 60}
	w := newInboundTenant(t, newPool(t), "+14155550171", settings)
	other, id := newStore(w.pool), w.arrive()
	refuse := func(st *store.Store, want bool) {
		t.Helper()
		refused, err := st.RefuseOwned(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if refused != want {
			t.Errorf("refused = %t, want %t", refused, want)
		}
	}
	w.due(w.store, true, 1)
	exec(t, w.pool, "UPDATE calls SET answer_at = now()")
	if got := w.due(other, true, 1); len(got) != 1 {
		t.Fatalf("calls that the other process claimed = %v, want one", got)
	}
	refuse(w.store, false)
	if got := endingOf(t, w.pool, id); got != callstate.EndingNone {
		t.Errorf("ending = %q, want none", got)
	}
	refuse(other, true)
	if got := endingOf(t, w.pool, id); got != callstate.EndingBusy {
		t.Errorf("ending = %q, want busy", got)
	}
}

// A consumer reports several calls in one transaction, in the order of their records. Another
// transaction can have locked the same calls in another order.
func TestReportInbound_DoesNotWaitForALockedCall(t *testing.T) {
	t.Parallel()
	w := newInboundTenant(t, newPool(t), "+14155550171", nil)
	id := w.arrive()
	w.change(id, func(c *callstate.Call) { c.End(callstate.End{At: time.Now(), Cause: callstate.OriginatorCancel}) })
	runTx(t, w.pool, func(locks pgx.Tx) error {
		if _, err := locks.Exec(t.Context(), "SELECT FROM calls WHERE call_id = $1 FOR UPDATE", id); err != nil {
			return err
		}
		return pg.InTx(t.Context(), w.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL lock_timeout = '1s'"); err != nil {
				return err
			}
			reported, err := w.store.ReportInbound(t.Context(), tx, w.workspace, id)
			if err == nil && !reported {
				t.Error("the end of the call was not published")
			}
			return err
		})
	})
}
