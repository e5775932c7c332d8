package sip

import (
	"errors"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/callstate"
)

func (a *UserAgent) handleRequest(req *sip.Request, tx *sip.ServerTx) {
	id, from, to, cseq := req.CallID(), req.From(), req.To(), req.CSeq()
	if id == nil || from == nil || to == nil || cseq == nil || cseq.MethodName != req.Method {
		tx.Terminate() // a mandatory header is missing or wrong
		return
	}
	tag := tagOf(to)
	if tag == "" {
		a.handleOutsideDialog(req, tx)
		return
	}
	d := a.find(id, tag)
	if d == nil {
		a.refuse(req, tx, sip.StatusCallTransactionDoesNotExists, "Call/Transaction Does Not Exist")
		return
	}
	d.handleRequest(req, tx, from.Params.GetOr("tag", ""))
}

func (a *UserAgent) handleOutsideDialog(req *sip.Request, tx *sip.ServerTx) {
	switch req.Method {
	case sip.INVITE:
		a.handleInvite(req, tx)
	case sip.OPTIONS:
		if a.isDraining() {
			a.respondUnavailable(req, tx)
			return
		}
		a.sendFinal(req, tx, a.newResponse(req, sip.StatusOK, "OK"))
	case sip.CANCEL, sip.BYE, sip.UPDATE, sip.INFO:
		a.refuse(req, tx, sip.StatusCallTransactionDoesNotExists, "Call/Transaction Does Not Exist")
	default:
		a.refuse(req, tx, sip.StatusMethodNotAllowed, "Method Not Allowed")
	}
}

func (a *UserAgent) isDraining() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.draining
}

// retryAfter is the value of the header Retry-After, in seconds, while this side accepts no more
// calls.
const retryAfter = "30"

func (a *UserAgent) respondUnavailable(req *sip.Request, tx *sip.ServerTx) {
	res := a.newResponse(req, sip.StatusServiceUnavailable, "Service Unavailable")
	res.AppendHeader(sip.NewHeader("Retry-After", retryAfter))
	a.sendFinal(req, tx, res)
}

// newResponse returns a response with the headers Allow and Supported.
func (a *UserAgent) newResponse(req *sip.Request, code int, text string) *sip.Response {
	res := sip.NewResponseFromRequest(req, code, text, nil)
	res.AppendHeader(sip.NewHeader("Allow", allowedMethods))
	res.AppendHeader(sip.NewHeader("Supported", "timer"))
	if a.cfg.UserAgent != "" {
		res.AppendHeader(sip.NewHeader("Server", a.cfg.UserAgent))
	}
	return res
}

func (a *UserAgent) refuse(req *sip.Request, tx *sip.ServerTx, code int, text string) {
	a.sendFinal(req, tx, a.newResponse(req, code, text))
}

// sendFinal sends a response and records it. It sends nothing in response to an ACK.
func (a *UserAgent) sendFinal(req *sip.Request, tx *sip.ServerTx, res *sip.Response) {
	if req.IsAck() {
		tx.Terminate()
		return
	}
	if err := a.sendResponse(tx, res); err != nil {
		a.cfg.Log.Info("SIP response not sent", "method", string(req.Method), "status", res.StatusCode, "error", err)
	}
}

func (d *Dialog) handleRequest(req *sip.Request, tx *sip.ServerTx, theirTag string) {
	if !req.IsAck() { // the request can overtake the peer's 200
		waitForEither(d.answered, d.done)
	}
	known, otherFork, ended := d.classifyTag(theirTag)
	switch {
	case req.IsAck():
		if known {
			d.acknowledged(req)
		}
		tx.Terminate()
	case req.Method == sip.BYE && known:
		d.isOutOfOrder(req)
		d.agent.sendFinal(req, tx, d.agent.newResponse(req, sip.StatusOK, "OK"))
		select {
		case d.remoteBye <- byeCause(req):
		default:
		}
	case req.Method == sip.BYE && otherFork:
		d.agent.sendFinal(req, tx, d.agent.newResponse(req, sip.StatusOK, "OK"))
	case !known && !ended && !d.isEstablished(): // the request arrived before the answer
		d.handleEarly(req, tx)
	case !known || ended:
		d.agent.refuse(req, tx, sip.StatusCallTransactionDoesNotExists, "Call/Transaction Does Not Exist")
	case d.isOutOfOrder(req):
		d.agent.refuse(req, tx, sip.StatusInternalServerError, "CSeq Out Of Order")
	default:
		d.handleWithinDialog(req, tx)
	}
}

