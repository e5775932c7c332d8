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
	// retryDelay is the time until the next attempt if the agent or the workspace is not known yet, or
	// if the carrier's circuit breaker is open. If the agent is unknown, each further attempt waits
	// longer. retryWrite also waits for retryDelay between two tries.
	retryDelay = 500 * time.Millisecond
	// gateRetryDelay is the time until the next attempt if contacts-compliance did not respond to
	// the dial-time check.
	gateRetryDelay = time.Second
	// numberRetryDelay is the time until the next attempt if no caller number could be chosen.
	numberRetryDelay = time.Second
	// releaseDelay is how long a request waits after its first release. A request is released if a
	// fault of the operator's trunk or account prevented the dial.
	releaseDelay = time.Second
	// maxOwnAgentAttempts is the highest number of attempts of a request whose agent uses the
	// workspace's own model, if that model cannot be reached.
	maxOwnAgentAttempts = 5
	// maxAgentDelay is the maximum delay of a request whose agent cannot be reached from this
	// process. Another process can possibly reach the agent, so the delay is short.
	maxAgentDelay = 5 * time.Second
	// busyNumberDelay is the time until the next attempt if the called number is already in a call. It
	// is also the time between two dial-time checks of a call whose fence is committed.
	busyNumberDelay = 250 * time.Millisecond
	// gateTimeout is the longest time that a call with a committed fence waits for a dial-time check.
	// It is shorter than the time after which the watchdog ends the shortest call.
	gateTimeout = 100 * time.Second
	// stopTimeout limits every wait after the process has begun to stop. The process must end
	// within 20 s (libs/service), and other components of the process stop after the dialer.
	stopTimeout = 15 * time.Second
)

// runAttempt dials one claimed request. stopCtx ends when the process begins to stop. From then on,
// runAttempt dials only if the fence is already committed. The attempt calls freeWorker while it
// only waits for a trunk, so that the worker can start another attempt.
func (d *Dialer) runAttempt(stopCtx context.Context, r dialqueue.Request, inputs dialInputs, freeWorker func()) {
	waited := time.Duration(0)
	if r.QueuedAt != nil {
		waited = time.Since(*r.QueuedAt)
	}
	ctx, span := telemetry.Continue(
		context.WithoutCancel(stopCtx),
		"dial",
		r.Traceparent,
		waited,
		telemetry.CallRequestID(r.CallRequestID.String()),
	)
	defer span.End()
	failpoint.Inject("dialer: after claim")
	result, err := d.dialRequest(ctx, stopCtx, r, inputs, freeWorker)
	d.dials.WithLabelValues(result).Inc()
	if notDialed(result) {
		d.unusedTokens.add(r)
	}
	switch {
	case err != nil:
		slog.WarnContext(ctx, "dial attempt ended with an error",
			"call_request_id", r.CallRequestID, "result", result, "error", err)
	// Attempts with these results are not logged, because the request is tried again after a short
	// time.
	case result != "put_back" && result != "lost":
		slog.InfoContext(ctx, "dial attempt ended", "call_request_id", r.CallRequestID, "result", result)
	}
	d.relay.Wake()
}

// notDialed reports whether an attempt with this result ended before any message was sent to the
// carrier. The rate token of the request is then returned.
func notDialed(result string) bool {
	switch result {
	case "put_back", "blocked", "rescheduled", "gate_silent", "not_intended", "lost", string(dialqueue.Failed):
		return true
	}
	return false
}

