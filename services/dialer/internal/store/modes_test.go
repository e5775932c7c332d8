package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// modes contains a live and a test workspace, and a store for each.
type modes struct {
	pool                 *pgxpool.Pool
	all, live, test      *store.Store
	liveID, testID       uuid.UUID
	liveAgent, testAgent uuid.UUID
}

func newModes(t *testing.T) modes {
	t.Helper()
	m := modes{pool: newPool(t), liveID: uuid.Must(uuid.NewV7()), testID: uuid.Must(uuid.NewV7()),
		liveAgent: uuid.Must(uuid.NewV7()), testAgent: uuid.Must(uuid.NewV7())}
	m.all = newStore(m.pool)
	m.live, m.test = m.all.Of(dialqueue.LiveMode), m.all.Of(dialqueue.TestMode)
	m.save(t, m.liveID, 1, false)
	m.save(t, m.testID, 1, true)
	for workspace, agent := range map[uuid.UUID]uuid.UUID{m.liveID: m.liveAgent, m.testID: m.testAgent} {
		if err := m.all.ApplyAgent(t.Context(), dialqueue.Agent{
			AgentID: agent, WorkspaceID: workspace, Version: 1, MaxCallSeconds: 60, Settings: []byte("{}"),
		}); err != nil {
			t.Fatal(err)
		}
	}
	m.reconcile(t)
	return m
}