// classifyTag classifies the peer's tag in a request. known is true for the tag of the established
// dialog. otherFork is true for the tag of another phone that answered the INVITE. ended is true if
// the leg has ended.
func (d *Dialog) classifyTag(theirTag string) (known, otherFork, ended bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, otherFork = d.otherForks[theirTag]
	return d.established && theirTag == d.leg.remote.Params.GetOr("tag", ""), otherFork, d.ended
}

// isOutOfOrder reports whether an INVITE or UPDATE has an old CSeq (RFC 3261 section 12.2.2). It
// stores a CSeq that is not old.
func (d *Dialog) isOutOfOrder(req *sip.Request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if (req.Method == sip.INVITE || req.Method == sip.UPDATE) && req.CSeq().SeqNo <= d.remoteCSeq {
		return true
	}
	if !req.IsCancel() {
		d.remoteCSeq = max(d.remoteCSeq, req.CSeq().SeqNo)
	}
	return false
}

// reorderTimeout is how long a request waits for the message that should precede it. The network
// can change the order of messages.
const reorderTimeout = 500 * time.Millisecond

// waitForEither waits until one of the two channels is closed, at most for reorderTimeout.
func waitForEither(one, other <-chan struct{}) {
	timer := time.NewTimer(reorderTimeout)
	defer timer.Stop()
	select {
	case <-one:
	case <-other:
	case <-timer.C:
	}
}

func (d *Dialog) isEstablished() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.established
}

func (d *Dialog) handleEarly(req *sip.Request, tx *sip.ServerTx) {
	switch {
	// A caller may send BYE before the answer (RFC 3261 section 15).
	case req.Method == sip.BYE && d.arrival != nil:
		d.agent.sendFinal(req, tx, d.agent.newResponse(req, sip.StatusOK, "OK"))
		select {
		case d.remoteBye <- byeCause(req):
		default:
		}
	case req.Method == sip.OPTIONS, req.Method == sip.INFO, req.Method == sip.UPDATE && len(req.Body()) == 0:
		d.agent.sendFinal(req, tx, d.addContact(d.agent.newResponse(req, sip.StatusOK, "OK")))
	case req.Method == sip.UPDATE: // this side's SDP offer has no answer yet (RFC 3311 section 5.2)
		d.agent.refuse(req, tx, sip.StatusRequestPending, "Request Pending")
	default:
		d.agent.refuse(req, tx, sip.StatusCallTransactionDoesNotExists, "Call/Transaction Does Not Exist")
	}
}

func (d *Dialog) handleWithinDialog(req *sip.Request, tx *sip.ServerTx) {
	switch req.Method {
	case sip.INVITE, sip.UPDATE:
		if !d.agent.refuseUnsupported(req, tx) {
			d.renegotiate(req, tx)
		}
	case sip.OPTIONS, sip.INFO:
		d.agent.sendFinal(req, tx, d.agent.newResponse(req, sip.StatusOK, "OK"))
	case sip.NOTIFY:
		d.handleNotify(req, tx)
	case sip.REFER: // refused, because a peer could otherwise transfer calls to expensive numbers (toll fraud)
		d.agent.refuse(req, tx, sip.StatusGlobalDecline, "Decline")
	default:
		d.agent.refuse(req, tx, sip.StatusMethodNotAllowed, "Method Not Allowed")
	}
}

