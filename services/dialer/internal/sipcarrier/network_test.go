package sipcarrier_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/calls"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/carrier/carriertest"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
	"ringfence.dev/services/dialer/internal/sipcarrier"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

const (
	loopback = "127.0.0.1:0"
	audio    = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n"
	lease    = 2 * time.Second
)

// fakeConversations creates conversations. In each of them, the person says one sentence.
type fakeConversations struct{}

func (fakeConversations) Begin(context.Context, uuid.UUID, trunks.Trunk) (sipcarrier.Conversation, error) {
	return fakeConversation{}, nil
}

type fakeConversation struct{}

func (fakeConversation) Offer() []byte                          { return []byte(audio) }
func (fakeConversation) Offered([]byte) ([]byte, error)         { return []byte(audio), nil }
func (fakeConversation) Agreed([]byte)                          {}
func (fakeConversation) Ready(context.Context) error            { return nil }
func (fakeConversation) Accept([]byte) ([]byte, error)          { return []byte(audio), nil }
func (fakeConversation) Begin(sipcarrier.ConversationCallbacks) {}

func (fakeConversation) Answer(answer []byte, _ sipcarrier.ConversationCallbacks) error {
	if string(answer) != audio {
		return errors.New("an answer of another shape")
	}
	return nil
}

func (fakeConversation) End() sipcarrier.Result {
	at := time.Now().UTC().Truncate(time.Microsecond)
	return sipcarrier.Result{Outcome: agent.OutcomeInterested, Reached: agent.ReachedHuman, Turns: []agent.Turn{{Role: agent.RolePerson, Text: "hello", At: at}}}
}

// fixture contains a trunk and a dialer process. A test can kill the process and start another one
// at the same address.
type fixture struct {
	t     testing.TB
	far   *siptest.Trunk
	first *pgxpool.Pool
	udp   string
	mu    sync.Mutex
	// rang contains the branches of the INVITEs of each call. A retransmission has the same branch, so
	// it does not count as a new call.
	rang          map[string]map[string]bool
	alive         *process
	conversations sipcarrier.Conversations
	away          atomic.Bool // true while no process can reach the database
	serves        func(ctx context.Context, to string) (bool, error)
	pauses        *dialqueue.PauseMonitor
	// applied contains the events that all processes applied.
	applied recordedEvents
	// waits counts the calls of Apply that returned store.ErrServerChanged.
	waits     atomic.Int64
	channels  int32
	ringLimit time.Duration
}

// recordedEvents contains events in the order in which they were applied.
type recordedEvents struct {
	mu     sync.Mutex
	events []carrier.Event
	more   chan struct{} // closed and replaced when events are added
}

func (a *recordedEvents) add(events []carrier.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range events {
		same := func(old carrier.Event) bool {
			return old.CallID == e.CallID && old.Kind == e.Kind && old.At.Equal(e.At)
		}
		if e.Kind != carrier.Utterance && slices.ContainsFunc(a.events, same) {
			continue // with each new event, a leg applies its earlier events again
		}
		e.Seq = int64(len(a.events)) + 1
		a.events = append(a.events, e)
	}
	close(a.more)
	a.more = make(chan struct{})
}

func (a *recordedEvents) after(ctx context.Context, after int64, maxWait time.Duration) (carrier.Batch, error) {
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	for over := false; ; {
		a.mu.Lock()
		rest, more := slices.Clone(a.events[min(int(after), len(a.events)):]), a.more
		a.mu.Unlock()
		if len(rest) > 0 || over {
			return carrier.Batch{Stream: "applied", Events: rest}, nil
		}
		select {
		case <-ctx.Done():
			return carrier.Batch{}, ctx.Err()
		case <-more:
		case <-timer.C:
			over = true
		}
	}
}

// recordingCalls applies the events of one process to the calls in the database, and adds the
// events to fixture.applied.
type recordingCalls struct {
	*calls.Applier
	x *fixture
}

func (a recordingCalls) Apply(ctx context.Context, guard store.Guard, events []carrier.Event) error {
	err := a.Applier.Apply(ctx, guard, events)
	if err == nil {
		a.x.applied.add(events)
	}
	if errors.Is(err, store.ErrServerChanged) {
		a.x.waits.Add(1)
	}
	return err
}

type process struct {
	*sipcarrier.Carrier
	x     *fixture
	agent *sip.UserAgent
	pool  *pgxpool.Pool
	store *store.Store
	over  trunks.Trunk
	// stop kills the process. end stops it as SIGTERM does.
	stop, end func()
}

// Originate inserts the row of the call, like the commit of a fence, and then originates the call.
func (p *process) Originate(ctx context.Context, o carrier.Originate) (time.Time, error) {
	if err := p.x.insertFenced(ctx, o); err != nil && ctx.Err() == nil {
		return time.Time{}, err
	}
	return p.Carrier.Originate(ctx, o)
}

