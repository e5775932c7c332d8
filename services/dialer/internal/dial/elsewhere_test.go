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

// trunks answer the originates of one request, one after the other.
type trunks struct {
	carrier.Carrier
	mu   sync.Mutex
	says []func(carrier.Originate) error
	got  []carrier.Originate
	// at has the times that Originate returned.
	at []time.Time
	// away: the carrier cannot be reached.
	away bool
	// knows: the carrier has every call.
	knows bool
}

func (c *trunks) Ready(context.Context) error {
	if c.away {
		return errors.New("the carrier is away")
	}
	return nil
}

func (*trunks) Name() string { return "sip" }

func (c *trunks) Find(context.Context, uuid.UUID) (carrier.CallStatus, error) {
	if c.knows {
		return carrier.CallStatus{}, nil
	}
	return carrier.CallStatus{}, carrier.ErrUnknownCall
}

func (c *trunks) Originate(_ context.Context, o carrier.Originate) (time.Time, error) {
	c.mu.Lock()
	c.got = append(c.got, o)
	said := errors.New("no further originate was expected")
	if len(c.got) <= len(c.says) {
		next, at := c.says[len(c.got)-1], time.Now().UTC().Truncate(time.Microsecond)
		c.at = append(c.at, at)
		c.mu.Unlock()
		return at, next(o)
	}
	c.mu.Unlock()
	return time.Time{}, said
}

// asked are the originates so far.
func (c *trunks) asked() []carrier.Originate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got
}

// zone is where the person is, who has no number to tell it by.
const zone = "Asia/Tokyo"

// door is the gate of contacts-compliance, which is open or closed.
type door struct {
	compliancev1.UnimplementedDialCheckServiceHandler
	mu     sync.Mutex
	closed bool
	// asked is when it was asked first.
	asked time.Time
	// questions is how often it was asked.
	questions int
}

func (g *door) Check(context.Context, *connect.Request[compliancev1.CheckRequest]) (*connect.Response[compliancev1.CheckResponse], error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.questions++
	if g.asked.IsZero() {
		g.asked = time.Now()
	}
	if g.closed {
		return connect.NewResponse(&compliancev1.CheckResponse{Result: &compliancev1.CheckResponse_Closed{Closed: &compliancev1.Closed{Code: "recipient_dnd", Message: "Do not."}}}), nil
	}
	return connect.NewResponse(&compliancev1.CheckResponse{Result: &compliancev1.CheckResponse_Open{Open: &compliancev1.Open{TimeZone: zone}}}), nil
}

// desk is a database with one request, and a gate.
type desk struct {
	t       *testing.T
	pool    *pgxpool.Pool
	metrics *prometheus.Registry
	gate    *door
	request dialqueue.Request
	// mayDial is the dialer's limit of that name.
	mayDial func() bool
	// reconciled is the dialer's limit of that name.
	reconciled func() bool
	// intents has what was published.
	intents *journal
	// ownCircuits: the carrier has its own circuits.
	ownCircuits bool
	// from chooses the number and the trunk; nil: the carrier does.
	from func(ctx context.Context, wanted string, without []string) (number, over string, err error)
	// trunkDown: no trunk can take a call.
	trunkDown bool
	// attempts is the dialer's limit of that name; 0: 5.
	attempts int
}

func (d *desk) store() *store.Store {
	return store.New(d.pool, uuid.Must(uuid.NewV7()), store.Timing{
		InstanceLease: time.Minute, ClaimLease: time.Minute, QueueLimit: time.Hour, CapacityLimit: time.Hour, RingLimit: time.Minute, WatchdogGrace: time.Minute,
	})
}

