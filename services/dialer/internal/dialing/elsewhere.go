package dialing

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/google/uuid"

	"ringfence.dev/libs/crash"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store"
)

// refused goes on behind a refusal: over another trunk, where there is one, or not at all.
func (d *Dialer) refused(ctx context.Context, f fenced, r request.Request, refused *carrier.Refused, said error) (result string, err error) {
	if refused.By != "" {
		return d.elsewhere(ctx, f, r, refused)
	}
	d.carrier.heard(ctx, said)
	if refused.Unsent && f.refused != nil { // it was never asked: what the one before said is what there is
		return d.stands(ctx, f)
	}
	result, err = d.settle(ctx, f.order, said)
	crash.Point("dialer: after originate commit")
	return result, err
}

// elsewhere tries the next trunk, with a call and a fence of its own (law 1). Nobody was told of the try that was refused, and nobody will be: only the last is a call. Where there can be no
// other try, the refusal stands.
func (d *Dialer) elsewhere(ctx context.Context, f fenced, r request.Request, refused *carrier.Refused) (result string, err error) {
	crash.Point("dialer over sip: after refusal")
	slog.InfoContext(ctx, "a trunk refused and another is tried", "call_request_id", r.CallRequestID, "trunk", refused.By, "cause", string(refused.Cause))
	f.refused, f.refusedAt = refused, f.order.DialedAt
	if !f.answer.Good() { // nothing is fenced for a gate that has closed
		answer, stop, _ := d.askAgain(ctx, r)
		if stop != nil {
			return d.stands(ctx, f)
		}
		f.answer = answer
	}
	next := f
	if next.order.CallID, err = uuid.NewV7(); err != nil {
		return d.stands(ctx, f)
	}
	next.order.Without = append(slices.Clone(f.order.Without), refused.By)
	next.life = d.heart.Life()
	if err := d.fenceAgain(ctx, r, f.order, next.order); err != nil {
		// That the refusal stands waits for a commit that is still under way, and forestalls one that never came.
		result, stood := d.stands(ctx, f)
		if errors.Is(err, store.ErrLost) || stood != nil {
			return result, stood
		}
		life, mine, lookErr := d.stillMine(ctx, next.order.CallID)
		if lookErr != nil || !mine {
			return result, errors.Join(err, lookErr)
		}
		next.life = life
	}
	crash.Point("dialer over sip: after second fence")
	return d.place(ctx, next, r)
}

// stands ends the call of a try with what a trunk said to the one before, or to it.
func (d *Dialer) stands(ctx context.Context, f fenced) (result string, err error) {
	d.carrier.heard(ctx, f.refused)
	f.order.DialedAt = f.refusedAt
	return d.settle(ctx, f.order, f.refused)
}
