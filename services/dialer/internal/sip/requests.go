package sip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// sessionTooSmall is the status 422 (RFC 4028 section 6).
const sessionTooSmall = 422

// send stores the teardown state and sends the INVITE. An INVITE that is too large for a datagram
// is sent over TCP. If the peer accepts no TCP connection, the INVITE is sent over UDP (RFC 3261
// section 18.1.1).
//
// If sending to an address fails, send tries the next address (RFC 3263 section 4.3).
func (d *Dialog) send(ctx context.Context, invite *sip.Request, to transport.Route) (*sip.ClientTx, error) {
	var firstErr error
	for {
		if err := d.transport.Prepare(invite, to); err != nil {
			return nil, cmp.Or(firstErr, err)
		}
		if err := d.keepState(invite); err != nil {
			return nil, &transport.NotSent{
				Err: fmt.Errorf("%w: store the teardown state of call %s: %w", ErrLocalFault, d.params.CallID, err),
			}
		}
		tx, err := d.transport.BeginPermitted(ctx, invite, func(ctx context.Context) bool {
			permitted := d.params.Permit == nil || d.params.Permit(ctx)
			d.sentAt = time.Now()
			return permitted
		})
		if !transport.IsNotSent(err) || errors.Is(err, transport.ErrNotPermitted) || ctx.Err() != nil {
			return tx, err
		}
		if to.LargeOverTCP && invite.Transport() != to.Transport {
			to.LargeOverTCP = false
		} else {
			to.Excluded = append(to.Excluded, invite.Destination())
			firstErr = cmp.Or(firstErr, err)
		}
		invite.RemoveHeader("Via")
	}
}

// sendAgain sends the INVITE again after a response that requires credentials or a longer session
// timer. After a 503, it sends the INVITE to the next address (RFC 3263 section 4.3). It returns
// false if it sent no INVITE.
func (at *attempt) sendAgain(res *sip.Response) bool {
	next := transport.NextRequest(at.invite)
	to, _ := at.trunk.requestRoute()
	switch {
	case at.challenge.Answer(next, res, at.trunk.credentials()):
		to.Hop = at.invite.Destination() // a challenge is valid only for the address that sent it
	case res.StatusCode == sessionTooSmall && at.timer.Lengthen(strings.Join(headerValues(res, "Min-SE"), ",")):
		for next.RemoveHeader("Session-Expires") || next.RemoveHeader("Min-SE") {
		}
		at.addSessionTimer(next)
		to.Hop = at.invite.Destination()
	case res.StatusCode == sip.StatusServiceUnavailable && !at.provisional:
		at.excluded = append(at.excluded, at.invite.Destination())
		to.Excluded, at.challenge = slices.Clone(at.excluded), transport.Challenge{}
	default:
		return false
	}
	waitForEither(at.acked, at.agent.stop) // the ACK of the response must precede the next INVITE
	at.mu.Lock()
	at.leg.cseq++
	next.CSeq().SeqNo = at.leg.cseq
	at.mu.Unlock()
	ctx, done := context.WithTimeout(context.Background(), at.params.FirstResponse)
	defer done()
	tx, err := at.send(ctx, next, to)
	if err != nil {
		at.localFault, at.notPermitted = errors.Is(err, ErrLocalFault), errors.Is(err, transport.ErrNotPermitted)
		// A 503 is not logged, because most trunks have no further address.
		if res.StatusCode != sip.StatusServiceUnavailable {
			at.log.Warn("further INVITE of the call not sent", "status", res.StatusCode, "error", err)
		}
		return false
	}
	at.mu.Lock()
	at.invite = next
	at.mu.Unlock()
	at.tx = tx
	at.watchAcks()
	at.responded, at.provisional = false, false
	at.first.Reset(at.params.FirstResponse)
	return true
}

func (d *Dialog) addSessionTimer(req *sip.Request) {
	if e := d.timer.RequestedInterval(); e.After > 0 {
		req.AppendHeader(sip.NewHeader("Session-Expires", e.String()))
		req.AppendHeader(sip.NewHeader("Min-SE", Expires{After: d.agent.cfg.MinSession}.String()))
	}
}

