package dial_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/services/dialer/internal/calls"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dial"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/peers"
	"ringfence.dev/services/dialer/internal/store"
)

// fakeCarrier is a carrier without a network. Each call of Originate calls the next function in
// answers.
type fakeCarrier struct {
	carrier.Carrier
	mu          sync.Mutex
	answers     []func(carrier.Originate) error
	got         []carrier.Originate
	returnedAt  []time.Time
	unreachable bool
	knowsCalls  bool
}

func (c *fakeCarrier) Ready(context.Context) error {
	if c.unreachable {
		return errors.New("carrier unreachable")
	}
	return nil
}

func (*fakeCarrier) Name() string { return "sip" }

func (c *fakeCarrier) Find(context.Context, uuid.UUID) (carrier.CallStatus, error) {
	if c.knowsCalls {
		return carrier.CallStatus{}, nil
	}
	return carrier.CallStatus{}, carrier.ErrUnknownCall
}

func (c *fakeCarrier) Originate(_ context.Context, o carrier.Originate) (time.Time, error) {
	c.mu.Lock()
	c.got = append(c.got, o)
	originateErr := errors.New("no further originate was expected")
	if len(c.got) <= len(c.answers) {
		next, at := c.answers[len(c.got)-1], time.Now().UTC().Truncate(time.Microsecond)
		c.returnedAt = append(c.returnedAt, at)
		c.mu.Unlock()
		return at, next(o)
	}
	c.mu.Unlock()
	return time.Time{}, originateErr
}

func (c *fakeCarrier) originates() []carrier.Originate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got
}

// zone differs from the time zone of the called number.
const zone = "Asia/Tokyo"

// fakeGate permits every call until its method close is called.
type fakeGate struct {
	compliancev1.UnimplementedDialCheckServiceHandler
	mu         sync.Mutex
	closed     bool
	firstAsked time.Time
	checks     int
}

func (g *fakeGate) Check(
	context.Context,
	*connect.Request[compliancev1.CheckRequest],
) (*connect.Response[compliancev1.CheckResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.checks++
	if g.firstAsked.IsZero() {
		g.firstAsked = time.Now()
	}
	if g.closed {
		return connect.NewResponse(
			&compliancev1.CheckResponse{
				Result: &compliancev1.CheckResponse_Closed{
					Closed: &compliancev1.Closed{Code: "recipient_dnd", Message: "Do not."},
				},
			},
		), nil
	}
	return connect.NewResponse(
		&compliancev1.CheckResponse{Result: &compliancev1.CheckResponse_Open{Open: &compliancev1.Open{TimeZone: zone}}},
	), nil
}

type fixture struct {
	t          *testing.T
	pool       *pgxpool.Pool
	metrics    *prometheus.Registry
	gate       *fakeGate
	request    dialqueue.Request
	mayDial    func() bool
	reconciled func() bool
	intents    *recordedIntents
	// If ownCircuits is true, the dialer uses no circuit breaker for the carrier, as with the SIP
	// carrier.
	ownCircuits bool
	from        func(ctx context.Context, wanted string, without []string) (number, trunk string, err error)
	trunkDown   bool
	pauses      *dialqueue.PauseMonitor
	// attempts is the fixture's Limits.Attempts; 0 means 5.
	attempts int
}

func (d *fixture) store() *store.Store {
	return store.New(d.pool, uuid.Must(uuid.NewV7()), store.Timing{
		InstanceLease: time.Minute, ClaimLease: time.Minute, QueueLimit: time.Hour, CapacityLimit: time.Hour,
		RingLimit: time.Minute, WatchdogGrace: time.Minute,
	})
}

func (d *fixture) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.pool.Exec(context.Background(), sql, args...); err != nil {
		d.t.Error(err)
	}
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	now := time.Now()
	d := &fixture{
		t: t, pool: pgtest.New(t, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer",
			FS: store.Migrations}), gate: &fakeGate{}, metrics: prometheus.NewRegistry(), intents: &recordedIntents{},
		request: dialqueue.Request{
			CallRequestID: uuid.Must(
				uuid.NewV7(),
			), WorkspaceID: uuid.Must(uuid.NewV7()), To: "+14155550101", AgentID: uuid.Must(uuid.NewV7()),
			MaxCallSeconds: 600, QueuedAt: &now, DueAt: now.Add(-time.Second),
		},
	}
	d.exec(
		`INSERT INTO workspaces (workspace_id, version, status, api_enabled, max_live_calls, calls_per_second, destinations)
			VALUES ($1, 1, 'active', true, 10, 10, '{}')`,
		d.request.WorkspaceID,
	)
	d.exec(
		`INSERT INTO agents (agent_id, workspace_id, version, name, from_e164, max_call_seconds, settings, deleted) VALUES
			($1, $2, 1, 'Ida', '', 600, '{}', false)`,
		d.request.AgentID,
		d.request.WorkspaceID,
	)
	err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
		_, err := d.store().Enqueue(t.Context(), tx, d.request)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// dialAll runs the dialer until every function in answers was called and the last attempt has
