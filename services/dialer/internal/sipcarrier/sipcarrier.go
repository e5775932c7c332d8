// Package sipcarrier is the carrier over SIP trunks. A call is a leg of package signal. Its audio and
// conversation are a Talk. The process that holds a leg owns it, and applies the leg's events to
// the call. Other processes ask the owner to end or answer the call through the journal. If the
// owner is dead, they take the leg over and end it by its teardown state.
package sipcarrier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/transport"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

const (
	// journalTimeout bounds one question to the journal, and what a hang-up waits for the owner of a call.
	journalTimeout = 8 * time.Second
	// pollInterval is how often a waiting caller reads the journal.
	pollInterval = 50 * time.Millisecond
	// probeTimeout is how long a trunk may take to say that it is there.
	probeTimeout = 2 * time.Second
	// defaultCircuitFailures open a trunk's circuit if the configuration does not say how many do.
	defaultCircuitFailures = 5
)

// Trunks are those that may place and take calls, in the order in which they are tried.
type Trunks interface {
	Active(ctx context.Context) ([]trunks.Trunk, error)
}

// TrunkStore is Trunks, and finds one that is active no more: its calls may have to be ended there.
type TrunkStore interface {
	Trunks
	Find(ctx context.Context, trunkID uuid.UUID) (trunks.Trunk, error)
}

// Talks gives calls their audio and conversation.
type Talks interface {
	// Begin makes ready for a call that is about to be dialled. Its end is Talk's.
	Begin(ctx context.Context, callID uuid.UUID, over trunks.Trunk) (Talk, error)
}

// Talk is the audio and conversation of one call. Its methods are called one at a time, End last.
type Talk interface {
	// Offer describes our audio.
	Offer() []byte
	// Answer takes the far end's description of its audio, and begins to talk.
	Answer(answer []byte, told TalkCallbacks) error
	// Ready gets whoever is to talk ready, and waits until he could, or the talk has ended. It may be told again, and wait beside the others.
	Ready(ctx context.Context) error
	// Accept answers the offer of a call that came in; an empty one wants ours, whose answer comes by Agreed. Begin begins to talk then.
	Accept(offer []byte) (answer []byte, err error)
	Begin(told TalkCallbacks)
	// Offered answers an offer within the call; nil asks for one of ours, whose answer comes by Agreed.
	Offered(offer []byte) ([]byte, error)
	Agreed(answer []byte)
	// End ends it, and tells how it went. It may be told again.
	End() Result
}

// TalkCallbacks is what a talk tells while it goes on.
type TalkCallbacks struct {
	// OptedOut: the person asked not to be called again, in these words. It returns when that will not be forgotten.
	OptedOut func(quote string, at time.Time)
	// Over: nothing more will be said, the call is to be hung up with the cause.
	HangUp func(callstate.Cause)
	// Transfer hands the call to a number, and returns when somebody has answered there: then it is to be hung up. An error: it goes on as it was, or has ended.
	Transfer func(ctx context.Context, to string) error
}

// Result is how a talk went. Reached is empty when there was none.
type Result struct {
	Turns            []agent.Turn
	Outcome, Reached string
	// CallbackAt is when the person wants to be called again; nil: nothing was agreed.
	CallbackAt *time.Time
	// Disclosure states what was played of the disclosure; nil: there was none, or it is not known.
	Disclosure *agent.DisclosureRecord
}

// Config of the carrier.
type Config struct {
	// RingLimit is how long a phone may ring before the dialer ends the call. If RingLimit is shorter than
	// signal.FirstRing, a call that its trunk has accepted with a 100, and that does not ring within
	// RingLimit, ends as no_answer. The carrier itself cancels after Ring, which is longer.
	RingLimit, Ring time.Duration
	// Keep is how long the journal keeps legs that have ended.
	Keep time.Duration
	// MayReach says whether a call may be handed to a number; nil: none is.
	MayReach func(ctx context.Context, callID uuid.UUID, to string) error
	// Serves reports whether inbound calls to a number are answered; nil: all are.
	Serves func(ctx context.Context, to string) (bool, error)
	// Drain is how long calls may go on once Run is told to end; then they are hung up.
	Drain time.Duration
	// Strangers keeps inbound calls that were refused; nil: they are not kept.
	Rejected *RejectedCalls
	// Names finds addresses for Check; nil: the system's resolver.
	Names transport.Names
	// CircuitFailures in a row open the circuit of one trunk, for CircuitRest at first. A refusal for the
	// trunk's credentials opens it immediately.
	CircuitFailures int
	CircuitRest     time.Duration
}

// Carrier is all SIP trunks together, as this process sees them.
type Carrier struct {
	cfg        Config
	agent      *sip.UserAgent
	legStore   *store.Legs
	calls      Calls
	trunks     TrunkStore
	talks      Talks
	originated carrier.OriginatedCalls
	selector   trunks.Selector
	monitored  monitoredTrunks
	idle       idleLog
	// invites and refusals count answers of trunks to INVITEs.
	invites, refusals *prometheus.CounterVec

	mu            sync.Mutex
	legs          map[uuid.UUID]*leg
	endingOrphans map[uuid.UUID]bool // orphans that are being ended
	changed       chan struct{}      // closed and replaced when this process has stored something
	stopped       chan struct{}      // closed when Run has ended
}

// Calls applies the events of legs to their calls (package calls). It returns store.ErrLost if the
// guard is not fulfilled.
type Calls interface {
	Apply(ctx context.Context, guard store.Guard, events []carrier.Event) error
}

