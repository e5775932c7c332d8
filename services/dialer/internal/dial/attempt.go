package dial

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/peers"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// notYet is when to look again at what the copies of agents.v1 and workspaces.v1 do not tell yet; each look at an unknown agent waits longer.
	notYet = 500 * time.Millisecond
	// noAnswer is when to ask the gate again that did not answer.
	noAnswer = time.Second
	// noNumberYet is when to choose a number again if none could be chosen.
	noNumberYet = time.Second
	// releasedRest is the first pause before a request is claimed again that a fault of the operator's trunk sent back.
	releasedRest = time.Second
	// mostOwnAgent is how many attempts of a request may fail because its workspace's own model cannot be reached.
	mostOwnAgent = 5
	// longestAgentRest bounds the wait for an agent that cannot be reached: another process may reach it.
	longestAgentRest = 5 * time.Second
	// numberBusy is when to look again at a number that is in a call.
	numberBusy = 250 * time.Millisecond
	// gatePatience is how long a committed fence waits for a gate that has stopped answering: less than until the
	// watchdog ends the shortest call.
	gatePatience = 100 * time.Second
	// lastPatience is what any wait has left once the process was told to stop: it has 20 s to end (libs/service), and other parts end behind this one.
	lastPatience = 15 * time.Second
)

// attempt dials one claimed request. When stopping ends, nothing new begins; a request that has its fence is
// dialed. free can be called early, if the attempt only waits for a trunk.
func (d *Dialer) attempt(stopping context.Context, r dialqueue.Request, known circumstances, free func()) {
	waited := time.Duration(0)
	if r.QueuedAt != nil {
		waited = time.Since(*r.QueuedAt)
	}
	ctx, span := telemetry.Continue(context.WithoutCancel(stopping), "dial", r.Traceparent, waited, telemetry.CallRequestID(r.CallRequestID.String()))
	defer span.End()
	failpoint.Inject("dialer: after claim")
	result, err := d.try(ctx, stopping, r, known, free)
	d.dials.WithLabelValues(result).Inc()
	if notDialed(result) {
		d.unused.add(r)
	}
	switch {
	case err != nil:
		slog.WarnContext(ctx, "attempt to dial stopped", "call_request_id", r.CallRequestID, "result", result, "error", err)
	case result != "put_back" && result != "lost": // those come again soon
		slog.InfoContext(ctx, "attempt to dial", "call_request_id", r.CallRequestID, "result", result)
	}
	d.relay.Wake()
}

// notDialed reports whether an attempt with the result ended before anything was sent to the carrier.
func notDialed(result string) bool {
	switch result {
	case "put_back", "blocked", "rescheduled", "gate_silent", "not_intended", "lost", string(dialqueue.Failed):
		return true
	}
	return false
}