func (m modes) save(t *testing.T, id uuid.UUID, version int64, test bool) {
	t.Helper()
	w := dialqueue.Workspace{WorkspaceID: id, Version: version, Status: "active", APIEnabled: true, MaxLiveCalls: 500,
		CallsPerSecond: 500, Test: test}
	if err := m.all.ApplyWorkspace(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

// reconcile marks the database server as reconciled, as it must be before the first dial.
func (m modes) reconcile(t *testing.T) {
	t.Helper()
	if _, err := m.pool.Exec(t.Context(), `INSERT INTO reconciled_servers (one, server, topic_id)
		VALUES (true, server_identity(), gen_random_uuid()) ON CONFLICT DO NOTHING`); err != nil {
		t.Fatal(err)
	}
}

func (m modes) number(t *testing.T, phone string, workspace, agent uuid.UUID) {
	t.Helper()
	n := dialqueue.Number{NumberID: uuid.Must(uuid.NewV7()), WorkspaceID: workspace, PhoneE164: phone, AgentID: agent}
	if err := m.all.AddNumber(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

func TestClaim_TakesOnlyRequestsInTheModeOfTheStore(t *testing.T) {
	t.Parallel()
	m := newModes(t)
	live, test := aRequest(m.liveID, 1), aRequest(m.testID, 2)
	enqueue(t, m.pool, m.all, live, test)
	for _, tt := range []struct {
		name  string
		store *store.Store
		want  uuid.UUID
	}{
		{name: "test", store: m.test, want: test.CallRequestID},
		{name: "live", store: m.live, want: live.CallRequestID},
	} {
		claimed := claimRequests(t, tt.store, 8)
		if len(claimed) != 1 {
			t.Fatalf("%s: claimed requests = %d, want 1", tt.name, len(claimed))
		}
		if claimed[0].CallRequestID != tt.want {
			t.Errorf("%s: claimed request = %s, want %s", tt.name, claimed[0].CallRequestID, tt.want)
		}
	}
}

func TestClaim_TestCallsUseNoCapacityOfTheTrunks(t *testing.T) {
	t.Parallel()
	m := newModes(t)
	enqueue(t, m.pool, m.all, aRequest(m.testID, 1), aRequest(m.testID, 2))
	if got := len(claimRequests(t, m.test, 8)); got != 2 {
		t.Fatalf("claimed test requests = %d, want 2", got)
	}
	enqueue(t, m.pool, m.all, aRequest(m.liveID, 3), aRequest(m.liveID, 4), aRequest(m.liveID, 5))
	small := ampleCapacity(8)
	small.Trunk, small.OfTrunk = "sip", dialqueue.Limit{Live: 2, PerSecond: 100}
	if got := len(claimAs(t, m.all, small).Requests); got != 0 {
		t.Errorf("requests claimed by a carrier of all workspaces, whose channels are in use = %d, want 0", got)
	}
	if got := len(claimAs(t, m.live, small).Requests); got == 0 {
		t.Error("requests claimed by the trunks, whose channels are free = 0, want at least 1")
	}
}

// A dialer of an earlier version does not know modes and would dial a test request over SIP. The
// database must reject its fence, so that it may not dial.
func TestFence_IsRejectedIfCarrierAndWorkspaceDifferInMode(t *testing.T) {
	t.Parallel()
	m := newModes(t)
	for i, tt := range []struct {
		name      string
		workspace uuid.UUID
		trunk     string
		want      error
	}{
		{name: "test workspace over SIP", workspace: m.testID, trunk: "sip", want: store.ErrLost},
		{name: "live workspace over the test carrier", workspace: m.liveID, trunk: "test", want: store.ErrLost},
		{name: "test workspace over the test carrier", workspace: m.testID, trunk: "test"},
		{name: "live workspace over SIP", workspace: m.liveID, trunk: "sip"},
		{name: "test workspace while every call is simulated", workspace: m.testID, trunk: "sim"},
		{name: "live workspace while every call is simulated", workspace: m.liveID, trunk: "sim"},
	} {
		r := aRequest(tt.workspace, i)
		enqueue(t, m.pool, m.all, r)
		claimed := claimRequests(t, m.all, 8)
		if len(claimed) != 1 {
			t.Fatalf("%s: claimed requests = %d, want 1", tt.name, len(claimed))
		}
		callID := uuid.Must(uuid.NewV7())
		err := m.all.Fence(t.Context(), claimed[0], callID, dialqueue.DefaultFrom, tt.trunk)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: Fence = %v, want %v", tt.name, err, tt.want)
		}
		stored := countRows(t, m.pool, `SELECT count(*) FROM fences WHERE call_request_id = $1`, r.CallRequestID)
		if want := map[bool]int{true: 1, false: 0}[tt.want == nil]; stored != want {
			t.Errorf("%s: fences = %d, want %d", tt.name, stored, want)
		}
		if tt.want != nil { // block the request, so that the claim of the next test case does not take it
			if err := m.all.Block(t.Context(), claimed[0], dialqueue.NoNumber()); err != nil {
				t.Errorf("%s: the request is not queued after the refused fence: %v", tt.name, err)
			}
		}
	}
}

func TestFence_RejectsADialOverSIPIfTheWorkspaceIsUnknown(t *testing.T) {
	t.Parallel()
	m := newModes(t)
	enqueue(t, m.pool, m.all, aRequest(m.liveID, 1))
	claimed := claimRequests(t, m.all, 8)
	if len(claimed) != 1 {
		t.Fatalf("claimed requests = %d, want 1", len(claimed))
	}
	if _, err := m.pool.Exec(t.Context(), `DELETE FROM workspaces WHERE workspace_id = $1`, m.liveID); err != nil {
		t.Fatal(err)
	}
	err := m.all.Fence(t.Context(), claimed[0], uuid.Must(uuid.NewV7()), dialqueue.DefaultFrom, "sip")
	if !errors.Is(err, store.ErrLost) {
		t.Errorf("Fence = %v, want %v", err, store.ErrLost)
	}
}

// The rejected fence of a test workspace must not delay the live fences of the same group.
func TestFences_RejectedFenceDoesNotAffectOtherFencesOfItsGroup(t *testing.T) {
	t.Parallel()
	m := newModes(t)
	enqueue(t, m.pool, m.all, aRequest(m.liveID, 1), aRequest(m.testID, 2), aRequest(m.liveID, 3))
	var group []store.Fence
	for _, r := range claimRequests(t, m.all, 8) {
		group = append(group, store.Fence{Request: r, CallID: uuid.Must(uuid.NewV7()), From: "+15005550006", Trunk: "sip"})
	}
	if len(group) != 3 {
		t.Fatalf("claimed requests = %d, want 3", len(group))
	}
	for i, err := range m.all.Fences(t.Context(), group) {
		var want error
		if group[i].Request.WorkspaceID == m.testID {
			want = store.ErrLost
		}
		if !errors.Is(err, want) {
			t.Errorf("fence of workspace %s = %v, want %v", group[i].Request.WorkspaceID, err, want)
		}
	}
}

// A failover can lose the fence of an intent. The reconciliation must settle every intent, even if
// an earlier version of the dialer published it and its fence was refused.
func TestSettleIntents_SettlesIntentsOverSIPOfATestWorkspace(t *testing.T) {
	t.Parallel()
	m := newModes(t)
	if _, err := m.pool.Exec(t.Context(), `DELETE FROM reconciled_servers`); err != nil {
		t.Fatal(err)
	}
	server, err := m.all.ServerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	intents := map[string]store.Intent{}
	for i, trunk := range []string{"sip", "test"} {
		r := aRequest(m.testID, i)
		enqueue(t, m.pool, m.all, r)
		intents[trunk] = store.Intent{
			CallRequestID: r.CallRequestID, WorkspaceID: m.testID, CallID: uuid.Must(uuid.NewV7()),
			InstanceID: uuid.Must(uuid.NewV7()), From: "+15005550006", To: string(r.To), Trunk: trunk, AgentID: r.AgentID,
			MaxCallSeconds: 60, At: time.Now(),
		}
	}
	settled, err := m.all.SettleIntents(t.Context(), server.Server, []store.Intent{intents["sip"], intents["test"]}, nil)
	if err != nil {
		t.Fatalf("SettleIntents = %v, want nil", err)
	}
	if settled.Failed != 2 {
		t.Errorf("settled.Failed = %d, want 2", settled.Failed)
	}
	due, err := m.all.DueHangups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[uuid.UUID]bool{}
	for _, h := range due {
		got[h.CallID] = h.Test
	}
	want := map[uuid.UUID]bool{intents["sip"].CallID: false, intents["test"].CallID: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls to hang up, and whether they are at the test carrier (-want +got):\n%s", diff)
	}
}

func TestSaveWorkspace_NeverChangesTheMode(t *testing.T) {
	t.Parallel()
	m := newModes(t)
	m.save(t, m.testID, 2, false) // an event of an earlier gateway version contains no mode
	m.save(t, m.liveID, 2, true)
	for id, want := range map[uuid.UUID]string{m.testID: "2 true", m.liveID: "2 false"} {
		var got string
		err := m.pool.QueryRow(t.Context(),
			`SELECT version || ' ' || test FROM workspaces WHERE workspace_id = $1`, id).Scan(&got)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("version and test = %s, want %s", got, want)
		}
	}
}

func TestArrival_IsAcceptedOnlyForNumbersInTheModeOfTheStore(t *testing.T) {
	t.Parallel()
	m := newModes(t)
	m.number(t, "+14155550001", m.liveID, m.liveAgent)
	m.number(t, "+14155550002", m.testID, m.testAgent)
	for _, tt := range []struct {
		name  string
		store *store.Store
		to    string
		want  bool
	}{
		{name: "phone to a live number", store: m.live, to: "+14155550001", want: true},
		{name: "phone to a test number", store: m.live, to: "+14155550002"},
		{name: "simulator to a live number", store: m.test, to: "+14155550001"},
		{name: "simulator to a test number", store: m.test, to: "+14155550002", want: true},
		{name: "every call is simulated, live number", store: m.all, to: "+14155550001", want: true},
		{name: "every call is simulated, test number", store: m.all, to: "+14155550002", want: true},
	} {
		served, err := tt.store.Serves(t.Context(), tt.to)
		if err != nil {
			t.Fatal(err)
		}
		if served != tt.want {
			t.Errorf("%s: Serves = %v, want %v", tt.name, served, tt.want)
		}
		id := uuid.Must(uuid.NewV7())
		var rows int
		err = tt.store.ApplyEvents(t.Context(), store.Events{
			Arrived: []store.Arrived{{CallID: id, From: "+14155550100", To: tt.to, RingingAt: time.Now()}},
			Calls:   []uuid.UUID{id},
			Fold: func(calls map[uuid.UUID]*callstate.Call, _ bool) (store.Folded, error) {
				rows = len(calls)
				return store.Folded{}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := rows == 1; got != tt.want {
			t.Errorf("%s: the call has a row = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The INSERT is the statement of an earlier dialer version, which knows no modes and answers calls
// over SIP.
func TestArrival_EarlierDialerVersionStoresNoCallOfATestWorkspace(t *testing.T) {
	t.Parallel()
	m := newModes(t)
	for workspace, want := range map[uuid.UUID]int{m.liveID: 1, m.testID: 0} {
		_, err := m.pool.Exec(t.Context(), `INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164,
			agent_id, status, ringing_at, max_call_seconds, deadline_at)
			VALUES (gen_random_uuid(), $1, 'inbound', '+14155550100', '+14155550001', gen_random_uuid(), 'ringing', now(), 60,
				now() + interval '1 hour')`, workspace)
		if err != nil {
			t.Fatal(err)
		}
		if got := countRows(t, m.pool, `SELECT count(*) FROM calls WHERE workspace_id = $1`, workspace); got != want {
			t.Errorf("calls of workspace %s = %d, want %d", workspace, got, want)
		}
	}
}

// An event of the simulator must not change a call over SIP, even if the event contains the id of
// that call.
func TestApplyEvents_SimulatorEventDoesNotChangeASIPCall(t *testing.T) {
	t.Parallel()
	m := newModes(t)
	r := aRequest(m.liveID, 1)
	enqueue(t, m.pool, m.all, r)
	callID := uuid.Must(uuid.NewV7())
	if err := m.live.Fence(t.Context(), claimRequests(t, m.live, 1)[0], callID, "+15005550006", "sip"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		store *store.Store
		want  int
	}{{name: "simulator", store: m.test, want: 0}, {name: "SIP", store: m.live, want: 1}} {
		seen := -1
		err := tt.store.ApplyEvents(t.Context(), store.Events{
			Calls: []uuid.UUID{callID},
			Fold: func(calls map[uuid.UUID]*callstate.Call, _ bool) (store.Folded, error) {
				seen = len(calls)
				return store.Folded{Orphans: []uuid.UUID{uuid.Must(uuid.NewV7())}}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if seen != tt.want {
			t.Errorf("%s: calls = %d, want %d", tt.name, seen, tt.want)
		}
		own, err := tt.store.OwnFences(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(own) != tt.want {
			t.Errorf("%s: own fences = %d, want %d", tt.name, len(own), tt.want)
		}
	}
	due, err := m.all.DueHangups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	orphans := map[bool]int{}
	for _, h := range due {
		if h.Orphan {
			orphans[h.Test]++
		}
	}
	if diff := cmp.Diff(map[bool]int{true: 1, false: 1}, orphans); diff != "" {
		t.Errorf("orphaned calls by carrier (-want +got):\n%s", diff)
	}
}

func TestFail_EndsAClaimedRequestOnce(t *testing.T) {
	t.Parallel()
	m := newModes(t)
	enqueue(t, m.pool, m.all, aRequest(m.testID, 1))
	claimed := claimRequests(t, m.test, 1)
	if len(claimed) != 1 {
		t.Fatalf("claimed requests = %d, want 1", len(claimed))
	}
	if err := m.test.Fail(t.Context(), claimed[0], dialqueue.NoTestCarrier()); err != nil {
		t.Fatalf("Fail = %v, want nil", err)
	}
	if err := m.test.Fail(t.Context(), claimed[0], dialqueue.NoTestCarrier()); !errors.Is(err, store.ErrLost) {
		t.Errorf("the second Fail = %v, want ErrLost", err)
	}
	var state string
	if err := m.pool.QueryRow(t.Context(), `SELECT state FROM dial_queue`).Scan(&state); err != nil {
		t.Fatal(err)
	}
	if state != string(dialqueue.Failed) {
		t.Errorf("state = %q, want failed", state)
	}
}
