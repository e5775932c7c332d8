package sip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// maxArrivalTime is how long an inbound call may ring. The proxies between the caller and this user
// agent wait at least as long (Timer C, RFC 3261 section 16.6).
const maxArrivalTime = 3 * time.Minute

// Arrival is an inbound call from an admitted address. Config.Arrive must call Take or Refuse
// before it returns. If it calls neither, the call is refused.
type Arrival struct {
	// CallID is the Call-ID that the caller chose. It is not unique.
	CallID string
	// From and To are numbers in the number format of the trunk. From is empty if the caller withholds
	// its number.
	From, To string
	Source   netip.AddrPort
	// Transport is the transport of the INVITE: UDP, TCP or TLS.
	Transport string
	UserAgent string
	// Offer is the caller's SDP offer. If it is empty, this side must send the offer, and
	// Observer.Agreed receives the caller's SDP answer.
	Offer []byte

	agent   *UserAgent
	req     *sip.Request
	tx      *sip.ServerTx
	handled bool
}

// handleInvite handles an INVITE that belongs to no dialog.
func (a *UserAgent) handleInvite(req *sip.Request, tx *sip.ServerTx) {
	a.mu.Lock()
	draining, permitted := a.draining, a.arrivalLimit.takeToken(time.Now())
	a.mu.Unlock()
	switch {
	case draining || !permitted:
		a.respondUnavailable(req, tx)
		return
	case a.cfg.Arrive == nil:
		a.refuse(req, tx, sip.StatusForbidden, "Forbidden")
		return
	case req.Contact() == nil || req.From().Params.GetOr("tag", "") == "":
		a.refuse(req, tx, sip.StatusBadRequest, "Bad Request")
		return
	case a.isMerged(req): // the same INVITE arrived before, over another path (RFC 3261 section 8.2.2.2)
		a.refuse(req, tx, sip.StatusLoopDetected, "Loop Detected")
		return
	}
	if a.refuseUnsupported(req, tx) {
		return
	}
	source, _ := netip.ParseAddrPort(req.Source())
	arrival := &Arrival{
		CallID: req.CallID().Value(), From: callerNumber(req), To: numberOf(&req.Recipient), Source: source,
		Transport: req.Transport(), UserAgent: strings.Join(headerValues(req, "User-Agent"), ","),
		Offer: req.Body(), agent: a, req: req, tx: tx,
	}
	a.cfg.Arrive(arrival)
	arrival.Refuse(callstate.CallRejected)
}

// isMerged reports whether this user agent already has an inbound leg with the Call-ID, the From
// tag and the CSeq of the INVITE.
func (a *UserAgent) isMerged(req *sip.Request) bool {
	tag := req.From().Params.GetOr("tag", "")
	a.mu.Lock()
	legs := a.legs[*req.CallID()]
	same := make([]*Dialog, 0, len(legs))
	for _, d := range legs {
		same = append(same, d)
	}
	a.mu.Unlock()
	for _, d := range same {
		d.mu.Lock()
		rings := d.arrival != nil && d.leg.remote.Params.GetOr("tag", "") == tag && d.remoteCSeq == req.CSeq().SeqNo
		d.mu.Unlock()
		if rings {
			return true
		}
	}
	return false
}

// callerNumber returns the number of the caller: the number in P-Asserted-Identity (RFC 3325) or,
// without this header, the number in From. It returns "" if the caller withholds its number (RFC
// 3323).
func callerNumber(req *sip.Request) string {
	for _, privacy := range headerValues(req, "Privacy") {
		if privacy = strings.ToLower(privacy); strings.Contains(privacy, "id") || strings.Contains(privacy, "user") || strings.Contains(privacy, "header") {
			return ""
		}
	}
	from := req.From().Address
	if strings.EqualFold(from.User, "anonymous") || strings.EqualFold(from.Host, "anonymous.invalid") {
		return ""
	}
	for _, asserted := range headerValues(req, "P-Asserted-Identity") {
		var uri sip.Uri
		if _, err := sip.ParseAddressValue(asserted, &uri, &sip.HeaderParams{}); err == nil && numberOf(&uri) != "" {
			return numberOf(&uri)
		}
	}
	return numberOf(&from)
}

// maxNumberLength is the maximum length of a number, in bytes.
const maxNumberLength = 64