// endBeforeGates handles a request that cannot be dialed now, whatever the gates decide. It blocks
// the request, fails it, or puts it back into the queue. It returns "" if the gates must decide.
func (d *Dialer) endBeforeGates(ctx, stopCtx context.Context, r dialqueue.Request, inputs dialInputs) (string, error) {
	if inputs.err != nil {
		return "fault", inputs.err
	}
	refused, clear := r.Check(inputs.Workspace, inputs.Agent, inputs.OptedOut)
	if !clear {
		looked := 0
		if inputs.Workspace != nil {
			looked = 1
		}
		return "put_back", d.store.PutBack(ctx, r, retryDelay*time.Duration(1+r.Looks), looked)
	}
	if refused != nil {
		return "blocked", ignoreLost(d.store.Block(ctx, r, *refused))
	}
	if stopCtx.Err() != nil {
		return "put_back", d.store.PutBack(ctx, r, 0, 0)
	}
	if !d.store.Modes().Include(*inputs.Workspace) { // rare: store.Due omits workspaces of other modes (live or test)
		return "put_back", d.store.PutBack(ctx, r, retryDelay, 0)
	}
	if d.limits.Refuse != nil {
		return string(dialqueue.Failed), ignoreLost(d.store.Fail(ctx, r, *d.limits.Refuse))
	}
	return "", nil
}

// dialRequest dials one request and returns the value for the metric label result. If an error
// leaves the request queued, another attempt begins when the claim expires.
func (d *Dialer) dialRequest(
	ctx, stopCtx context.Context, r dialqueue.Request, inputs dialInputs, freeWorker func(),
) (result string, err error) {
	if result, err := d.endBeforeGates(ctx, stopCtx, r, inputs); result != "" {
		return result, err
	}
	done, wait := d.reserveAgentCall(inputs.Agent)
	defer done()
	if wait > 0 { // the agent's circuit is open: the phone would ring, but no agent could talk
		return "put_back", d.store.PutBack(ctx, r, min(wait, maxAgentDelay), 0)
	}
	answer, err := d.contacts.Check(ctx, r, inputs.Workspace)
	// The result of the gates is valid for 2 s from the time at which the workspace and the agent were
	// read.
	answer = answer.Since(inputs.at)
	if err != nil {
		return "gate_silent", errors.Join(err, d.store.PutBack(ctx, r, gateRetryDelay, 0))
	}
	failpoint.Inject("dialer: after gate")
	switch {
	case answer.Refused != nil:
		return "blocked", ignoreLost(d.store.Block(ctx, r, *answer.Refused))
	case !answer.Until.IsZero():
		return "rescheduled", ignoreLost(d.store.Reschedule(ctx, r, answer.Until))
	}
	if !d.limits.Pauses.MayDial(ctx, r.WorkspaceID, r.AgentID) {
		return "put_back", d.store.PutBack(ctx, r, retryDelay, 0)
	}
	r.TimeZone = answer.TimeZone
	callID, err := uuid.NewV7()
	if err != nil {
		return "fault", err
	}
	wanted := inputs.Agent.From(inputs.Number)
	from, chosen, err := d.chooseNumber(ctx, wanted, nil)
	if errors.Is(err, carrier.ErrNoNumber) {
		return "blocked", ignoreLost(d.store.Block(ctx, r, dialqueue.NoNumber()))
	}
	if err != nil {
		return "put_back", errors.Join(err, d.store.PutBack(ctx, r, numberRetryDelay, 0))
	}
	release, ok := d.carrier.reserveCall()
	if !ok { // this check must be before the fence, because a later failure would end the request
		return "put_back", d.store.PutBack(ctx, r, retryDelay, 0)
	}
	defer release()
	generation, order := d.heartbeat.Generation(), carrier.Originate{
		CallID:      callID,
		WorkspaceID: r.WorkspaceID,
		Test:        inputs.Workspace.Test,
		From:        from,
		TrunkNumber: from != wanted,
		To:          string(r.To),
		TrunkID:     chosen,
		Waiting: func() <-chan struct{} {
			freeWorker()
			return stopCtx.Done()
		},
	}
	defer d.activeCalls.add(callID)()
	if err := d.publishIntent(ctx, r, order); err != nil {
		return "not_intended", errors.Join(err, d.store.PutBack(ctx, r, retryDelay, 0))
	}
	failpoint.Inject("dialer: after intent")
	if err := d.commitFence(ctx, r, order); err != nil {
		if errors.Is(err, store.ErrLost) {
			d.withdrawIntent(r, order)
			return "lost", d.store.PutBack(ctx, r, busyNumberDelay, 0)
		}
		if !d.isFenceCommitted(ctx, r, order) {
			return "fault", err
		}
	}
	d.relay.Wake()
	failpoint.Inject("dialer: after fence")
	ownAgent := agent.OwnedByWorkspace(inputs.Agent.Kind, inputs.Agent.BaseURL, inputs.Agent.MediaURL)
	return d.originateFenced(
		ctx,
		fencedCall{order: order, agentNumber: wanted, ownAgent: ownAgent, answer: answer, generation: generation},
		r,
	)
}