// insertFenced inserts the row of an outbound call, like the commit of a fence.
func (x *fixture) insertFenced(ctx context.Context, o carrier.Originate) error {
	const fenced = `
		INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, status,
			max_call_seconds, deadline_at)
		VALUES ($1, $1, $1, 'outbound', $2, $3, $1, 'fenced', 600, now() + interval '1 hour')
		ON CONFLICT DO NOTHING`
	_, err := x.first.Exec(ctx, fenced, o.CallID, o.From, o.To)
	return err
}

// Events returns the events that all processes have applied.
func (p *process) Events(ctx context.Context, after int64, maxWait time.Duration) (carrier.Batch, error) {
	if err := p.pool.Ping(ctx); err != nil {
		return carrier.Batch{}, err
	}
	return p.x.applied.after(ctx, after, maxWait)
}

// Active returns the trunk. While the database is unavailable, it returns an error.
func (p *process) Active(ctx context.Context) ([]trunks.Trunk, error) {
	return []trunks.Trunk{p.over}, p.pool.Ping(ctx)
}

// currentProcess forwards each method call to the process that is alive.
type currentProcess struct{ x *fixture }

func (n currentProcess) process() *process {
	n.x.mu.Lock()
	defer n.x.mu.Unlock()
	return n.x.alive
}

func (n currentProcess) Name() string { return n.process().Name() }
func (n currentProcess) Originate(ctx context.Context, o carrier.Originate) (time.Time, error) {
	return n.process().Originate(ctx, o)
}
func (n currentProcess) Answer(ctx context.Context, id uuid.UUID) error {
	return n.process().Answer(ctx, id)
}
func (n currentProcess) Hangup(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
	return n.process().Hangup(ctx, id)
}
func (n currentProcess) Refuse(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
	return n.process().Refuse(ctx, id)
}
func (n currentProcess) Find(ctx context.Context, id uuid.UUID) (carrier.CallStatus, error) {
	return n.process().Find(ctx, id)
}
func (n currentProcess) Events(ctx context.Context, after int64, maxWait time.Duration) (carrier.Batch, error) {
	return n.process().Events(ctx, after, maxWait)
}
func (n currentProcess) Ready(ctx context.Context) error { return n.process().Ready(ctx) }

type activeTrunks interface {
	Active(ctx context.Context) ([]trunks.Trunk, error)
}

// trunkStore can also find trunks that are not active.
type trunkStore struct {
	activeTrunks
	disabled trunks.Trunk
}

func (b trunkStore) Find(ctx context.Context, id uuid.UUID) (trunks.Trunk, error) {
	active, err := b.Active(ctx)
	for _, one := range append(active, b.disabled) {
		if one.TrunkID == id && one.Host != "" {
			return one, err
		}
	}
	return trunks.Trunk{}, errors.Join(err, pg.ErrNotFound)
}

func (x *fixture) begin(udp string) *process {
	x.t.Helper()
	p := x.startWithTrunks(udp, nil)
	p.awaitAnswers(x.t, p.over)
	return p
}

// awaitAnswers waits until the trunks have answered OPTIONS. Before that, no call is offered to
// them.
func (p *process) awaitAnswers(t testing.TB, all ...trunks.Trunk) {
	t.Helper()
	for _, one := range all {
		testkit.Until(t, "trunk "+one.Name+" answers OPTIONS", func() bool { return p.Answers(one.TrunkID) })
	}
}

// startWithTrunks starts a process. buildTrunks receives the trunk of the fixture and returns the
// trunks of the process.
func (x *fixture) startWithTrunks(udp string, buildTrunks func(good trunks.Trunk) activeTrunks) *process {
	x.t.Helper()
	p, ready := &process{x: x}, make(chan struct{})
	defer close(ready)
	agent, err := sip.New(sip.Config{
		UDP: udp, TCP: loopback, Admit: func(netip.Addr) bool { return true }, Arrive: func(a *sip.Arrival) { <-ready; p.Arrive(a, p.over) },
	})
	if err != nil {
		x.t.Fatal(err)
	}
	config := x.first.Config()
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { return !x.away.Load(), nil }
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		if x.away.Load() {
			return errors.New("the database is away")
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(x.t.Context(), config)
	if err != nil {
		x.t.Fatal(err)
	}
	over := trunks.New(uuid.Nil)
	over.Name, over.Host, over.Port, over.SessionSeconds = "test", "127.0.0.1", uint16(x.far.Port(transport.UDP)), 0
	over.Channels, over.CallsPerSecond = x.channels, 1000
	p.agent, p.pool, p.over = agent, pool, over
	p.store = store.New(pool, uuid.New(), store.Timing{
		InstanceLease: lease, RingLimit: time.Minute, WatchdogGrace: time.Minute,
	})
	var known activeTrunks = p
	if buildTrunks != nil {
		known = buildTrunks(over)
	}
	listed, is := known.(trunkStore)
	if !is {
		listed = trunkStore{activeTrunks: known}
	}
	to := recordingCalls{Applier: calls.NewApplier(p.store, nil, nil), x: x}
	p.Carrier = sipcarrier.New(agent, store.NewLegs(pool, pool, uuid.New(), lease), to, listed, x.conversations,
		sipcarrier.Config{RingLimit: x.ringLimit, Ring: time.Minute, Keep: time.Hour, Serves: x.serves, Pauses: x.pauses})
	ctx, cancel := context.WithCancel(context.WithoutCancel(x.t.Context()))
	go func() { _ = p.Run(ctx) }()
	p.end = cancel
	// After stop, goroutines of the process can still run, but they can change nothing, as in a killed
	// process.
	p.stop = sync.OnceFunc(func() { agent.Close(); pool.Close(); cancel() })
	x.t.Cleanup(p.stop)
	return p
}

func (x *fixture) rings(c *siptest.Call) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, branch := c.Invite.CallID().Value(), c.Invite.Via().Params.GetOr("branch", "")
	if x.rang[id] == nil {
		x.rang[id] = map[string]bool{}
	}
	x.rang[id][branch] = true
}

