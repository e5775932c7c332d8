package sipcarrier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/transport"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/trunks"
)

const (
	// sessionOpenTimeout is how long opening the agent's session may take before the INVITE.
	sessionOpenTimeout = 4 * time.Second
	// refusalWait is how long Originate waits for a refusal after a 100. shortRefusalWait applies if
	// no other trunk can be tried. After this wait, the trunk counts as having accepted the call,
	// unless it refuses the operator's account later.
	refusalWait, shortRefusalWait = 2 * time.Second, 500 * time.Millisecond
)

func transports() map[trunks.Transport]string {
	return map[trunks.Transport]string{trunks.UDP: transport.UDP, trunks.TCP: transport.TCP, trunks.TLS: transport.TLS}
}

func hostPort(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// Originate sends an INVITE and waits for the first response of the trunk. If the INVITE cannot be
// sent, Originate tries the next trunk. If the trunk refuses the call, Originate returns a
// carrier.Refused.
func (c *Carrier) Originate(ctx context.Context, o carrier.Originate) (dialedAt time.Time, err error) {
	if o.Test {
		return time.Time{}, fmt.Errorf("originate %s of a test workspace: %w", o.CallID, carrier.ErrNotPermitted)
	}
	if !c.originated.AddIfNew(o.CallID) {
		return time.Time{}, fmt.Errorf("originate %s: %w", o.CallID, carrier.ErrAlreadyOriginated)
	}
	candidates, err := c.listCandidates(ctx, o.ExcludeTrunks)
	if err != nil {
		return time.Time{}, notSentError(o, err)
	}
	return c.offerCall(ctx, o, candidates)
}

// offerCall offers the call to one candidate after the other, until a trunk accepts or refuses it.
func (c *Carrier) offerCall(
	ctx context.Context, o carrier.Originate, candidates []trunks.Trunk,
) (dialedAt time.Time, err error) {
	rest := slices.DeleteFunc(slices.Clone(candidates), func(t trunks.Trunk) bool { return !mayShowNumber(t, o) })
	hasOtherNumbers := len(candidates) > len(rest)
	if len(rest) == 0 {
		err = errOtherNumber
	}
	for len(rest) > 0 {
		var trunk trunks.Trunk
		trunk, rest = c.selector.Next(rest, o.TrunkID, time.Now())
		known := c.monitored.healthOf(trunk.TrunkID)
		if !known.reserveCall(o.WorkspaceID) {
			err = errors.Join(err, fmt.Errorf("trunk %s: %w", trunk.Name, errCircuitOpen))
			continue
		}
		pending, fault := c.sendInvite(ctx, o, trunk, len(rest) > 0 || hasOtherNumbers)
		if fault == nil {
			fault = c.awaitResult(ctx, o, pending)
			// Without an answer, it is not known whether the trunk works. So the circuit does not count
			// this INVITE.
			if errors.Is(fault, errNoAnswerYet) {
				known.cancelReservation()
				return pending.leg.dialedAt, nil
			}
			c.countInvite(trunk, fault)
			return pending.leg.dialedAt, fault
		}
		c.countNotSent(known, fault)
		var noAgent *noAgentError
		if errors.As(fault, &noAgent) {
			return time.Time{}, &carrier.Refused{
				Cause: callstate.AgentError, NotSent: true, OperatorFault: true, Err: fault,
			}
		}
		if errors.Is(fault, carrier.ErrAlreadyOriginated) || errors.Is(fault, carrier.ErrNotPermitted) || ctx.Err() != nil {
			return time.Time{}, fault
		}
		if err = errors.Join(err, fmt.Errorf("trunk %s: %w", trunk.Name, fault)); errors.Is(fault, errLegNotDeleted) {
			break
		}
	}
	return time.Time{}, notSentError(o, err)
}

// mayShowNumber reports whether the trunk would send the caller number that is stored for the call.
func mayShowNumber(t trunks.Trunk, o carrier.Originate) bool {
	if o.TrunkNumber {
		return slices.Contains(t.CallerIDs, o.From)
	}
	return t.CallerID(o.From) == o.From
}

// countNotSent counts an INVITE that was not sent. If the trunk accepted no connection, its circuit
// opens. A fault of the database or of this process is not counted.
func (c *Carrier) countNotSent(to *trunkHealth, fault error) {
	var unsent *transport.NotSent
	if errors.As(fault, &unsent) && !errors.Is(fault, sip.ErrLocalFault) && !errors.Is(fault, carrier.ErrNotPermitted) {
		to.countUnreachable(fault)
		return
	}
	to.cancelReservation()
}

// openSession opens the agent's session before the phone rings. Otherwise a person could answer a
// call without an agent.
func openSession(ctx context.Context, conversation Conversation) error {
	ctx, cancel := context.WithTimeout(ctx, sessionOpenTimeout)
	defer cancel()
	if err := conversation.Ready(ctx); err != nil {
		return &noAgentError{err}
	}
	return nil
}

// noAgentError is returned if the agent's session could not be opened. Originate then tries no
// other trunk.
type noAgentError struct{ err error }

func (e *noAgentError) Error() string { return fmt.Sprintf("open agent session: %v", e.err) }

func (e *noAgentError) Unwrap() error { return e.err }

// pendingOriginate is a leg, and the channel that receives the result of the INVITE: nil if the
// trunk accepted the call, otherwise an error.
type pendingOriginate struct {
	leg    *leg
	answer <-chan error
}

// sendInvite sends the INVITE. If it returns an error, nothing was sent. hasAlternative is true if
// another trunk can be tried after this trunk.
func (c *Carrier) sendInvite(
	ctx context.Context, o carrier.Originate, trunk trunks.Trunk, hasAlternative bool,
) (pendingOriginate, error) {
	conversation, err := c.conversations.Begin(ctx, o.CallID, trunk)
	if err != nil {
		return pendingOriginate{}, err
	}
	if err := openSession(ctx, conversation); err != nil {
		conversation.End()
		return pendingOriginate{}, err
	}
	result := make(chan error, 1)
	record := store.Leg{
		CallID: o.CallID, TrunkID: trunk.TrunkID, Channels: trunk.Channels, From: o.From, To: o.To,
		Attempt: newAttempt(trunk, o.CallID.String()),
	}
	l := &leg{
		carrier: c, callID: o.CallID, conversation: conversation, trunk: trunk, result: result,
		health: c.monitored.healthOf(trunk.TrunkID),
		record: record, request: o, workspaceID: o.WorkspaceID, slowTrunk: make(chan struct{}),
	}
	if hasAlternative {
		l.retryableTrunk = trunk.TrunkID.String()
	}
	c.addLeg(l)
	order := sip.Invite{
		CallID: record.Attempt.SIPCallID, From: trunk.Write(o.From), To: trunk.Write(o.To), Body: conversation.Offer(),
		Ring: c.cfg.Ring,
		Permit: func(ctx context.Context) bool {
			// MayUse can wait for the database. So Permitted, which checks the age of the gates' result,
			// must be called last.
			if !c.cfg.Pauses.MayUse(ctx, trunk.TrunkID) {
				l.isTrunkPaused.Store(true)
				return false
			}
			return o.Permitted(ctx)
		},
	}
	if limit := c.cfg.RingLimit; limit > 0 && limit < sip.FirstRing {
		order.FirstRing, order.NotRinging = limit, callstate.NoAnswer
	}
	d, err := c.agent.Invite(ctx, sipTrunk(trunk), order, l.outboundObserver())
	if err != nil {
		return pendingOriginate{}, c.inviteNotSent(ctx, l, o, err)
	}
	l.attachDialog(d)
	return pendingOriginate{l, result}, nil
}

func (c *Carrier) awaitResult(ctx context.Context, o carrier.Originate, f pendingOriginate) error {
	if err := f.result(ctx, o); err != nil {
		return fmt.Errorf("originate %s: %w", o.CallID, err)
	}
	return nil
}

func (f pendingOriginate) result(ctx context.Context, o carrier.Originate) error {
	hesitated, stop := f.leg.slowTrunk, (<-chan struct{})(nil)
	for {
		select {
		case err := <-f.answer:
			return err
		case <-hesitated:
			hesitated, stop = nil, o.Waiting()
		case <-stop:
			stop = nil
			f.leg.recordAccepted(time.Now())
		case <-ctx.Done():
			f.leg.mu.Lock()
			f.leg.result = nil
			f.leg.mu.Unlock()
			select {
			case err := <-f.answer: // the result and the end of ctx arrived at the same time
				return err
			default:
				return ctx.Err()
			}
		}
	}
}

// inviteNotSent ends a call whose INVITE was not sent, and deletes its leg.
func (c *Carrier) inviteNotSent(ctx context.Context, l *leg, o carrier.Originate, reason error) error {
	l.conversation.End()
	if errors.Is(reason, store.ErrLegExists) { // another process has already sent an INVITE
		c.removeLeg(l)
		return fmt.Errorf("originate %s: %w", o.CallID, carrier.ErrAlreadyOriginated)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), journalTimeout)
	defer cancel()
	if errors.Is(reason, transport.ErrNotPermitted) {
		reason = fmt.Errorf("%w: %w", l.notPermittedError(), reason)
	}
	end := sip.End{At: time.Now(), Cause: callstate.NetworkOutOfOrder, ByUs: true, Err: reason}
	l.logEnd(end)
	// A leg that is not deleted would use a channel of the trunk permanently.
	if err := c.legStore.DeleteRefused(ctx, l.record, refusalOf(end)); err != nil {
		l.enqueue(entry{last: true, write: func(ctx context.Context) error {
			return c.legStore.DeleteRefused(ctx, l.record, refusalOf(end))
		}})
		return errors.Join(reason, errLegNotDeleted, err)
	}
	c.removeLeg(l)
	return reason
}

var errLegNotDeleted = errors.New("the INVITE was not sent, and the leg of the call was not deleted")

func notSentError(o carrier.Originate, reason error) error {
	reason = fmt.Errorf("originate %s: %w", o.CallID, reason)
	return &carrier.Refused{Cause: callstate.NetworkOutOfOrder, NotSent: true, OperatorFault: true, Err: reason}
}