// chooseNumber returns the number that the called phone shows, and the trunk that must be tried
// first. The trunks in excludedTrunks have already refused the call.
func (d *Dialer) chooseNumber(
	ctx context.Context, agentNumber string, excludedTrunks []string,
) (number, trunk string, err error) {
	if d.limits.From == nil {
		return cmp.Or(agentNumber, dialqueue.DefaultFrom), "", nil
	}
	return d.limits.From(ctx, agentNumber, excludedTrunks)
}

// reserveAgentCall reserves a call at the address of an agent. If wait is positive, the circuit of
// the address is open, and no call is reserved. Otherwise the caller must call done at the end of
// the attempt.
func (d *Dialer) reserveAgentCall(a *dialqueue.Agent) (done func(), wait time.Duration) {
	address, ok := agent.AddressOf(a.WorkspaceID, a.Kind, a.BaseURL, a.MediaURL)
	if !ok {
		return func() {}, 0
	}
	return d.limits.Agents.Allow(address)
}

type fencedCall struct {
	order carrier.Originate
	// agentNumber is the caller number of the agent. A trunk can send a different caller number.
	agentNumber string
	// ownAgent is true if the agent runs on a model of the workspace. It is false if the agent runs
	// on the operator's model.
	ownAgent bool
	answer   peers.Answer
	// generation is the generation of the heartbeat (see calls.Heartbeat), read before the database
	// confirmed that this process owns the fence.
	generation int64
	// dialedAt is the time of the first SIP request that can make the phone ring. It is zero if no
	// such request was sent.
	dialedAt time.Time
	// previousRefusal is the refusal by the previous trunk, or nil for the first trunk. refusedAt
	// is the time of the first SIP request to the previous trunk.
	previousRefusal *carrier.Refused
	refusedAt       time.Time
}

func (f fencedCall) dialTime() time.Time {
	if f.dialedAt.IsZero() {
		return time.Now().UTC().Truncate(time.Microsecond)
	}
	return f.dialedAt
}

// observeLateness measures how late a request was dialed. It measures each attempt once, at its
// first trunk.
func (d *Dialer) observeLateness(ctx context.Context, f fencedCall, r dialqueue.Request) {
	if f.previousRefusal == nil && !f.dialedAt.IsZero() {
		telemetry.Observe(ctx, d.latenessObserver(r), f.dialedAt.Sub(r.DueAt).Seconds())
	}
}

