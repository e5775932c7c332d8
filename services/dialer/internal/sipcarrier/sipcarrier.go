// Package sipcarrier places and accepts calls over SIP trunks. A call consists of a leg (the SIP
// dialog, package sip) and a Conversation (the audio and the AI agent).
//
// Each leg belongs to the process that created it. Other processes use the database to request the
// end or the answer of the call. If the owner dies, another process ends the leg with the stored
// teardown state (ADR 13, ADR 15).
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
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/pg"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/transport"
	"ringfence.dev/services/dialer/internal/siptrace"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

const (
	// journalTimeout limits a database query for legs. It also limits how long Hangup waits until the
	// owner has ended the call.
	journalTimeout = 8 * time.Second
	// pollInterval is the time between two reads of the leg while Hangup waits.
	pollInterval = 50 * time.Millisecond
	// probeTimeout limits an OPTIONS request, and the lookup of a trunk's host name.
	probeTimeout = 2 * time.Second
	// defaultCircuitFailures is used if Config.CircuitFailures is not set.
	defaultCircuitFailures = 5
)

// Trunks returns the active trunks, best priority first.
type Trunks interface {
	Active(ctx context.Context) ([]trunks.Trunk, error)
}

// TrunkStore also finds trunks that are not active. Such a trunk can have calls that must be ended.
type TrunkStore interface {
	Trunks
	Find(ctx context.Context, trunkID uuid.UUID) (trunks.Trunk, error)
}

// Conversations creates a Conversation for each call.
type Conversations interface {
	// Begin allocates media for a call. The caller must call Conversation.End.
	Begin(ctx context.Context, callID uuid.UUID, trunk trunks.Trunk) (Conversation, error)
}

// Conversation connects the audio of one call to the AI agent. Only Ready may be called
// concurrently with other methods. End is called last.
type Conversation interface {
	// Offer returns the SDP offer of this side.
	Offer() []byte
	// Answer receives the SDP answer and starts the conversation.
	Answer(answer []byte, callbacks ConversationCallbacks) error
	// Ready opens the agent's session. It returns when the session is open or the conversation has
	// ended. It may be called several times and concurrently.
	Ready(ctx context.Context) error
	// Accept returns the SDP answer to the SDP offer of an inbound call. If offer is empty, Accept
	// returns an SDP offer, and Agreed receives the caller's SDP answer. The conversation starts
	// later, with Conversation.Begin.
	Accept(offer []byte) (answer []byte, err error)
	Begin(callbacks ConversationCallbacks)
	// Offered returns the SDP answer to an SDP offer within the call. If offer is nil, it returns an
	// SDP offer, and Agreed receives the peer's SDP answer.
	Offered(offer []byte) ([]byte, error)
	Agreed(answer []byte)
	// End ends the conversation and returns its result. It may be called again.
	End() Result
}

// ConversationCallbacks contains the functions that a conversation calls.
type ConversationCallbacks struct {
	// OptedOut must be called when the person asks not to be called again. It returns after the
	// opt-out was stored.
	OptedOut func(quote string, at time.Time)
	// HangUp hangs up the call with the cause. It is called when the conversation is over.
	HangUp func(callstate.Cause)
	// Transfer transfers the call to a number and returns when the call was answered there. The caller
	// of Transfer must then hang up this leg. If Transfer returns an error, the transfer has failed,
	// and the call possibly continues.
	Transfer func(ctx context.Context, to string) error
}

// Result is the result of a conversation. Reached is empty if there was no conversation.
type Result struct {
	Turns            []agent.Turn
	Outcome, Reached string
	// CallbackAt is the time at which the person wants to be called back. It is nil if no callback was
	// agreed.
	CallbackAt *time.Time
	// Disclosure states which part of the disclosure was played. It is nil if there was no disclosure,
	// or if the part is unknown.
	Disclosure *agent.DisclosureRecord
}

// Config contains the settings of the carrier.
type Config struct {
	// RingLimit is how long a phone may ring. If it is shorter than sip.FirstRing, it also limits the
	// time until the phone rings. Ring is the time after which the INVITE is canceled, and must be
	// longer than RingLimit.
	RingLimit, Ring time.Duration
	// Keep is how long ended legs are kept in the database.
	Keep time.Duration
	// MayReach returns an error if the workspace of the call may not call a number. A call is
	// transferred only if MayReach returns nil. If MayReach is nil, no call is transferred.
	MayReach func(ctx context.Context, callID uuid.UUID, to string) error
	// Serves reports whether a number is assigned to an agent. Inbound calls to other numbers are
	// refused. If Serves is nil, calls to all numbers are accepted.
	Serves func(ctx context.Context, to string) (bool, error)
	// Drain is how long live calls may continue after Run begins to stop. Then they are hung up.
	Drain time.Duration
	// Rejected keeps refused inbound calls. If Rejected is nil, refused calls are not kept.
	Rejected *RejectedCalls
	// Names resolves host names for Check. If Names is nil, the system's resolver is used.
	Names transport.Names
	// CircuitFailures is the number of consecutive failures that opens the circuit of a trunk.
	// CircuitRest is how long the circuit stays open the first time. A refusal of the trunk's
	// credentials opens the circuit immediately.
	CircuitFailures int
	CircuitRest     time.Duration
	// Trace records the messages of trunks whose setting trace is on. If Trace is nil, no messages are
	// recorded.
	Trace *siptrace.Recorder
	// Pauses contains the paused trunks. If Pauses is nil, no trunk is paused.
	Pauses *dialqueue.PauseMonitor
}