// try answers what became of the attempt, from a closed set of words. A request that is still queued after a fault comes again when the claim runs
// out.
func (d *Dialer) try(
	ctx, stopping context.Context, r dialqueue.Request, known circumstances, free func(),
) (result string, err error) {
	if known.err != nil {
		return "fault", known.err
	}
	refused, clear := r.Check(known.Workspace, known.Agent, known.OptedOut)
	if !clear {
		looked := 0
		if known.Workspace != nil {
			looked = 1
		}
		return "put_back", d.store.PutBack(ctx, r, notYet*time.Duration(1+r.Looks), looked)
	}
	if refused != nil {
		return "blocked", unlessLost(d.store.Block(ctx, r, *refused))
	}
	if stopping.Err() != nil {
		return "put_back", d.store.PutBack(ctx, r, 0, 0)
	}
	over, rest := d.reach(known.Agent)
	defer over()
	if rest > 0 { // no phone rings while the agent cannot be reached
		return "put_back", d.store.PutBack(ctx, r, min(rest, longestAgentRest), 0)
	}
	answer, err := d.contacts.Check(ctx, r)
	answer = answer.Since(known.at) // the workspace and the agent are as old as that
	if err != nil {
		return "gate_silent", errors.Join(err, d.store.PutBack(ctx, r, noAnswer, 0))
	}
	failpoint.Inject("dialer: after gate")
	switch {
	case answer.Refused != nil:
		return "blocked", unlessLost(d.store.Block(ctx, r, *answer.Refused))
	case !answer.Until.IsZero():
		return "rescheduled", unlessLost(d.store.Reschedule(ctx, r, answer.Until))
	}
	r.TimeZone = answer.TimeZone
	callID, err := uuid.NewV7()
	if err != nil {
		return "fault", err
	}
	wanted := known.Agent.From(known.Number)
	from, chosen, err := d.from(ctx, wanted, nil)
	if errors.Is(err, carrier.ErrNoNumber) {
		return "blocked", unlessLost(d.store.Block(ctx, r, dialqueue.NoNumber()))
	}
	if err != nil {
		return "put_back", errors.Join(err, d.store.PutBack(ctx, r, noNumberYet, 0))
	}
	done, ok := d.carrier.allow()
	if !ok { // before the fence: nobody's request fails for a trunk that is known to be in trouble
		return "put_back", d.store.PutBack(ctx, r, notYet, 0)
	}
	defer done()
	life, order := d.heart.Life(), carrier.Originate{
		CallID: callID, WorkspaceID: r.WorkspaceID, From: from, TrunkNumber: from != wanted, To: string(r.To), Over: chosen,
		Waiting: func() <-chan struct{} {
			free()
			return stopping.Done()
		},
	}
	defer d.underway.add(callID)()
	if err := d.intend(ctx, r, order); err != nil {
		return "not_intended", errors.Join(err, d.store.PutBack(ctx, r, notYet, 0))
	}
	failpoint.Inject("dialer: after intent")
	if err := d.fence(ctx, r, order); err != nil {
		if errors.Is(err, store.ErrLost) {
			d.withdraw(r, order)
			return "lost", d.store.PutBack(ctx, r, numberBusy, 0)
		}
		if !d.fencedDespite(ctx, r, order) {
			return "fault", err
		}
	}
	d.relay.Wake()
	failpoint.Inject("dialer: after fence")
	own := agent.OwnedByWorkspace(known.Agent.Kind, known.Agent.BaseURL, known.Agent.MediaURL)
	return d.originateFenced(ctx, fenced{order: order, wanted: wanted, ownAgent: own, answer: answer, life: life}, r)
}

// from returns the number that the phone will show and the trunk that is tried first.
func (d *Dialer) from(ctx context.Context, wanted string, without []string) (number, over string, err error) {
	if d.limits.From == nil {
		return cmp.Or(wanted, dialqueue.DefaultFrom), "", nil
	}
	return d.limits.From(ctx, wanted, without)
}

// reach reserves a call at the address of an agent. If rest is positive, the circuit of the address is open.
func (d *Dialer) reach(who *dialqueue.Agent) (over func(), rest time.Duration) {
	address, ok := agent.AddressOf(who.WorkspaceID, who.Kind, who.BaseURL, who.MediaURL)
	if !ok {
		return func() {}, 0
	}
	return d.limits.Agents.Allow(address)
}

// fenced is a try that has its fence, and what lets it be dialled.
type fenced struct {
	order carrier.Originate
	// wanted is the number that the agent calls from; a trunk may show another one.
	wanted string
	// ownAgent: the agent runs on a model of the workspace, not on the operator's.
	ownAgent bool
	answer   peers.Answer
	// life is the heart's from before the fence was known to be ours.
	life int64
	// dialedAt is when the first request left that can make the phone ring; zero if none has left.
	dialedAt time.Time
	// refused is the refusal of the previous trunk, whose first request left at refusedAt; nil:
	// this is the first trunk.
	refused   *carrier.Refused
	refusedAt time.Time
}

// dialed returns dialedAt, or the current time if it is not known when a request left.
func (f fenced) dialed() time.Time {
	if f.dialedAt.IsZero() {
		return time.Now().UTC().Truncate(time.Microsecond)
	}
	return f.dialedAt
}

// observeLate measures the time from due to the first request, once for an attempt.
func (d *Dialer) observeLate(ctx context.Context, f fenced, r dialqueue.Request) {
	if f.refused == nil && !f.dialedAt.IsZero() {
		telemetry.Observe(ctx, d.late(r.HeldBack), f.dialedAt.Sub(r.DueAt).Seconds())
	}
}