// originateFenced dials a call whose fence is committed. Only the process that committed the fence
// may call it, and only once per fence.
func (d *Dialer) originateFenced(ctx context.Context, f fencedCall, r dialqueue.Request) (result string, err error) {
	for !f.answer.IsValid() || !d.sameGeneration(f.generation) {
		// The generation changes if a heartbeat was late. Other processes can then have ended this call.
		if !d.sameGeneration(f.generation) {
			var owned bool
			if f.generation, owned, err = d.confirmFence(ctx, f.order.CallID); err != nil {
				return "fault", err
			}
			if !owned {
				return "fault", errors.New("another process owns the fence")
			}
		}
		if f.answer.IsValid() {
			continue
		}
		var refusal *dialqueue.Refusal
		var state dialqueue.State
		if f.answer, refusal, state = d.repeatChecks(ctx, r); refusal != nil {
			return d.endAttempt(ctx, f, r, state, *refusal)
		}
	}
	failpoint.Inject("dialer: before originate")
	permit := &invitePermit{dialer: d, request: r, generation: f.generation, answer: f.answer}
	f.order.Permit = permit.mayInvite
	var originateErr error
	f.dialedAt, originateErr = d.originate(ctx, f.order)
	failpoint.Inject("dialer: after originate")
	var refused *carrier.Refused
	answer, refusal, state := permit.result()
	f.answer = answer
	if errors.As(originateErr, &refused) {
		// Dialing was paused after the first INVITE, and no phone rang.
		if permit.isPaused() {
			return d.releaseRequest(ctx, f, r, originateErr)
		}
		d.observeLateness(ctx, f, r)
		return d.handleRefusal(ctx, f, r, refused, originateErr)
	}
	if errors.Is(originateErr, carrier.ErrNotPermitted) {
		switch {
		case refusal != nil:
			return d.endAttempt(ctx, f, r, state, *refusal)
		case f.previousRefusal != nil && !permit.isPaused() && !errors.Is(originateErr, carrier.ErrTrunkPaused):
			return d.endRefused(ctx, f, r)
		}
		return d.releaseRequest(ctx, f, r, originateErr)
	}
	d.observeLateness(ctx, f, r)
	d.carrier.recordResult(ctx, originateErr)
	result, err = d.storeResult(ctx, f, originateErr)
	failpoint.Inject("dialer: after originate commit")
	return result, err
}

// endAttempt ends an attempt that the gates refused after its fence was committed. If a trunk has
// already refused the call, the trunk's refusal is the result of the attempt.
func (d *Dialer) endAttempt(
	ctx context.Context, f fencedCall, r dialqueue.Request, state dialqueue.State, refusal dialqueue.Refusal,
) (result string, err error) {
	if f.previousRefusal != nil {
		return d.endRefused(ctx, f, r)
	}
	void := func() error { return d.store.Void(ctx, r, f.order.CallID, state, refusal) }
	return string(state), ignoreLost(d.retryWrite(ctx, void))
}

// releaseRequest queues the request again and makes its call void. No phone rang, and no event
// contained the call.
func (d *Dialer) releaseRequest(
	ctx context.Context,
	f fencedCall,
	r dialqueue.Request,
	originateErr error,
) (result string, err error) {
	failpoint.Inject("dialer over sip: before release")
	var cause callstate.Cause
	if refused := (*carrier.Refused)(nil); errors.As(originateErr, &refused) {
		cause = refused.Cause
	}
	err = d.retryWrite(ctx, func() error { return d.store.Release(ctx, r, f.order.CallID, cause, releaseDelay) })
	if err == nil { // if the release failed, the intent stays valid (ADR 4)
		d.withdrawIntent(r, f.order)
	}
	return "released", errors.Join(originateErr, ignoreLost(err))
}

func (d *Dialer) storeResult(ctx context.Context, f fencedCall, originateErr error) (result string, err error) {
	callID, dialedAt := f.order.CallID, f.dialTime()
	initiate := func(c *callstate.Call) { c.Initiate(dialedAt) }
	var refused *carrier.Refused
	switch {
	case originateErr == nil:
		return "dialed", d.changeCall(ctx, callID, initiate)
	case errors.As(originateErr, &refused):
		return "refused", errors.Join(originateErr, d.changeCall(ctx, callID, func(c *callstate.Call) {
			c.Initiate(dialedAt)
			c.End(callstate.End{At: time.Now(), Cause: refused.Cause, AccountSuspected: refused.AccountSuspected})
		}))
	}
	// Originate returned neither success nor refusal, so the phone may be ringing. The call is never
	// dialed again.
	if _, err := d.carrier.Find(ctx, callID); err == nil {
		return "dialed", d.changeCall(ctx, callID, initiate)
	}
	return "unknown", errors.Join(originateErr, d.changeCall(ctx, callID, (*callstate.Call).Doubt))
}

func (d *Dialer) changeCall(ctx context.Context, callID uuid.UUID, changeState func(*callstate.Call)) error {
	return d.retryWrite(ctx, func() error { return d.changes.write(callChange{callID, changeState}) })
}