// New carries calls by the agent's legs. Run must run beside it, once.
func New(agent *sip.UserAgent, j *store.Legs, to Calls, book TrunkStore, talks Talks, cfg Config) *Carrier {
	if cfg.CircuitFailures <= 0 {
		cfg.CircuitFailures = defaultCircuitFailures
	}
	if cfg.CircuitRest <= 0 {
		cfg.CircuitRest = time.Second
	}
	if cfg.Names == nil {
		cfg.Names = net.DefaultResolver
	}
	return &Carrier{
		cfg: cfg, agent: agent, legStore: j, calls: to, trunks: book, talks: talks,
		invites: newInvitesCounter(), refusals: newRefusalsCounter(),
		legs: map[uuid.UUID]*leg{}, endingOrphans: map[uuid.UUID]bool{}, changed: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// Name is the same for all SIP trunks.
func (c *Carrier) Name() string { return "sip" }

// Ready says whether a trunk answers, and the journal. All trunks are asked at once, and the first that answers is enough.
func (c *Carrier) Ready(ctx context.Context) error {
	active, err := c.trunks.Active(ctx)
	if err != nil {
		return fmt.Errorf("reach a trunk: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	faults := make(chan error, len(active))
	for _, t := range active {
		go func() { faults <- c.agent.Probe(ctx, sipTrunk(t)) }()
	}
	err = errNoTrunk
	for range active {
		fault := <-faults
		if fault == nil {
			return nil
		}
		err = errors.Join(err, fault)
	}
	return fmt.Errorf("reach a trunk: %w", err)
}

var errNoTrunk = errors.New("no trunk is active that answers")

// sipTrunk is a trunk as signal knows it.
func sipTrunk(t trunks.Trunk) sip.Trunk {
	s := sip.Trunk{
		ID: t.TrunkID, Name: t.Name, Host: t.Host, Port: int(t.Port), Transport: transports()[t.Transport],
		Username: t.Username, Password: t.Password,
		CallerID: sip.InFrom, SessionTimer: time.Duration(t.SessionSeconds) * time.Second, CA: t.CACertificates, LargeOverTCP: t.Transport == trunks.UDP,
	}
	if t.CallerIDHeader == trunks.InAsserted {
		s.CallerID = sip.Asserted
	}
	if t.OutboundProxy != "" {
		host, port := t.Address()
		s.Proxy = hostPort(host, port)
	}
	return s
}

func (c *Carrier) nextChange() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *Carrier) signalChange() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.changed)
	c.changed = make(chan struct{})
}

// Find returns what is known of a call. After a failover the database may lack the row of a live leg
// of this process. Its call is known.
func (c *Carrier) Find(ctx context.Context, callID uuid.UUID) (carrier.CallStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	found, err := c.legStore.Find(ctx, callID)
	if l := c.leg(callID); errors.Is(err, pg.ErrNotFound) && l != nil {
		if at, live := l.dialed(); live {
			return carrier.CallStatus{DialedAt: &at}, nil
		}
	}
	return callStatus(found), unknownCallError(err)
}

// Refresh applies the events of the live legs of this process again. After a failover the database
// may lack them: an outbound call would be ended as one that was not answered, and an inbound call
// would have no row and no end.
func (c *Carrier) Refresh() {
	for _, l := range c.allLegs() {
		l.refresh()
	}
}

func callStatus(c store.Leg) carrier.CallStatus {
	return carrier.CallStatus{DialedAt: c.DialedAt, RingingAt: c.RingingAt, AnsweredAt: c.AnsweredAt, EndedAt: c.EndedAt, Cause: c.Cause, ByUs: c.ByUs}
}

func unknownCallError(err error) error {
	if errors.Is(err, pg.ErrNotFound) {
		return fmt.Errorf("%w: %w", carrier.ErrUnknownCall, err)
	}
	return err
}

// Answer asks whoever owns a call that came in to pick it up.
func (c *Carrier) Answer(ctx context.Context, callID uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	_, err := c.legStore.RequestAnswer(ctx, callID)
	return unknownCallError(err)
}

// Hangup ends a call of this process at once, and has any other ended by its owner. It waits until the end is in the journal.
func (c *Carrier) Hangup(ctx context.Context, callID uuid.UUID) (carrier.CallStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	asked, err := c.legStore.RequestHangup(ctx, callID)
	if err != nil {
		return carrier.CallStatus{}, unknownCallError(err)
	}
	if l := c.leg(callID); l != nil {
		l.hangUp(callstate.NormalClearing)
	}
	for asked.EndedAt == nil {
		woken := c.nextChange()
		if asked, err = c.legStore.Find(ctx, callID); err != nil {
			return carrier.CallStatus{}, unknownCallError(err)
		}
		if asked.EndedAt != nil {
			break
		}
		select {
		case <-ctx.Done():
			return carrier.CallStatus{}, fmt.Errorf("hang up %s: its owner has not done it: %w", callID, ctx.Err())
		case <-woken:
		case <-time.After(pollInterval):
		}
	}
	return callStatus(asked), nil
}

func (c *Carrier) leg(callID uuid.UUID) *leg {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.legs[callID]
}

func (c *Carrier) addLeg(l *leg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.legs[l.callID] = l
}

func (c *Carrier) removeLeg(l *leg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.legs, l.callID)
}

func (c *Carrier) allLegs() (legs []*leg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.legs))
}

// liveLegs is how many legs of this process are the trunk's.
func (c *Carrier) liveLegs(trunkID uuid.UUID) (n int) {
	for _, l := range c.allLegs() {
		if l.trunk.TrunkID == trunkID {
			n++
		}
	}
	return n
}

// Live is how many legs of this process have not ended.
func (c *Carrier) Live() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.legs)
}

func (c *Carrier) warn(what string, callID uuid.UUID, err error) {
	slog.Warn(what, "call_id", callID, "error", err)
}