func (x *fixture) start(forgetful bool) {
	if forgetful {
		if _, err := x.first.Exec(x.t.Context(), "DELETE FROM sip_legs"); err != nil {
			x.t.Fatal(err)
		}
	}
	p := x.begin(x.udp)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.alive = p
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	x := &fixture{
		t:             t,
		conversations: fakeConversations{},
		channels:      1000,
		far:           siptest.New(t, transport.Config{UDP: loopback}),
		rang:          map[string]map[string]bool{},
		first: pgtest.New(
			t,
			"dialer",
			outbox.Migrations,
			inbox.Migrations,
			pg.Migrations{Name: "dialer", FS: store.Migrations},
		),
	}
	x.applied.more = make(chan struct{})
	const number = `INSERT INTO numbers (number_id, workspace_id, phone_e164, agent_id)
		VALUES (gen_random_uuid(), gen_random_uuid(), '+14155559000', gen_random_uuid())`
	if _, err := x.first.Exec(t.Context(), number); err != nil {
		t.Fatal(err)
	}
	for suffix, script := range map[string]func(*siptest.Call){
		"01": func(c *siptest.Call) {
			x.rings(c)
			c.Respond(180, "")
			c.Answer(audio)
			c.Request(sipmsg.BYE, "")
		},
		"90": func(c *siptest.Call) { x.rings(c); c.Respond(100, ""); c.Respond(486, "") },
		"99": func(c *siptest.Call) { x.rings(c); c.Respond(180, ""); c.Respond(200, audio) },
		"11": func(c *siptest.Call) { x.rings(c); c.Respond(180, "") },
		"12": func(c *siptest.Call) { x.rings(c); c.Respond(100, "") },
		"13": func(c *siptest.Call) { c.Respond(404, "") },
		"14": func(c *siptest.Call) { c.Ignore(); x.rings(c) },
	} {
		x.far.On(suffix, script)
	}
	return x
}

func (x *fixture) dials(id uuid.UUID) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.rang[id.String()])
}

// placeInbound places an inbound call, which hangs up after the answer.
func (x *fixture) placeInbound(from, to string) uuid.UUID {
	x.t.Helper()
	caller, err := sip.New(sip.Config{UDP: loopback, Admit: func(netip.Addr) bool { return true }})
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(caller.Close)
	answered := make(chan struct{}, 1)
	d, err := caller.Invite(x.t.Context(), sip.Trunk{Name: "us", Host: "127.0.0.1", Port: x.alive.agent.Port(transport.UDP), Transport: transport.UDP, CallerID: sip.InFrom},
		sip.Invite{CallID: uuid.NewString(), From: from, To: to, Body: []byte(audio)},
		sip.Observer{Answered: func(time.Time, []byte) error { answered <- struct{}{}; return nil }})
	if err != nil {
		x.t.Fatal(err)
	}
	go func() {
		select {
		case <-answered:
			_ = d.Hangup(context.Background(), "normal_clearing")
		case <-d.Done():
		}
	}()
	var id uuid.UUID
	testkit.NoError(x.t, func() error {
		return x.first.QueryRow(x.t.Context(), "SELECT call_id FROM sip_legs WHERE inbound").Scan(&id)
	})
	return id
}

func fresh(t testing.TB) *carriertest.Network {
	t.Helper()
	x := newFixture(t)
	x.alive = x.begin(loopback)
	x.udp = "127.0.0.1:" + strconv.Itoa(x.alive.agent.Port(transport.UDP))
	const number = "+141555501"
	return &carriertest.Network{
		Carrier:      currentProcess{x},
		TalkingPhone: number + "01", BusyPhone: number + "90", StayingPhone: number + "99",
		RingingPhone: number + "11", SlowPhone: number + "12", RefusedNumber: number + "13", SilentPhone: number + "14",
		NewCarrier: func() carrier.EventStream { return x.begin(loopback) }, Call: x.placeInbound,
		Dials: x.dials,
		Stop:  func() { x.alive.stop() }, Start: x.start,
	}
}

func TestConformance_SIPCarrierPassesAllRules(t *testing.T) {
	t.Parallel()
	carriertest.Run(t, fresh)
}