func sessionExpires(msg sip.Message) string {
	for _, name := range []string{"Session-Expires", "x"} {
		if headers := msg.GetHeaders(name); len(headers) > 0 {
			return headers[0].Value()
		}
	}
	return ""
}

// supportsUpdate reports whether the peer supports UPDATE.
func supportsUpdate(msg sip.Message) bool {
	for _, value := range headerValues(msg, "Allow") {
		if slices.ContainsFunc(strings.Split(value, ","), func(method string) bool { return strings.TrimSpace(method) == string(sip.UPDATE) }) {
			return true
		}
	}
	return false
}

// refresh sends an UPDATE. If the peer does not support UPDATE, it sends an INVITE that repeats
// this side's last SDP (RFC 4028 section 7.4). If the peer does not respond or does not have the
// call, refresh hangs up.
func (d *Dialog) refresh() {
	defer func() {
		select {
		case d.timerChanged <- struct{}{}:
		default:
		}
	}()
	res, err := d.sendRefresh()
	if err != nil {
		d.log.Info("SIP session not refreshed", "call_id", d.id, "error", err)
		if errors.Is(err, transport.ErrTimeout) || !d.timer.RetryRefresh(time.Second, time.Now()) {
			d.requestHangup(callstate.RecoveryOnTimerExpire)
		}
		return
	}
	again := true
	switch {
	case res.IsSuccess():
		d.timer.StartFromHeader(sessionExpires(res), time.Now())
	case res.StatusCode == sip.StatusCallTransactionDoesNotExists || res.StatusCode == sip.StatusRequestTimeout:
		again = false
	case res.StatusCode == sip.StatusRequestPending:
		// After a 491, the side that began the call must wait 2.1 to 4 s before it tries again (RFC 3261
		// section 14.1).
		pause := 2100*time.Millisecond + rand.N(1900*time.Millisecond) //nolint:gosec // no secret
		again = d.timer.RetryRefresh(pause, time.Now())
	default:
		again = d.timer.RetryRefresh(max(time.Second, d.timer.Current().After/10), time.Now())
	}
	if !again {
		d.requestHangup(callstate.RecoveryOnTimerExpire)
	}
}

func (d *Dialog) sendRefresh() (*sip.Response, error) {
	ctx, done := d.agent.stopContext()
	defer done()
	e := d.timer.Current()
	e.Refresher = UAC // UAC means the sender of this UPDATE or INVITE
	d.mu.Lock()
	d.leg.cseq++
	us, body, byUpdate := d.leg, d.body, d.supportsUpdate
	d.mu.Unlock()
	method := sip.INVITE
	if byUpdate {
		method = sip.UPDATE
	}
	req := us.newRequest(method)
	req.AppendHeader(sip.NewHeader("Session-Expires", e.String()))
	req.AppendHeader(sip.NewHeader("Supported", "timer"))
	req.AppendHeader(sip.NewHeader("Allow", allowedMethods))
	d.agent.addUserAgent(req)
	if byUpdate {
		return d.transportFor(us).Exchange(ctx, req, us.requestRoute(), d.trunk.credentials(), d.nextCSeq)
	}
	if len(body) > 0 {
		req.AppendHeader(sip.NewHeader("Content-Type", d.params.ContentType))
		req.SetBody(body)
	}
	return d.reinvite(ctx, req, us)
}

func (d *Dialog) reinvite(ctx context.Context, req *sip.Request, us leg) (*sip.Response, error) {
	if !d.reserveInvite() {
		res := sip.NewResponse(sip.StatusRequestPending, "an INVITE of the peer is open")
		return res, nil
	}
	defer d.releaseInvite()
	by := d.transportFor(us)
	var challenges transport.Challenge
	for {
		if err := by.Prepare(req, us.requestRoute()); err != nil {
			return nil, err
		}
		tx, err := by.Begin(ctx, req)
		if err != nil {
			return nil, err
		}
		res, err := final(ctx, tx)
		if err != nil {
			return nil, err
		}
		again := transport.NextRequest(req)
		if !challenges.Answer(again, res, d.trunk.credentials()) {
			if res.IsSuccess() {
				d.reinvited(req, res, tx)
			}
			return res, nil
		}
		again.CSeq().SeqNo = d.nextCSeq()
		req = again
	}
}