// ended.
func (d *fixture) dialAll(trunk *fakeCarrier) {
	d.t.Helper()
	d.runUntil(trunk, func() error {
		if got, want := len(trunk.originates()), len(trunk.answers); got < want {
			return fmt.Errorf("originates = %d, want %d", got, want)
		}
		return nil
	})
}

// runUntil runs the dialer until check returns nil and the last attempt has ended.
func (d *fixture) runUntil(trunk *fakeCarrier, check func() error) {
	d.t.Helper()
	d.runDialer(trunk, check, func(dialer *dial.Dialer, _ *store.Store) func(context.Context) error { return dialer.Run })
}

// reviewUntil runs Review until check returns nil. This process owns one call with a committed
// fence and without an attempt.
func (d *fixture) reviewUntil(trunk *fakeCarrier, check func() error) {
	d.t.Helper()
	d.runDialer(trunk, check, func(dialer *dial.Dialer, st *store.Store) func(context.Context) error {
		callID := uuid.Must(uuid.NewV7())
		d.exec(`UPDATE dial_queue SET state = 'dialing'`)
		d.exec(
			`INSERT INTO fences (call_id, call_request_id, attempt, trunk, instance_id) VALUES ($1, $2, 1, 'sip', $3)`,
			callID,
			d.request.CallRequestID,
			st.Instance(),
		)
		d.exec(
			`INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, status,
			max_call_seconds, deadline_at, owner) SELECT $1, call_request_id, workspace_id, 'outbound', '', to_e164, agent_id,
			'fenced', 600, now() + interval '1 hour', $2 FROM dial_queue`,
			callID,
			st.Instance(),
		)
		return dialer.Review
	})
}