// repeatChecks repeats the dial-time check after errors, until gateTimeout ends. If refusal is not
// nil, the request must not be dialed and must end in the returned state.
func (d *Dialer) repeatChecks(
	ctx context.Context,
	r dialqueue.Request,
) (answer peers.Answer, refusal *dialqueue.Refusal, state dialqueue.State) {
	for start := time.Now(); d.withinTimeout(start, gateTimeout) && ctx.Err() == nil; {
		answer, err := d.contacts.Check(ctx, r, nil)
		switch {
		case err != nil:
			sleep(ctx, busyNumberDelay)
			continue
		case answer.Refused != nil:
			return answer, answer.Refused, dialqueue.Blocked
		case !answer.Until.IsZero():
			return answer, &dialqueue.Refusal{
				Code:   dialqueue.CodeOutsideHours,
				Detail: "The calling window closed in the moment of dialling; ask for the call again within it.",
			}, dialqueue.Blocked
		}
		inputs, err := d.store.DialInputs(ctx, r)
		if err != nil {
			sleep(ctx, busyNumberDelay)
			continue
		}
		if refused, _ := r.Check(inputs[0].Workspace, inputs[0].Agent, inputs[0].OptedOut); refused != nil {
			return answer, refused, dialqueue.Blocked
		}
		return answer, nil, dialqueue.Dialing
	}
	return peers.Answer{}, &dialqueue.Refusal{
		Code:   dialqueue.CodeInternal,
		Detail: "It could not be confirmed that the call is still allowed, so it was not placed; ask for it again.",
	}, dialqueue.Failed
}

func sleep(ctx context.Context, wait time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// withinTimeout reports whether a fenced call may still wait. While the process stops, stopTimeout
// applies, too.
func (d *Dialer) withinTimeout(start time.Time, timeout time.Duration) bool {
	stoppedAt := d.stoppedAt.Load()
	return time.Since(start) < timeout && (stoppedAt == nil || time.Since(*stoppedAt) < stopTimeout)
}

func (d *Dialer) sameGeneration(generation int64) bool {
	return generation > 0 && d.heartbeat.Generation() == generation
}

// confirmFence sends a heartbeat and reads whether this process still owns the fence. It reads the
// generation of the heartbeat first. While the generation stays the same, no other process can take
// over the fence.
func (d *Dialer) confirmFence(ctx context.Context, callID uuid.UUID) (generation int64, owned bool, err error) {
	err = d.retryWrite(ctx, func() error {
		if err := d.heartbeat.Send(ctx); err != nil {
			return err
		}
		generation = d.heartbeat.Generation()
		owned, err = d.store.StillFenced(ctx, callID)
		return err
	})
	return generation, owned, err
}

// isFenceCommitted is called if the response to the commit of a fence was lost. If the fence is
// not committed, isFenceCommitted ends the claim and withdraws the intent.
func (d *Dialer) isFenceCommitted(ctx context.Context, r dialqueue.Request, o carrier.Originate) bool {
	// If the commit is still running, PutBack waits for it.
	err := d.retryWrite(ctx, func() error { return d.store.PutBack(ctx, r, retryDelay, 0) })
	if err != nil {
		return false
	}
	_, owned, err := d.confirmFence(ctx, o.CallID)
	if err == nil && !owned {
		d.withdrawIntent(r, o)
	}
	return err == nil && owned
}

// retryWrite repeats a database write until it succeeds. If the database cannot be reached for a
// minute, retryWrite returns the error. The recovery job then ends the call.
func (d *Dialer) retryWrite(ctx context.Context, write func() error) error {
	for start := time.Now(); ; time.Sleep(retryDelay) {
		err := write()
		if err == nil || errors.Is(err, store.ErrLost) || time.Since(start) > time.Minute || ctx.Err() != nil {
			return err
		}
		slog.WarnContext(ctx, "database write of a dial attempt failed, trying again", "error", err)
	}
}

// ignoreLost returns nil for store.ErrLost, and other errors unchanged. After ErrLost nothing is
// left to do: the request was canceled, or another process has claimed it.
func ignoreLost(err error) error {
	if errors.Is(err, store.ErrLost) {
		return nil
	}
	return err
}
