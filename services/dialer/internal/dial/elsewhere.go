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

// refused continues after a refusal: it tries another trunk if there is one, queues the request again if
// the operator is at fault, and otherwise ends the call.
func (d *Dialer) refused(ctx context.Context, f fenced, r dialqueue.Request, refused *carrier.Refused, said error) (result string, err error) {
	if refused.RefusedBy != "" {
		return d.elsewhere(ctx, f, r, refused)
	}
	d.carrier.heard(ctx, said)
	if refused.NotSent && f.refused != nil { // the refusal of the previous trunk is the result
		return d.endRefused(ctx, f, r)
	}
	if refused.OperatorFault && !d.givesUpAgent(ctx, f, r, refused) {
		return d.release(ctx, f, r, said)
	}
	result, err = d.settle(ctx, f, said)
	failpoint.Inject("dialer: after originate commit")
	return result, err
}

// givesUpAgent reports whether the workspace's own model could not be reached for the last permitted attempt. Only the
// workspace can repair it, so the request ends. Attempts that were released because of a trunk do not count.
func (d *Dialer) givesUpAgent(ctx context.Context, f fenced, r dialqueue.Request, refused *carrier.Refused) bool {
	if !f.ownAgent || refused.Cause != callstate.AgentError {
		return false
	}
	released, err := d.store.Releases(ctx, r.CallRequestID, callstate.AgentError)
	return err == nil && released+1 >= mostOwnAgent
}

// elsewhere tries the next trunk, with a call and a fence of its own (law 1). Nobody was told of the try that was refused, and nobody will be: only the last is a call. Where there can be no
// other try, the refusal stands.
func (d *Dialer) elsewhere(ctx context.Context, f fenced, r dialqueue.Request, refused *carrier.Refused) (result string, err error) {
	failpoint.Inject("dialer over sip: after refusal")
	slog.InfoContext(ctx, "trunk refused the call, trying another", "call_request_id", r.CallRequestID,
		"call_id", f.order.CallID, "trunk_id", refused.RefusedBy, "cause", string(refused.Cause), "error", refused.Err)
	f.refused, f.refusedAt = refused, f.dialed()
	if !f.answer.Good() { // nothing is fenced for a gate that has closed
		answer, stop, _ := d.askAgain(ctx, r)
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
	if next.order.From, next.order.Over, err = d.from(ctx, f.wanted, next.order.ExcludeTrunks); err != nil {
		return d.endRefused(ctx, f, r)
	}
	next.order.TrunkNumber = next.order.From != f.wanted
	next.life = d.heart.Life()
	defer d.underway.add(next.order.CallID)()
	if err := d.intend(ctx, r, next.order); err != nil {
		result, end := d.endRefused(ctx, f, r)
		return result, errors.Join(err, end)
	}
	if err := d.fenceAgain(ctx, r, f.order, next.order); err != nil {
		// The write of this end waits for a commit that is still under way, and changes nothing after it.
		result, end := d.endRefused(ctx, f, r)
		if errors.Is(err, store.ErrLost) {
			d.withdraw(r, next.order)
			return result, end
		}
		life, mine, lookErr := d.stillMine(ctx, next.order.CallID)
		if lookErr == nil && !mine {
			d.withdraw(r, next.order)
		}
		if lookErr != nil || !mine {
			return result, errors.Join(err, end, lookErr)
		}
		next.life = life
	}
	d.withdraw(r, f.order) // otherwise the refused try is open after a release of the next one
	failpoint.Inject("dialer over sip: after second fence")
	return d.originateFenced(ctx, next, r)
}

// endRefused ends the attempt with the last refusal of a trunk. If the operator is at fault, the request is
// queued again instead.
func (d *Dialer) endRefused(ctx context.Context, f fenced, r dialqueue.Request) (result string, err error) {
	if f.refused.OperatorFault {
		return d.release(ctx, f, r, f.refused)
	}
	d.carrier.heard(ctx, f.refused)
	f.dialedAt = f.refusedAt
	return d.settle(ctx, f, f.refused)
}
