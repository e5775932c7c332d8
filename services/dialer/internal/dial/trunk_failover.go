package dial

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/google/uuid"

	"ringfence.dev/libs/failpoint"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

// handleRefusal tries another trunk for the call. Without another trunk, handleRefusal ends the
// call, or queues the request again if the operator can remove the cause.
func (d *Dialer) handleRefusal(
	ctx context.Context,
	f fencedCall,
	r dialqueue.Request,
	refused *carrier.Refused,
	originateErr error,
) (result string, err error) {
	if refused.RefusedBy != "" {
		return d.tryNextTrunk(ctx, f, r, refused)
	}
	// The trunk was paused after the first INVITE, and no phone rang.
	if errors.Is(refused, carrier.ErrTrunkPaused) {
		return d.releaseRequest(ctx, f, r, originateErr)
	}
	d.carrier.recordResult(ctx, originateErr)
	// No message was sent to this trunk, so the refusal of the previous trunk is the result.
	if refused.NotSent && f.previousRefusal != nil {
		return d.endRefused(ctx, f, r)
	}
	if refused.OperatorFault && !d.givesUpAgent(ctx, f, r, refused) {
		return d.releaseRequest(ctx, f, r, originateErr)
	}
	result, err = d.storeResult(ctx, f, originateErr)
	failpoint.Inject("dialer: after originate commit")
	return result, err
}

// givesUpAgent reports whether this attempt was the last permitted one, because the workspace's own
// model cannot be reached. The request then ends, because only the workspace can repair its model.
func (d *Dialer) givesUpAgent(ctx context.Context, f fencedCall, r dialqueue.Request, refused *carrier.Refused) bool {
	if !f.ownAgent || refused.Cause != callstate.AgentError {
		return false
	}
	released, err := d.store.Releases(ctx, r.CallRequestID, callstate.AgentError)
	return err == nil && released+1 >= maxOwnAgentAttempts
}

// tryNextTrunk dials over the next trunk, with another call id and another fence. No event contains
// the refused call, so customers see only the last call. If no trunk is left, the refusal is the
// result of the attempt.
func (d *Dialer) tryNextTrunk(
	ctx context.Context,
	f fencedCall,
	r dialqueue.Request,
	refused *carrier.Refused,
) (result string, err error) {
	failpoint.Inject("dialer over sip: after refusal")
	slog.InfoContext(ctx, "call refused by the trunk, trying another trunk", "call_request_id", r.CallRequestID,
		"call_id", f.order.CallID, "trunk_id", refused.RefusedBy, "cause", string(refused.Cause), "error", refused.Err)
	// No phone rang, so the request can be dialed after the pause.
	if !d.limits.Pauses.MayDial(ctx, r.WorkspaceID, r.AgentID) {
		return d.releaseRequest(ctx, f, r, refused)
	}
	f.previousRefusal, f.refusedAt = refused, f.dialTime()
	if !f.answer.IsValid() { // the gates must permit the call before the next fence is committed
		answer, stop, _ := d.repeatChecks(ctx, r)
		if stop != nil {
			return d.endRefused(ctx, f, r)
		}
		f.answer = answer
	}
	next := f
	if next.order.CallID, err = uuid.NewV7(); err != nil {
		return d.endRefused(ctx, f, r)
	}
	next.order.ExcludeTrunks = append(slices.Clone(f.order.ExcludeTrunks), refused.RefusedBy)
	next.order.From, next.order.TrunkID, err = d.chooseNumber(ctx, f.agentNumber, next.order.ExcludeTrunks)
	if err != nil {
		return d.endRefused(ctx, f, r)
	}
	next.order.TrunkNumber = next.order.From != f.agentNumber
	next.generation = d.heartbeat.Generation()
	defer d.activeCalls.add(next.order.CallID)()
	if err := d.publishIntent(ctx, r, next.order); err != nil {
		result, end := d.endRefused(ctx, f, r)
		return result, errors.Join(err, end)
	}
	if err := d.commitNextFence(ctx, r, f.order, next.order); err != nil {
		// It is not known whether the fence was committed. The SQL statement of endRefused waits for a
		// commit that is still running. If that commit succeeds, the statement changes nothing.
		result, end := d.endRefused(ctx, f, r)
		if errors.Is(err, store.ErrLost) {
			d.withdrawIntent(r, next.order)
			return result, end
		}
		generation, owned, lookErr := d.confirmFence(ctx, next.order.CallID)
		if lookErr == nil && !owned {
			d.withdrawIntent(r, next.order)
		}
		if lookErr != nil || !owned {
			return result, errors.Join(err, end, lookErr)
		}
		next.generation = generation
	}
	// The fence for the next trunk has made the refused call void. If the refused call's intent stayed
	// valid, a failover could end the request although it is queued again later.
	d.withdrawIntent(r, f.order)
	failpoint.Inject("dialer over sip: after second fence")
	return d.originateFenced(ctx, next, r)
}

// endRefused ends the attempt with the last refusal of a trunk. If the operator must repair the
// cause, or if that trunk was paused during the attempt, it queues the request again.
func (d *Dialer) endRefused(ctx context.Context, f fencedCall, r dialqueue.Request) (result string, err error) {
	if f.previousRefusal.OperatorFault || errors.Is(f.previousRefusal, carrier.ErrTrunkPaused) {
		return d.releaseRequest(ctx, f, r, f.previousRefusal)
	}
	d.carrier.recordResult(ctx, f.previousRefusal)
	f.dialedAt = f.refusedAt
	return d.storeResult(ctx, f, f.previousRefusal)
}