// unsupportedExtensions returns the SIP extensions that a request requires and this side does not
// support.
func unsupportedExtensions(req *sip.Request) string {
	var unknown []string
	for _, value := range headerValues(req, "Require") {
		for _, tag := range strings.Split(value, ",") {
			if tag = strings.TrimSpace(tag); tag != "" && !strings.EqualFold(tag, "timer") {
				unknown = append(unknown, tag)
			}
		}
	}
	return strings.Join(unknown, ", ")
}

// refuseUnsupported refuses a request that requires an unsupported extension, or whose session
// timer is too short. It reports whether it refused the request.
func (a *UserAgent) refuseUnsupported(req *sip.Request, tx *sip.ServerTx) bool {
	if unknown := unsupportedExtensions(req); unknown != "" {
		res := a.newResponse(req, sip.StatusBadExtension, "Bad Extension")
		res.AppendHeader(sip.NewHeader("Unsupported", unknown))
		a.sendFinal(req, tx, res)
		return true
	}
	_, tooSmall := a.requestedTimer(req)
	if tooSmall {
		res := a.newResponse(req, sessionTooSmall, "Session Interval Too Small")
		res.AppendHeader(sip.NewHeader("Min-SE", Expires{After: a.cfg.MinSession}.String()))
		a.sendFinal(req, tx, res)
	}
	return tooSmall
}

// renegotiate handles an INVITE or UPDATE of the peer within the dialog. The peer sends such a
// request for hold, resume, a new media address or a refresh.
func (d *Dialog) renegotiate(req *sip.Request, tx *sip.ServerTx) {
	expires, _ := d.agent.requestedTimer(req)
	if !d.openRemoteOffer(req) { // another SDP offer is not answered yet (RFC 3261 section 14.2)
		d.agent.refuse(req, tx, sip.StatusRequestPending, "Request Pending")
		return
	}
	isInvite := req.Method == sip.INVITE
	offer := req.Body()
	var answer []byte
	var err error
	if isInvite || len(offer) > 0 {
		answer, err = d.offered(offer)
	}
	if err != nil {
		d.closeRemoteOffer(req)
		d.log.Info("SDP offer within the call refused", "call_id", d.id, "error", err)
		d.agent.refuse(req, tx, sip.StatusNotAcceptableHere, "Not Acceptable Here")
		return
	}
	res := d.addContact(d.agent.newResponse(req, sip.StatusOK, "OK"))
	expires.Annotate(func(name, value string) { res.AppendHeader(sip.NewHeader(name, value)) })
	if len(answer) > 0 {
		res.AppendHeader(sip.NewHeader("Content-Type", d.contentType()))
		res.SetBody(answer)
	}
	d.mu.Lock()
	d.leg.setTarget(req.Contact())
	if len(answer) > 0 {
		d.body = answer
	}
	d.mu.Unlock()
	d.timer.Start(expires, expires.Refresher == UAS, time.Now())
	_ = d.keepState(nil)
	select {
	case d.timerChanged <- struct{}{}:
	default:
	}
	if !isInvite {
		d.closeRemoteOffer(req)
		d.agent.sendFinal(req, tx, res)
		return
	}
	acked := d.expectAck(req.CSeq().SeqNo)
	d.agent.sendFinal(req, tx, res)
	d.agent.spawn(func() {
		defer d.closeRemoteOffer(req)
		d.retransmitUntilAck(tx, res, acked, len(offer) == 0)
	})
}

func (d *Dialog) addContact(res *sip.Response) *sip.Response {
	d.mu.Lock()
	defer d.mu.Unlock()
	res.AppendHeader(&sip.ContactHeader{Address: *d.leg.contact.Clone()})
	return res
}

func (d *Dialog) contentType() string {
	if d.params.ContentType == "" {
		return "application/sdp"
	}
	return d.params.ContentType
}