// numberOf returns the user part of a URI, without parameters. It returns "" if the user part is
// too long or contains anything except visible ASCII characters.
func numberOf(uri *sip.Uri) string {
	user := uri.User
	if user == "" && uri.Scheme == "tel" {
		if user = uri.Raw(); user == "" {
			user = uri.Host
		}
	}
	user, _, _ = strings.Cut(user, ";")
	if len(user) > maxNumberLength || strings.ContainsFunc(user, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return ""
	}
	return user
}

// Refuse refuses the call. It has no effect after Take or an earlier Refuse.
func (r *Arrival) Refuse(cause callstate.Cause) {
	if r.handled {
		return
	}
	r.handled = true
	code, text := StatusOf(cause)
	r.agent.sendFinal(r.req, r.tx, r.agent.newRefusal(r.req, code, text, cause))
}

func (a *UserAgent) newRefusal(req *sip.Request, code int, text string, cause callstate.Cause) *sip.Response {
	res := a.newResponse(req, code, text)
	res.AppendHeader(sip.NewHeader("Reason", ReasonHeader(cause)))
	if cause == callstate.SwitchCongestion {
		res.AppendHeader(sip.NewHeader("Retry-After", retryAfter))
	}
	return res
}

// reasonTerminated is the reason phrase of the response 487.
const reasonTerminated = "Request Terminated"

var errTaken = errors.New("the call was taken or refused before")

// Take accepts responsibility for the call but does not answer it. The caller of Take can then call
// Ring, Answer and Hangup of the returned Dialog. t is the trunk of the call. Observer.StoreState
// is called before the 200 is sent.
func (r *Arrival) Take(t Trunk, observer Observer) (*Dialog, error) {
	if r.handled {
		return nil, errTaken
	}
	by, err := r.agent.transportTo(t, transport.Route{Transport: t.Transport})
	if err != nil {
		return nil, err
	}
	d := newDialog(r.agent, by, t, observer, *r.req.CallID())
	req := r.req
	d.leg = leg{
		callID: *req.CallID(), local: req.To().AsFrom(), remote: *cloned(req.From()), target: *req.Contact().Address.Clone(), hop: req.Source(),
		transport: req.Transport(), contact: by.Contact(req.Recipient.User, req.Transport()), largeTCP: t.LargeOverTCP,
	}
	d.leg.local.Params.Add("tag", d.tag)
	for _, header := range req.GetHeaders("Record-Route") {
		if hop, is := header.(*sip.RecordRouteHeader); is {
			d.leg.routes = append(d.leg.routes, *hop.Address.Clone())
		}
	}
	d.remoteCSeq, d.arrival, d.supportsUpdate = req.CSeq().SeqNo, r, supportsUpdate(req)
	d.closeInvite()
	if err := r.agent.addLeg(d); err != nil {
		return nil, err
	}
	r.handled = true
	d.addPeer(req.Source())
	d.addPeer(d.leg.requestRoute().Hop)
	canceled := make(chan struct{})
	if !r.tx.OnCancel(func(*sip.Request) { close(canceled) }) {
		d.requestHangup(callstate.OriginatorCancel) // the CANCEL arrived before the handler of CANCEL was set
	}
	r.agent.spawn(func() { d.runInbound(canceled) })
	return d, nil
}

func cloned(from *sip.FromHeader) *sip.FromHeader {
	return &sip.FromHeader{DisplayName: from.DisplayName, Address: *from.Address.Clone(), Params: from.Params.Clone()}
}

// canceledEnd returns the End of a call that the caller canceled before the answer.
func canceledEnd() End {
	return End{
		At: time.Now(), Cause: callstate.OriginatorCancel,
		Status: sip.StatusRequestTerminated, Reason: reasonTerminated,
	}
}

// answerRequest passes the arguments of Answer to the goroutine of runInbound.
type answerRequest struct {
	body []byte
	sent chan error
}