// reinvited acknowledges a 200 to this side's re-INVITE, and each retransmission of the 200.
func (d *Dialog) reinvited(req *sip.Request, res *sip.Response, tx *sip.ClientTx) {
	seq := req.CSeq().SeqNo
	d.mu.Lock()
	d.leg.setTarget(res.Contact())
	us := d.leg
	d.mu.Unlock()
	if body := res.Body(); len(body) > 0 {
		d.agreed(body)
	}
	tx.OnRetransmission(func(*sip.Response) { d.ack(us, req, seq) })
	d.ack(us, req, seq)
}

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

// reserveInvite reserves the dialog for an INVITE of this side. It returns false while an INVITE of
// either side is open.
func (d *Dialog) reserveInvite() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inviteOpen || d.remoteOffer != nil {
		return false
	}
	d.inviteOpen = true
	return true
}

func (d *Dialog) releaseInvite() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inviteOpen = false
}

// ErrReferred is returned if a transfer failed. The call then continues, unless it has ended for
// another reason.
var ErrReferred = errors.New("the call was not transferred")

// Refer sends a REFER (RFC 3515), so that the peer transfers the call to the number. It returns nil
// if the target has answered. The caller of Refer must then hang up. Otherwise it returns
// ErrReferred.
func (d *Dialog) Refer(ctx context.Context, to string) error {
	result := make(chan int, 1)
	d.mu.Lock()
	if !d.established || d.ended || d.referResult != nil {
		d.mu.Unlock()
		return fmt.Errorf("%w: the leg is not established, or a transfer is in progress", ErrReferred)
	}
	d.referResult = result
	d.leg.cseq++
	us := d.leg
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.referResult = nil
	}()
	target := d.trunk.uri(to)
	target.UriParams = nil
	req := us.newRequest(sip.REFER)
	req.AppendHeader(sip.NewHeader("Refer-To", "<"+target.String()+">"))
	req.AppendHeader(sip.NewHeader("Referred-By", "<"+us.local.Address.String()+">"))
	d.agent.addUserAgent(req)
	res, err := d.transportFor(us).Exchange(ctx, req, us.requestRoute(), d.trunk.credentials(), d.nextCSeq)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrReferred, err)
	case !res.IsSuccess():
		return fmt.Errorf("%w: %d %s", ErrReferred, res.StatusCode, res.Reason)
	}
	select {
	case status := <-result:
		if status/100 == 2 {
			return nil
		}
		return fmt.Errorf("%w: the status of the transfer is %d", ErrReferred, status)
	case <-d.done:
		return fmt.Errorf("%w: the call has ended", ErrReferred)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrReferred, ctx.Err())
	}
}

// handleNotify handles a NOTIFY about this side's REFER. The body of the NOTIFY contains the status
// of the transfer (RFC 3420). A final status, or the end of the subscription, ends the transfer.
func (d *Dialog) handleNotify(req *sip.Request, tx *sip.ServerTx) {
	d.mu.Lock()
	result := d.referResult
	d.mu.Unlock()
	if event, _, _ := strings.Cut(strings.Join(headerValues(req, "Event"), ","),
		";"); result == nil || strings.TrimSpace(event) != "refer" {
		d.agent.refuse(req, tx, sip.StatusCallTransactionDoesNotExists, "Subscription Does Not Exist")
		return
	}
	d.agent.sendFinal(req, tx, d.agent.newResponse(req, sip.StatusOK, "OK"))
	status := sipfragStatus(req.Body())
	over := strings.HasPrefix(strings.TrimSpace(strings.Join(headerValues(req, "Subscription-State"), ",")), "terminated")
	if status < 200 && !over {
		return
	}
	select {
	case result <- status:
	default: // only the first status counts
	}
}

// sipfragStatus returns the status in a sipfrag body, or 0 if there is none.
func sipfragStatus(body []byte) (status int) {
	rest, is := strings.CutPrefix(strings.TrimSpace(string(body)), "SIP/2.0 ")
	if !is || len(rest) < 3 {
		return 0
	}
	status, err := strconv.Atoi(rest[:3])
	if err != nil || status < 100 || status > 699 {
		return 0
	}
	return status
}