// requestedTimer returns the session timer for the response to a request. tooSmall is true if the
// interval in the request is shorter than Config.MinSession.
func (a *UserAgent) requestedTimer(req *sip.Request) (answer Expires, tooSmall bool) {
	e, _ := ParseSessionExpires(sessionExpires(req))
	return e.Accept(a.cfg.MinSession)
}

// openRemoteOffer reserves the dialog for an INVITE or UPDATE of the peer, and reports whether it
// succeeded. It waits for the peer's previous request, because the new request can overtake the
// previous ACK.
func (d *Dialog) openRemoteOffer(req *sip.Request) bool {
	if len(req.Body()) == 0 && req.Method == sip.UPDATE {
		return true // an UPDATE without an SDP offer cannot collide with another offer
	}
	d.mu.Lock()
	before := d.remoteOffer
	d.mu.Unlock()
	if before != nil {
		waitForEither(before, d.done)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inviteOpen || d.remoteOffer != nil {
		return false
	}
	d.remoteOffer = make(chan struct{})
	return true
}

func (d *Dialog) closeRemoteOffer(req *sip.Request) {
	if len(req.Body()) == 0 && req.Method == sip.UPDATE {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.remoteOffer)
	d.remoteOffer = nil
}

// errNoOfferHandler is returned if the observer has no function Offered.
var errNoOfferHandler = errors.New("this leg has no handler for offers")

func (d *Dialog) offered(offer []byte) (answer []byte, err error) {
	err = errNoOfferHandler
	if len(offer) == 0 {
		offer = nil
	}
	d.notify(func(observer Observer) {
		if observer.Offered != nil {
			answer, err = observer.Offered(offer)
		}
	})
	return answer, err
}

// expectAck returns a channel that receives the body of the peer's ACK. seq is the CSeq of the
// peer's INVITE.
func (d *Dialog) expectAck(seq uint32) <-chan []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	acked := make(chan []byte, 1)
	d.ackChannels[seq] = acked
	return acked
}

func (d *Dialog) acknowledged(req *sip.Request) {
	d.mu.Lock()
	acked := d.ackChannels[req.CSeq().SeqNo]
	delete(d.ackChannels, req.CSeq().SeqNo)
	d.mu.Unlock()
	if acked != nil {
		acked <- req.Body()
	}
}

// A 200 to an INVITE is retransmitted until the ACK (RFC 3261 section 13.3.1.4). The first interval
// is T1. Each further interval is twice as long, up to T2. The retransmission ends after 64*T1.
const (
	t1              = 500 * time.Millisecond
	t2              = 4 * time.Second
	retransmitLimit = 64 * t1
)

// retransmitUntilAck retransmits a 200 until the ACK arrives. If expectAnswer is true, the ACK
// contains the SDP answer, which is passed to Observer.Agreed. If no ACK arrives, the leg is hung
// up.
func (d *Dialog) retransmitUntilAck(tx *sip.ServerTx, res *sip.Response, acked <-chan []byte, expectAnswer bool) {
	giveUp := time.NewTimer(retransmitLimit)
	defer giveUp.Stop()
	for pause := t1; ; pause = min(2*pause, t2) {
		again := time.NewTimer(pause)
		select {
		case body := <-acked:
			again.Stop()
			if expectAnswer {
				d.agreed(body)
			}
			return
		case ack := <-tx.Acks(): // old peers use the branch of the INVITE in the ACK
			again.Stop()
			if expectAnswer {
				d.agreed(ack.Body())
			}
			return
		case <-again.C:
			_ = d.agent.sendResponse(tx, res)
		case <-giveUp.C:
			again.Stop()
			d.requestHangup(callstate.RecoveryOnTimerExpire)
			return
		case <-d.done:
			again.Stop()
			return
		case <-d.agent.stop:
			again.Stop()
			return
		}
	}
}

func (d *Dialog) agreed(answer []byte) {
	d.notify(func(observer Observer) {
		if observer.Agreed != nil {
			observer.Agreed(answer)
		}
	})
}
