package signal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/signal/line"
	"ringfence.dev/services/dialer/internal/signal/session"
)

// sessionTooSmall is 422 (RFC 4028 6).
const sessionTooSmall = 422

// ask puts the timer that we want into a request that sets up a session.
func (d *Dialog) ask(req *sip.Request) {
	if e := d.timer.Wanted(); e.After > 0 {
		req.AppendHeader(sip.NewHeader("Session-Expires", e.String()))
		req.AppendHeader(sip.NewHeader("Min-SE", session.Expires{After: d.agent.cfg.MinSession}.String()))
	}
}

// sessionExpires is the header's value; empty: there is none.
func sessionExpires(msg sip.Message) string {
	for _, name := range []string{"Session-Expires", "x"} {
		if headers := msg.GetHeaders(name); len(headers) > 0 {
			return headers[0].Value()
		}
	}
	return ""
}

// allows says whether the far end takes UPDATE.
func allows(msg sip.Message) bool {
	for _, value := range values(msg, "Allow") {
		if slices.ContainsFunc(strings.Split(value, ","), func(method string) bool { return strings.TrimSpace(method) == string(sip.UPDATE) }) {
			return true
		}
	}
	return false
}

// refresh keeps the session: by UPDATE where the far end takes it, else by an INVITE with our last description (RFC 4028 7.4). A far end that does not know the
// call any more, or does not answer, has lost it.
func (d *Dialog) refresh() {
	defer func() {
		select {
		case d.kick <- struct{}{}:
		default:
		}
	}()
	res, err := d.sendRefresh()
	if err != nil {
		d.log.Info("the session was not refreshed", "call_id", d.id, "error", err)
		if errors.Is(err, line.ErrTimeout) || !d.timer.Failed(time.Second, time.Now()) {
			d.want(call.RecoveryOnTimerExpire)
		}
		return
	}
	again := true
	switch {
	case res.IsSuccess():
		d.timer.Agree(sessionExpires(res), time.Now())
	case res.StatusCode == sip.StatusCallTransactionDoesNotExists || res.StatusCode == sip.StatusRequestTimeout:
		again = false
	case res.StatusCode == sip.StatusRequestPending: // we began the call: 2.1 to 4 s (RFC 3261 14.1)
		again = d.timer.Failed(2100*time.Millisecond+rand.N(1900*time.Millisecond), time.Now()) //nolint:gosec // spreads, hides nothing
	default:
		again = d.timer.Failed(max(time.Second, d.timer.Current().After/10), time.Now())
	}
	if !again {
		d.want(call.RecoveryOnTimerExpire)
	}
}

func (d *Dialog) sendRefresh() (*sip.Response, error) {
	ctx, done := d.agent.untilStop()
	defer done()
	e := d.timer.Current()
	e.Refresher = session.UAC // in this request that is us
	d.mu.Lock()
	d.leg.cseq++
	us, body, byUpdate := d.leg, d.body, d.hears
	d.mu.Unlock()
	method := sip.INVITE
	if byUpdate {
		method = sip.UPDATE
	}
	req := us.request(method)
	req.AppendHeader(sip.NewHeader("Session-Expires", e.String()))
	req.AppendHeader(sip.NewHeader("Supported", "timer"))
	req.AppendHeader(sip.NewHeader("Allow", allowed))
	d.agent.sign(req)
	if byUpdate {
		return d.line.Exchange(ctx, req, us.way(), d.trunk.credentials(), d.next)
	}
	if len(body) > 0 {
		req.AppendHeader(sip.NewHeader("Content-Type", d.order.ContentType))
		req.SetBody(body)
	}
	return d.reinvite(ctx, req, us)
}

// reinvite sends an INVITE within the dialog and acknowledges what it is answered with.
func (d *Dialog) reinvite(ctx context.Context, req *sip.Request, us leg) (*sip.Response, error) {
	if !d.claim() {
		res := sip.NewResponse(sip.StatusRequestPending, "an INVITE of theirs is under way")
		return res, nil
	}
	defer d.release()
	var asked line.Asked
	for {
		if err := d.line.Prepare(req, us.way()); err != nil {
			return nil, err
		}
		tx, err := d.line.Begin(ctx, req)
		if err != nil {
			return nil, err
		}
		res, err := final(ctx, tx)
		if err != nil {
			return nil, err
		}
		again := line.Again(req)
		if !asked.Answer(again, res, d.trunk.credentials()) {
			if res.IsSuccess() {
				d.reinvited(req, res, tx)
			}
			return res, nil
		}
		again.CSeq().SeqNo = d.next()
		req = again
	}
}

// reinvited acknowledges the 200 of an INVITE of ours within the dialog, and each time it is repeated.
func (d *Dialog) reinvited(req *sip.Request, res *sip.Response, tx *sip.ClientTx) {
	seq := req.CSeq().SeqNo
	d.mu.Lock()
	d.leg.retarget(res.Contact())
	us := d.leg
	d.mu.Unlock()
	if body := res.Body(); len(body) > 0 {
		d.agreed(body)
	}
	tx.OnRetransmission(func(*sip.Response) { d.ack(us, req, seq) })
	d.ack(us, req, seq)
}

// final waits for the final response of an INVITE.
func final(ctx context.Context, tx *sip.ClientTx) (*sip.Response, error) {
	for {
		select {
		case res := <-tx.Responses():
			if !res.IsProvisional() {
				return res, nil
			}
		case <-tx.Done():
			return nil, fmt.Errorf("INVITE within the call: %w", tx.Err())
		case <-ctx.Done():
			tx.Terminate()
			return nil, fmt.Errorf("INVITE within the call: %w", ctx.Err())
		}
	}
}

// claim takes the dialog for an INVITE of ours; false while one of theirs is under way.
func (d *Dialog) claim() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy || d.theirsOpen != nil {
		return false
	}
	d.busy = true
	return true
}

func (d *Dialog) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy = false
}