func (d *desk) exec(sql string, args ...any) {
	d.t.Helper()
	if _, err := d.pool.Exec(context.Background(), sql, args...); err != nil {
		d.t.Error(err)
	}
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	now := time.Now()
	d := &desk{
		t: t, pool: pgtest.New(t, "dialer", outbox.Migrations, inbox.Migrations, pg.Migrations{Name: "dialer",
			FS: store.Migrations}), gate: &door{}, metrics: prometheus.NewRegistry(), intents: &journal{},
		request: dialqueue.Request{
			CallRequestID: uuid.Must(uuid.NewV7()), WorkspaceID: uuid.Must(uuid.NewV7()), To: "+14155550101", AgentID: uuid.Must(uuid.NewV7()),
			MaxCallSeconds: 600, QueuedAt: &now, DueAt: now.Add(-time.Second),
		},
	}
	d.exec(`INSERT INTO workspaces (workspace_id, version, status, api_enabled, max_live_calls, calls_per_second, destinations) VALUES ($1, 1, 'active', true, 10, 10, '{}')`,
		d.request.WorkspaceID)
	d.exec(`INSERT INTO agents (agent_id, workspace_id, version, name, from_e164, max_call_seconds, settings, deleted) VALUES ($1, $2, 1, 'Ida', '', 600, '{}', false)`,
		d.request.AgentID, d.request.WorkspaceID)
	err := pgx.BeginFunc(t.Context(), d.pool, func(tx pgx.Tx) error {
		_, err := d.store().Enqueue(t.Context(), tx, d.request)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// dial runs a dialer over the trunks until as many originates have been answered and the last attempt has ended.
func (d *desk) dial(over *trunks) {
	d.t.Helper()
	d.run(over, func() error {
		if got, want := len(over.asked()), len(over.says); got < want {
			return fmt.Errorf("originates = %d, want %d", got, want)
		}
		return nil
	})
}

// run runs a dialer over the trunks until the condition returns nil and the last attempt has ended.
func (d *desk) run(over *trunks, until func() error) {
	d.t.Helper()
	d.start(over, until, func(dialer *dial.Dialer, _ *store.Store) func(context.Context) error { return dialer.Run })
}

// review runs Review in a process that has one fence on which no attempt works.
func (d *desk) review(over *trunks, until func() error) {
	d.t.Helper()
	d.start(over, until, func(dialer *dial.Dialer, st *store.Store) func(context.Context) error {
		callID := uuid.Must(uuid.NewV7())
		d.exec(`UPDATE dial_queue SET state = 'dialing'`)
		d.exec(`INSERT INTO fences (call_id, call_request_id, attempt, trunk, instance_id) VALUES ($1, $2, 1, 'sip', $3)`,
			callID, d.request.CallRequestID, st.Instance())
		d.exec(`INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, status,
			max_call_seconds, deadline_at, owner) SELECT $1, call_request_id, workspace_id, 'outbound', '', to_e164, agent_id,
			'fenced', 600, now() + interval '1 hour', $2 FROM dial_queue`, callID, st.Instance())
		return dialer.Review
	})
}

func (d *desk) start(
	over *trunks, until func() error, work func(*dial.Dialer, *store.Store) func(context.Context) error,
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
	heart := calls.NewHeartbeat(st, time.Minute)
	if err := heart.Beat(t.Context()); err != nil {
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
	dialer := dial.New(st, contacts, over, nil, heart, d.intents, dial.Limits{
		Attempts: cmp.Or(d.attempts, 5), Overall: limit,
		OfTrunk:  func(context.Context) (dialqueue.Limit, error) { return ofTrunk, nil },
		Failures: failures, CircuitRest: time.Second, From: d.from, MayDial: d.mayDial, Reconciled: d.reconciled,
	}, d.metrics)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	run := work(dialer, st)
	go func() { done <- run(ctx) }()
	testkit.NoError(t, until)
	stop() // what has begun is brought to its end
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// calls are those of the request in the order of their fences: status and cause.
func (d *desk) calls() (calls []string) {
	d.t.Helper()
	rows, err := d.pool.Query(d.t.Context(), `SELECT trim(c.status || ' ' || c.hangup_cause || ' ' || c.ending) FROM fences f JOIN calls c USING (call_id) ORDER BY f.attempt`)
	if err == nil {
		calls, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return calls
}

func (d *desk) state() (state string, inUse, facts int) {
	d.t.Helper()
	err := d.pool.QueryRow(d.t.Context(), `SELECT state, (SELECT count(*) FROM dial_queue
		WHERE state = 'dialing' OR state = 'queued' AND claimed_by IS NOT NULL AND look_at > now()),
		(SELECT count(*) FROM outbox) FROM dial_queue`).Scan(&state, &inUse, &facts)
	if err != nil {
		d.t.Fatal(err)
	}
	return state, inUse, facts
}

func takes(carrier.Originate) error { return nil }

func refuses(cause callstate.Cause, by string) func(carrier.Originate) error {
	return func(carrier.Originate) error {
		return &carrier.Refused{Cause: cause, RefusedBy: by, Err: errors.New("no")}
	}
}

func unsent(carrier.Originate) error {
	return &carrier.Refused{Cause: callstate.NetworkOutOfOrder, NotSent: true, Err: errors.New("full")}
}

// dialed_at is the first INVITE of the try that became the call. If the next trunk received no
// INVITE, that is the refused try.
func TestElsewhere_DialedAt(t *testing.T) {
	t.Parallel()
	busy := refuses(callstate.NormalTemporaryFailure, "one")
	for name, tt := range map[string]struct {
		says []func(carrier.Originate) error
		// try is the one whose time counts.
		try int
	}{
		"the second trunk takes it":    {says: []func(carrier.Originate) error{busy, takes}, try: 1},
		"the second trunk refuses it":  {says: []func(carrier.Originate) error{busy, refuses(callstate.UserBusy, "")}, try: 1},
		"no INVITE to the second left": {says: []func(carrier.Originate) error{busy, unsent}, try: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, over := newDesk(t), &trunks{says: tt.says}
			d.dial(over)
			var got time.Time
			const query = `SELECT dialed_at FROM calls WHERE status <> 'void'`
			if err := d.pool.QueryRow(t.Context(), query).Scan(&got); err != nil {
				t.Fatal(err)
			}
			if want := over.at[tt.try]; !got.Equal(want) {
				t.Errorf("dialed_at = %v, want %v; times of the dials: %v", got, want, over.at)
			}
		})
	}
}

// TestElsewhere_EachTryHasItsOwnFence: after a refusal the next trunk is asked, with another call; only the last try is a call, and only where the first is still ours to leave.
func TestElsewhere_EachTryHasItsOwnFence(t *testing.T) {
	t.Parallel()
	busy := refuses(callstate.NormalTemporaryFailure, "one")
	for _, tt := range []struct {
		name string
		says func(d *desk) []func(carrier.Originate) error
		// calls, state and facts are what is left of the request.
		calls []string
		state string
		inUse int
		facts int
	}{
		{"the second trunk takes it", func(*desk) []func(carrier.Originate) error { return []func(carrier.Originate) error{busy, takes} }, []string{"void", "initiated"}, "dialing", 1, 2},
		{"the third trunk takes it", func(*desk) []func(carrier.Originate) error {
			return []func(carrier.Originate) error{busy, refuses(callstate.CallRejected, "two"), takes}
		}, []string{"void", "void", "initiated"}, "dialing", 1, 2},
		{"the last trunk refuses too", func(*desk) []func(carrier.Originate) error {
			return []func(carrier.Originate) error{busy, refuses(callstate.UnallocatedNumber, "")}
		}, []string{"void", "failed unallocated_number"}, "ended", 0, 3},
		{"the second was never asked", func(*desk) []func(carrier.Originate) error { return []func(carrier.Originate) error{busy, unsent} },
			[]string{"void", "failed normal_temporary_failure"}, "ended", 0, 3},
		{"nobody knows what the second did", func(*desk) []func(carrier.Originate) error {
			return []func(carrier.Originate) error{busy, func(carrier.Originate) error { return errors.New("silence") }}
		}, []string{"void", "fenced  dial_unknown"}, "dialing", 1, 1},
		{"another process took the first over", func(d *desk) []func(carrier.Originate) error {
			return []func(carrier.Originate) error{func(o carrier.Originate) error {
				d.exec(`UPDATE calls SET owner = gen_random_uuid(), ending = 'recovery' WHERE call_id = $1`, o.CallID)
				return busy(o)
			}}
		}, []string{"failed normal_temporary_failure recovery"}, "ended", 0, 3},
		{"the person opted out meanwhile", func(d *desk) []func(carrier.Originate) error {
			return []func(carrier.Originate) error{func(o carrier.Originate) error {
				d.exec(`INSERT INTO opt_outs (call_id, workspace_id, phone_e164, evidence, heard_at) VALUES (gen_random_uuid(), $1, $2, 'stop', now())`, d.request.WorkspaceID, string(d.request.To))
				return busy(o)
			}}
		}, []string{"failed normal_temporary_failure"}, "ended", 0, 3},
		{"the gate has closed meanwhile", func(d *desk) []func(carrier.Originate) error {
			return []func(carrier.Originate) error{func(o carrier.Originate) error {
				d.gate.mu.Lock()
				d.gate.closed = true
				d.gate.mu.Unlock()
				<-time.After(2100 * time.Millisecond) // until its first answer is too old
				return busy(o)
			}}
		}, []string{"failed normal_temporary_failure"}, "ended", 0, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			over := &trunks{says: tt.says(d)}
			d.dial(over)
			if got := d.calls(); !slices.Equal(got, tt.calls) {
				t.Errorf("calls = %q, want %q", got, tt.calls)
			}
			switch state, inUse, facts := d.state(); {
			case state != tt.state:
				t.Errorf("state = %v, want %v", state, tt.state)
			case inUse != tt.inUse:
				t.Errorf("inUse = %v, want %v", inUse, tt.inUse)
			case facts != tt.facts:
				t.Errorf("facts = %v, want %v", facts, tt.facts)
			}
			var elsewhere int
			if err := d.pool.QueryRow(t.Context(), "SELECT count(*) FROM calls WHERE time_zone <> $1",
				zone).Scan(&elsewhere); err != nil {
				t.Errorf("QueryRow: %v", err)
			} else if elsewhere > 0 {
				t.Errorf("elsewhere = %v, want 0", elsewhere)
			}
			asked, seen := over.asked(), map[uuid.UUID]bool{}
			for i, o := range asked {
				switch {
				case seen[o.CallID]:
					t.Error("seen[o.CallID] = true, want false")
				case len(o.ExcludeTrunks) != i:
					t.Errorf("length of o.Without = %v, want %v", len(o.ExcludeTrunks), i)
				case phone.Number(o.To) != d.request.To:
					t.Errorf("phone.Number(o.To) = %v, want %v", phone.Number(o.To), d.request.To)
				}
				seen[o.CallID] = true
			}
			if len(asked) != len(over.says) {
				t.Errorf("%d originates, want %d", len(asked), len(over.says))
			}
		})
	}
}