func (d *fixture) runDialer(
	trunk *fakeCarrier, check func() error, work func(*dial.Dialer, *store.Store) func(context.Context) error,
) {
	t := d.t
	t.Helper()
	_, handler := compliancev1.NewDialCheckServiceHandler(d.gate)
	server := httptest.NewServer(handler)
	defer server.Close()
	seed := make([]byte, 32)
	_, _ = rand.Read(seed)
	keys, err := serviceauth.New("dialer", serviceauth.Config{SigningKey: base64.StdEncoding.EncodeToString(seed)})
	if err != nil {
		t.Fatal(err)
	}
	contacts, err := peers.New(server.URL, keys)
	if err != nil {
		t.Fatal(err)
	}
	st := d.store()
	heartbeat := calls.NewHeartbeat(st, time.Minute)
	if err := heartbeat.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	limit := dialqueue.Limit{Live: 10, PerSecond: 10}
	ofTrunk := limit
	if d.trunkDown {
		ofTrunk = dialqueue.Limit{}
	}
	failures := 5
	if d.ownCircuits {
		failures = 0
	}
	dialer := dial.New(st, contacts, trunk, nil, heartbeat, d.intents, dial.Limits{
		Attempts: cmp.Or(d.attempts, 5), Overall: limit,
		OfTrunk:  func(context.Context) (dialqueue.Limit, error) { return ofTrunk, nil },
		Failures: failures, CircuitRest: time.Second, From: d.from, MayDial: d.mayDial, Reconciled: d.reconciled,
		Pauses: d.pauses,
	}, d.metrics)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	run := work(dialer, st)
	go func() { done <- run(ctx) }()
	testkit.NoError(t, check)
	stop() // after stop, Run still waits for the attempts in progress
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// calls returns the status, cause and ending of each call, in the order of the fences.
func (d *fixture) calls() (calls []string) {
	d.t.Helper()
	rows, err := d.pool.Query(
		d.t.Context(),
		`SELECT trim(c.status || ' ' || c.hangup_cause || ' ' || c.ending) FROM fences f JOIN calls c USING (call_id) ORDER
			BY f.attempt`,
	)
	if err == nil {
		calls, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return calls
}

func (d *fixture) state() (state string, inUse, events int) {
	d.t.Helper()
	err := d.pool.QueryRow(d.t.Context(), `SELECT state, (SELECT count(*) FROM dial_queue
		WHERE state = 'dialing' OR state = 'queued' AND claimed_by IS NOT NULL AND look_at > now()),
		(SELECT count(*) FROM outbox) FROM dial_queue`).Scan(&state, &inUse, &events)
	if err != nil {
		d.t.Fatal(err)
	}
	return state, inUse, events
}

func accept(carrier.Originate) error { return nil }

func refuse(cause callstate.Cause, by string) func(carrier.Originate) error {
	return func(carrier.Originate) error {
		return &carrier.Refused{Cause: cause, RefusedBy: by, Err: errors.New("no")}
	}
}

func notSent(carrier.Originate) error {
	return &carrier.Refused{Cause: callstate.NetworkOutOfOrder, NotSent: true, Err: errors.New("full")}
}

// dialed_at must be the time of the first INVITE to the trunk whose response is the result. If no
// INVITE was sent to the second trunk, the result is the first trunk's response.
func TestTryNextTrunk_StoresTheDialTimeOfTheTrunkThatResponded(t *testing.T) {
	t.Parallel()
	busy := refuse(callstate.NormalTemporaryFailure, "one")
	for name, tt := range map[string]struct {
		answers []func(carrier.Originate) error
		trunk   int
	}{
		"the second trunk takes it": {answers: []func(carrier.Originate) error{busy, accept}, trunk: 1},
		"the second trunk refuses the call": {answers: []func(carrier.Originate) error{busy, refuse(callstate.UserBusy, "")},
			trunk: 1},
		"no INVITE to the second trunk is sent": {answers: []func(carrier.Originate) error{busy, notSent}, trunk: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, over := newFixture(t), &fakeCarrier{answers: tt.answers}
			d.dialAll(over)
			var got time.Time
			const query = `SELECT dialed_at FROM calls WHERE status <> 'void'`
			if err := d.pool.QueryRow(t.Context(), query).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if want := over.returnedAt[tt.trunk]; !got.Equal(want) {
				t.Errorf("dialed_at = %v, want %v; times of the dials: %v", got, want, over.returnedAt)
			}
		})
	}
}

// The dialer may try the next trunk only while this process owns the first call and the request may
// still be dialed.
func TestTryNextTrunk_EachTrunkGetsItsOwnFence(t *testing.T) {
	t.Parallel()
	busy := refuse(callstate.NormalTemporaryFailure, "one")
	for _, tt := range []struct {
		name    string
		answers func(d *fixture) []func(carrier.Originate) error
		calls   []string
		state   string
		inUse   int
		events  int
	}{
		{"the second trunk takes it",
			func(*fixture) []func(carrier.Originate) error { return []func(carrier.Originate) error{busy, accept} }, []string{"void", "initiated"}, "dialing", 1, 2},
		{"the third trunk accepts the call", func(*fixture) []func(carrier.Originate) error {
			return []func(carrier.Originate) error{busy, refuse(callstate.CallRejected, "two"), accept}
		}, []string{"void", "void", "initiated"}, "dialing", 1, 2},
		{"the last trunk refuses the call too", func(*fixture) []func(carrier.Originate) error {
			return []func(carrier.Originate) error{busy, refuse(callstate.UnallocatedNumber, "")}
		}, []string{"void", "failed unallocated_number"}, "ended", 0, 3},
		{"no INVITE to the second trunk is sent",
			func(*fixture) []func(carrier.Originate) error { return []func(carrier.Originate) error{busy, notSent} },
			[]string{"void", "failed normal_temporary_failure"}, "ended", 0, 3},
		{"the second trunk does not respond", func(*fixture) []func(carrier.Originate) error {
			return []func(carrier.Originate) error{busy, func(carrier.Originate) error { return errors.New("no answer") }}
		}, []string{"void", "fenced  dial_unknown"}, "dialing", 1, 1},
		{"another process took over the first call", func(d *fixture) []func(carrier.Originate) error {
			return []func(carrier.Originate) error{func(o carrier.Originate) error {
				d.exec(`UPDATE calls SET owner = gen_random_uuid(), ending = 'recovery' WHERE call_id = $1`, o.CallID)
				return busy(o)
			}}
		}, []string{"failed normal_temporary_failure recovery"}, "ended", 0, 3},
		{"the person opts out during the first attempt", func(d *fixture) []func(carrier.Originate) error {
			return []func(carrier.Originate) error{func(o carrier.Originate) error {
				d.exec(`INSERT INTO opt_outs (call_id, workspace_id, phone_e164, evidence, heard_at) VALUES (gen_random_uuid(), $1,
					$2, 'stop', now())`, d.request.WorkspaceID, string(d.request.To))
				return busy(o)
			}}
		}, []string{"failed normal_temporary_failure"}, "ended", 0, 3},
		{"the gates refuse after the first attempt", func(d *fixture) []func(carrier.Originate) error {
			return []func(carrier.Originate) error{func(o carrier.Originate) error {
				d.gate.mu.Lock()
				d.gate.closed = true
				d.gate.mu.Unlock()
				<-time.After(2100 * time.Millisecond) // the result of the gates is valid for 2 s
				return busy(o)
			}}
		}, []string{"failed normal_temporary_failure"}, "ended", 0, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			over := &fakeCarrier{answers: tt.answers(d)}
			d.dialAll(over)
			if got := d.calls(); !slices.Equal(got, tt.calls) {
				t.Errorf("calls = %q, want %q", got, tt.calls)
			}
			switch state, inUse, events := d.state(); {
			case state != tt.state:
				t.Errorf("state = %v, want %v", state, tt.state)
			case inUse != tt.inUse:
				t.Errorf("requests in use = %d, want %d", inUse, tt.inUse)
			case events != tt.events:
				t.Errorf("events in the outbox = %d, want %d", events, tt.events)
			}
			var otherZone int
			if err := d.pool.QueryRow(t.Context(), "SELECT count(*) FROM calls WHERE time_zone <> $1",
				zone).Scan(&otherZone); err != nil {
				t.Errorf("QueryRow: %v", err)
			} else if otherZone > 0 {
				t.Errorf("calls in another time zone = %d, want 0", otherZone)
			}
			asked, seen := over.originates(), map[uuid.UUID]bool{}
			for i, o := range asked {
				switch {
				case seen[o.CallID]:
					t.Errorf("originate %d has the call id of an earlier one", i)
				case len(o.ExcludeTrunks) != i:
					t.Errorf("number of excluded trunks = %d, want %v", len(o.ExcludeTrunks), i)
				case phone.Number(o.To) != d.request.To:
					t.Errorf("To = %v, want %v", phone.Number(o.To), d.request.To)
				}
				seen[o.CallID] = true
			}
			if len(asked) != len(over.answers) {
				t.Errorf("originates = %d, want %d", len(asked), len(over.answers))
			}
		})
	}
}