// originateFenced dials what is fenced. It runs once for a fence, in the process that committed it, or not at all.
func (d *Dialer) originateFenced(ctx context.Context, f fenced, r dialqueue.Request) (result string, err error) {
	for !f.answer.Good() || !d.lives(f.life) {
		if !d.lives(f.life) { // the others may have thought us dead and ended this call
			var mine bool
			if f.life, mine, err = d.stillMine(ctx, f.order.CallID); err != nil {
				return "fault", err
			}
			if !mine {
				return "fault", errors.New("the fence is not ours any more")
			}
		}
		if f.answer.Good() {
			continue
		}
		var stop *dialqueue.Refusal
		var state dialqueue.State
		if f.answer, stop, state = d.askAgain(ctx, r); stop != nil {
			return d.stop(ctx, f, r, state, *stop)
		}
	}
	failpoint.Inject("dialer: before originate")
	permit := &permit{dialer: d, request: r, life: f.life, answer: f.answer}
	f.order.Permit = permit.allow
	var said error
	f.dialedAt, said = d.originate(ctx, f.order)
	failpoint.Inject("dialer: after originate")
	var refused *carrier.Refused
	answer, stop, state := permit.result()
	f.answer = answer
	if errors.As(said, &refused) {
		d.observeLate(ctx, f, r)
		return d.refused(ctx, f, r, refused, said)
	}
	if errors.Is(said, carrier.ErrNotPermitted) {
		switch {
		case stop != nil:
			return d.stop(ctx, f, r, state, *stop)
		case f.refused != nil:
			return d.endRefused(ctx, f, r)
		}
		return d.release(ctx, f, r, said)
	}
	d.observeLate(ctx, f, r)
	d.carrier.heard(ctx, said)
	result, err = d.settle(ctx, f, said)
	failpoint.Inject("dialer: after originate commit")
	return result, err
}

// stop ends an attempt that the gates refuse after its fence. If a trunk has refused the request before, the
// request has a call, and the refusal of that trunk is its end.
func (d *Dialer) stop(
	ctx context.Context, f fenced, r dialqueue.Request, state dialqueue.State, refusal dialqueue.Refusal,
) (result string, err error) {
	if f.refused != nil {
		return d.endRefused(ctx, f, r)
	}
	void := func() error { return d.store.Void(ctx, r, f.order.CallID, state, refusal) }
	return string(state), unlessLost(d.insist(ctx, void))
}

// release queues the request again after a refusal that only the operator can repair, or if this process may
// not dial any more. The call of the attempt becomes void: no phone rang, and no event named the call.
func (d *Dialer) release(ctx context.Context, f fenced, r dialqueue.Request, said error) (result string, err error) {
	failpoint.Inject("dialer over sip: before release")
	var cause callstate.Cause
	if refused := (*carrier.Refused)(nil); errors.As(said, &refused) {
		cause = refused.Cause
	}
	err = d.insist(ctx, func() error { return d.store.Release(ctx, r, f.order.CallID, cause, releasedRest) })
	if err == nil { // a call that another process has ended keeps its intent (ADR 4)
		d.withdraw(r, f.order)
	}
	return "released", errors.Join(said, unlessLost(err))
}

// settle stores what the carrier answered to the originate.
func (d *Dialer) settle(ctx context.Context, f fenced, said error) (result string, err error) {
	callID, dialedAt := f.order.CallID, f.dialed()
	initiate := func(c *callstate.Call) { c.Initiate(dialedAt) }
	var refused *carrier.Refused
	switch {
	case said == nil:
		return "dialed", d.change(ctx, callID, initiate)
	case errors.As(said, &refused):
		return "refused", errors.Join(said, d.change(ctx, callID, func(c *callstate.Call) {
			c.Initiate(dialedAt)
			c.End(callstate.End{At: time.Now(), Cause: refused.Cause, AccountSuspected: refused.AccountSuspected})
		}))
	}
	// It is not known whether the phone rings, so the call is never dialed again.
	if _, err := d.carrier.Find(ctx, callID); err == nil {
		return "dialed", d.change(ctx, callID, initiate)
	}
	return "unknown", errors.Join(said, d.change(ctx, callID, (*callstate.Call).Doubt))
}