// Carrier places and accepts calls over all SIP trunks. Its methods are safe for concurrent use.
type Carrier struct {
	cfg               Config
	agent             *sip.UserAgent
	legStore          *store.Legs
	calls             Calls
	trunks            TrunkStore
	conversations     Conversations
	originated        carrier.OriginatedCalls
	selector          trunks.Selector
	monitored         monitoredTrunks
	idle              idleLog
	invites, refusals *prometheus.CounterVec

	mu            sync.Mutex
	legs          map[uuid.UUID]*leg
	endingOrphans map[uuid.UUID]bool // orphans that are being ended
	changed       chan struct{}      // closed and replaced when this process has stored a step
	stopped       chan struct{}      // closed when Run has returned

	storingOptOuts atomic.Int64 // number of opt-outs that are not stored yet
	optOuts        recent[carrier.Event]
	endedLegs      recent[endedLeg]
}

// Calls applies the events of legs to their calls (package calls). The guard is checked in the same
// transaction. If the guard shows that this process does not own a live leg, Apply returns
// store.ErrLost.
type Calls interface {
	Apply(ctx context.Context, guard store.Guard, events []carrier.Event) error
}

// New returns a carrier. The caller must call Run once.
func New(
	agent *sip.UserAgent,
	j *store.Legs,
	to Calls,
	book TrunkStore,
	conversations Conversations,
	cfg Config,
) *Carrier {
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
		cfg: cfg, agent: agent, legStore: j, calls: to, trunks: book, conversations: conversations,
		invites: newInvitesCounter(), refusals: newRefusalsCounter(),
		legs: map[uuid.UUID]*leg{}, endingOrphans: map[uuid.UUID]bool{},
		changed: make(chan struct{}), stopped: make(chan struct{}),
	}
}

// Name returns "sip", the common name of all SIP trunks.
func (c *Carrier) Name() string { return "sip" }

// Ready returns nil if the database and at least one trunk respond. It sends OPTIONS to all trunks
// concurrently and returns after the first answer.
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

var errNoTrunk = errors.New("no active trunk responds")

// sipTrunk returns the settings of a trunk for package sip.
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

// Find returns the status of a call. After a failover, the row of this process's leg can be missing
// in the database. Find then returns only the time of dialing.
func (c *Carrier) Find(ctx context.Context, callID uuid.UUID) (carrier.CallStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	found, err := c.legStore.Find(ctx, callID)
	if errors.Is(err, pg.ErrNotFound) {
		if at, ok := c.dialTime(callID); ok {
			return carrier.CallStatus{DialedAt: &at}, nil
		}
	}
	return callStatus(found), unknownCallError(err)
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

// Answer answers an inbound call: it sends a request to the process that owns the call.
func (c *Carrier) Answer(ctx context.Context, callID uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	_, err := c.legStore.RequestAnswer(ctx, callID)
	return unknownCallError(err)
}

// Hangup ends a call and waits until the end is stored. If another process owns the call, Hangup
// sends a request to that process.
func (c *Carrier) Hangup(ctx context.Context, callID uuid.UUID) (carrier.CallStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, journalTimeout)
	defer cancel()
	asked, err := c.legStore.RequestHangup(ctx, callID)
	if err != nil {
		return carrier.CallStatus{}, unknownCallError(err)
	}
	if l := c.leg(callID); l != nil {
		l.hangUp(hangupCause(asked.Ending))
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
			return carrier.CallStatus{}, fmt.Errorf(
				"hang up call %s: the process that owns the call has not ended it: %w",
				callID,
				ctx.Err(),
			)
		case <-woken:
		case <-time.After(pollInterval):
		}
	}
	return callStatus(asked), nil
}

// Refuse ends an unanswered inbound call with the response 486. If another process owns the call,
// that process reads from the row of the call that it must refuse the call.
func (c *Carrier) Refuse(ctx context.Context, callID uuid.UUID) (carrier.CallStatus, error) {
	if l := c.leg(callID); l != nil {
		l.hangUp(callstate.UserBusy)
	}
	return c.Hangup(ctx, callID)
}

func hangupCause(ending callstate.Ending) callstate.Cause {
	if ending == callstate.EndingBusy {
		return callstate.UserBusy
	}
	return callstate.NormalClearing
}

func (c *Carrier) leg(callID uuid.UUID) *leg {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.legs[callID]
}

// dialTime returns the time at which the first INVITE of a call was sent. ok is false if this
// process has no outbound leg of the call, or if Refresh would not store that leg again.
func (c *Carrier) dialTime(callID uuid.UUID) (at time.Time, ok bool) {
	if l := c.leg(callID); l != nil {
		return l.dialTime()
	}
	for _, one := range c.endedLegs.all() {
		if one.leg.callID == callID {
			return one.leg.dialTime()
		}
	}
	return time.Time{}, false
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

// liveLegs returns the number of legs of this process that use the trunk.
func (c *Carrier) liveLegs(trunkID uuid.UUID) (n int) {
	for _, l := range c.allLegs() {
		if l.trunk.TrunkID == trunkID {
			n++
		}
	}
	return n
}

// Live returns the number of legs of this process that have not ended.
func (c *Carrier) Live() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.legs)
}

func (c *Carrier) warn(what string, callID uuid.UUID, err error) {
	slog.Warn(what, "call_id", callID, "error", err)
}