func (d *Dialog) runInbound(canceled <-chan struct{}) {
	defer d.handleLateMessages()
	limit := time.NewTimer(maxArrivalTime)
	defer limit.Stop()
	select {
	case up := <-d.answers:
		err := d.sendAnswer(up.body)
		up.sent <- err
		if err == nil {
			d.runEstablished()
			return
		}
		d.reportEnd(canceledEnd())
	case <-canceled:
		d.reportEnd(canceledEnd())
	case cause := <-d.remoteBye: // the caller sent BYE before the answer
		d.refuseInvite(sip.StatusRequestTerminated, reasonTerminated, cause)
		d.reportEnd(canceledEnd())
	case <-d.hangupRequested:
		cause := d.causeOfHangup()
		code, text := StatusOf(cause)
		d.refuseInvite(code, text, cause)
		d.reportEnd(End{At: time.Now(), Cause: cause, ByUs: true, Status: code, Reason: text})
	case <-limit.C:
		code, text := sip.StatusTemporarilyUnavailable, "Temporarily Unavailable"
		d.refuseInvite(code, text, callstate.NoAnswer)
		d.reportEnd(End{At: time.Now(), Cause: callstate.NoAnswer, ByUs: true, Status: code, Reason: text})
	case <-d.agent.stop:
	}
}

func (d *Dialog) refuseInvite(code int, text string, cause callstate.Cause) {
	d.agent.sendFinal(d.arrival.req, d.arrival.tx, d.withTag(d.agent.newRefusal(d.arrival.req, code, text, cause)))
}

func (d *Dialog) withTag(res *sip.Response) *sip.Response {
	res.To().Params.Add("tag", d.tag)
	return res
}

// Ring sends the response 180 (Ringing).
func (d *Dialog) Ring() error {
	if d.arrival == nil {
		return errTaken
	}
	res := d.addContact(d.withTag(d.agent.newResponse(d.arrival.req, sip.StatusRinging, "Ringing")))
	return d.agent.sendResponse(d.arrival.tx, res)
}

// ErrEnded is returned by Answer if the call has already ended.
var ErrEnded = errors.New("the call has ended")

// Answer answers an inbound call with the SDP in body. It returns after the 200 was sent. If the
// call is already answered, Answer does nothing. If the call has ended, Answer returns ErrEnded.
func (d *Dialog) Answer(ctx context.Context, body []byte) error {
	if d.arrival == nil {
		return errTaken
	}
	up := answerRequest{body: body, sent: make(chan error, 1)}
	select {
	case d.answers <- up:
	case <-d.answered:
		return nil
	case <-d.done:
		select {
		case <-d.answered:
			return nil
		default:
			return ErrEnded
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	return <-up.sent
}

// sendAnswer sends the 200 and retransmits it until the ACK arrives.
func (d *Dialog) sendAnswer(body []byte) error {
	req, tx := d.arrival.req, d.arrival.tx
	res := d.addContact(d.withTag(d.agent.newResponse(req, sip.StatusOK, "OK")))
	expires, _ := d.agent.requestedTimer(req)
	expires.Annotate(func(name, value string) { res.AppendHeader(sip.NewHeader(name, value)) })
	res.AppendHeader(sip.NewHeader("Content-Type", d.contentType()))
	res.SetBody(body)
	d.mu.Lock()
	d.established, d.answeredBy, d.body = true, d.leg.remote.Params.GetOr("tag", ""), body
	d.acceptReason = res.Reason
	d.remoteOffer = make(chan struct{})
	d.mu.Unlock()
	_ = d.keepState(nil)
	acked := d.expectAck(req.CSeq().SeqNo)
	if err := d.agent.sendResponse(tx, res); err != nil { // fails if the caller canceled at the same time
		return fmt.Errorf("%w: %w", ErrEnded, err)
	}
	d.timer.Start(expires, expires.Refresher == UAS, time.Now())
	close(d.answered)
	d.agent.spawn(func() {
		defer d.closeRemoteOffer(req)
		d.retransmitUntilAck(tx, res, acked, len(req.Body()) == 0)
	})
	return nil
}

// tokenBucket limits a rate. It contains at most the tokens that it gains in one second.
type tokenBucket struct {
	perSecond, level float64
	at               time.Time
}

func (p *tokenBucket) takeToken(now time.Time) bool {
	p.level = min(p.perSecond, p.level+now.Sub(p.at).Seconds()*p.perSecond)
	if p.at.IsZero() {
		p.level = p.perSecond
	}
	p.at = now
	if p.level < 1 {
		return false
	}
	p.level--
	return true
}