func (d *Dialer) change(ctx context.Context, callID uuid.UUID, decide func(*callstate.Call)) error {
	return d.insist(ctx, func() error { return d.changes.do(callChange{callID, decide}) })
}

// askAgain asks the gates, and this service's own checks, until both answer. If stop is not nil,
// one of them refuses the dial, or they did not answer in time.
func (d *Dialer) askAgain(ctx context.Context, r dialqueue.Request) (answer peers.Answer, stop *dialqueue.Refusal, state dialqueue.State) {
	for begun := time.Now(); d.waits(begun, gatePatience) && ctx.Err() == nil; {
		answer, err := d.contacts.Check(ctx, r)
		switch {
		case err != nil:
			rest(ctx, numberBusy)
			continue
		case answer.Refused != nil:
			return answer, answer.Refused, dialqueue.Blocked
		case !answer.Until.IsZero():
			return answer, &dialqueue.Refusal{
				Code: dialqueue.CodeOutsideHours, Detail: "The calling window closed in the moment of dialling; ask for the call again within it.",
			}, dialqueue.Blocked
		}
		known, err := d.store.DialInputs(ctx, r)
		if err != nil {
			rest(ctx, numberBusy)
			continue
		}
		if refused, _ := r.Check(known[0].Workspace, known[0].Agent, known[0].OptedOut); refused != nil {
			return answer, refused, dialqueue.Blocked
		}
		return answer, nil, dialqueue.Dialing
	}
	return peers.Answer{}, &dialqueue.Refusal{
		Code: dialqueue.CodeInternal, Detail: "It could not be confirmed that the call is still allowed, so it was not placed; ask for it again.",
	}, dialqueue.Failed
}

// rest waits for a time, or until ctx ends.
func rest(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// waits says whether a fence that has waited since begun goes on waiting.
func (d *Dialer) waits(begun time.Time, patience time.Duration) bool {
	told := d.told.Load()
	return time.Since(begun) < patience && (told == nil || time.Since(*told) < lastPatience)
}

func (d *Dialer) lives(life int64) bool { return life > 0 && d.heart.Life() == life }

// stillMine asks the database whether the fence is still ours to dial, and answers the heart's life from before it was asked.
func (d *Dialer) stillMine(ctx context.Context, callID uuid.UUID) (life int64, mine bool, err error) {
	err = d.insist(ctx, func() error {
		if err := d.heart.Beat(ctx); err != nil {
			return err
		}
		life = d.heart.Life()
		mine, err = d.store.StillFenced(ctx, callID)
		return err
	})
	return life, mine, err
}

// fencedDespite reports whether a fence is committed although the commit was not acknowledged. To put the request back
// waits for a commit that is still running, and ends the claim of one that never arrived. The intent of a fence that is
// not committed is withdrawn.
func (d *Dialer) fencedDespite(ctx context.Context, r dialqueue.Request, o carrier.Originate) bool {
	err := d.insist(ctx, func() error { return d.store.PutBack(ctx, r, notYet, 0) })
	if err != nil {
		return false
	}
	_, mine, err := d.stillMine(ctx, o.CallID)
	if err == nil && !mine {
		d.withdraw(r, o)
	}
	return err == nil && mine
}

// insist repeats a write that must happen while the database is away. It gives up after a minute: what is left then is an orphan, and
// recovery's.
func (d *Dialer) insist(ctx context.Context, write func() error) error {
	for begun := time.Now(); ; time.Sleep(notYet) {
		err := write()
		if err == nil || errors.Is(err, store.ErrLost) || time.Since(begun) > time.Minute || ctx.Err() != nil {
			return err
		}
		slog.WarnContext(ctx, "a write that must happen is tried again", "error", err)
	}
}

// unlessLost takes it that somebody else was first: the request was withdrawn.
func unlessLost(err error) error {
	if errors.Is(err, store.ErrLost) {
		return nil
	}
	return err
}
