package sip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// Invite describes an outbound call. Durations that are zero have default values.
type Invite struct {
	// CallID is the Call-ID of the leg. CallID must be unique.
	CallID string
	// From and To are numbers in the format of the trunk. An empty From withholds the number.
	From, To string
	// Body is the SDP offer. An empty ContentType means application/sdp.
	Body        []byte
	ContentType string
	// FirstResponse limits the time until the trunk's first response (default 5 s).
	FirstResponse time.Duration
	// FirstRing limits the time until the phone rings (default 20 s).
	FirstRing time.Duration
	// Ring limits how long the phone rings (default 60 s).
	Ring time.Duration
	// NotRinging is the hangup cause if the trunk has responded, but the phone does not ring within
	// FirstRing. The default is recovery_on_timer_expire. If the trunk has not responded, the cause is
	// always recovery_on_timer_expire.
	NotRinging callstate.Cause
	// Permit is called directly before each INVITE is sent, including an INVITE to another address or
	// after a 401, 407 or 422. If it returns false, the INVITE is not sent. If Permit is nil, every
	// INVITE is sent.
	Permit func(context.Context) bool
}

// Default times of an Invite.
const (
	FirstResponse = 5 * time.Second
	FirstRing     = 20 * time.Second
)

// ErrLocalFault is wrapped by errors that this process or its database caused. The request was not
// sent, and the trunk is not at fault.
var ErrLocalFault = errors.New("a fault of this process")

// confirmTimeout is how long this side waits for the response to a CANCEL or BYE before Ended is
// called.
const confirmTimeout = 5 * time.Second

func (i *Invite) complete() error {
	for _, text := range []string{i.CallID, i.From, i.To, i.ContentType} {
		if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`<>;,"@?`, r) }) {
			return fmt.Errorf("%q is not valid in a SIP header", text)
		}
	}
	if i.CallID == "" || i.To == "" {
		return errors.New("a call needs a Call-ID and a number")
	}
	if i.ContentType == "" {
		i.ContentType = "application/sdp"
	}
	i.NotRinging = cmp.Or(i.NotRinging, callstate.RecoveryOnTimerExpire)
	i.FirstResponse = cmp.Or(max(i.FirstResponse, 0), FirstResponse)
	i.FirstRing = cmp.Or(max(i.FirstRing, 0), FirstRing)
	i.Ring = cmp.Or(max(i.Ring, 0), time.Minute)
	return nil
}

// Invite sends an INVITE and returns. The observer receives the events of the call. If Invite
// returns an error, nothing was sent, and the observer is not called. ctx limits only how long
// opening the connection may take.
func (a *UserAgent) Invite(ctx context.Context, t Trunk, params Invite, observer Observer) (*Dialog, error) {
	d, tx, err := a.startInvite(ctx, t, params, observer)
	if err != nil {
		return nil, err
	}
	a.spawn(func() { d.run(tx) })
	return d, nil
}

// startInvite sends the INVITE. The caller must read the transaction until its end.
func (a *UserAgent) startInvite(
	ctx context.Context, t Trunk, params Invite, observer Observer,
) (*Dialog, *sip.ClientTx, error) {
	if err := errors.Join(t.Check(), params.complete()); err != nil {
		return nil, nil, &transport.NotSent{Err: fmt.Errorf("invite: %w", err)}
	}
	to, routes := t.requestRoute()
	by, err := a.transportTo(t, to)
	if err != nil {
		return nil, nil, &transport.NotSent{Err: err}
	}
	d := newDialog(a, by, t, observer, sip.CallIDHeader(params.CallID))
	d.params = params
	d.leg = leg{
		callID: sip.CallIDHeader(params.CallID), remote: sip.FromHeader{Address: t.uri(params.To)},
		target: t.uri(params.To), routes: routes,
		hop: to.Hop, transport: to.Transport, largeTCP: to.LargeOverTCP, cseq: 1, contact: by.Contact(t.Username, to.Transport),
	}
	d.leg.remote.Address.UriParams = nil
	d.leg.local = d.fromHeader()
	d.leg.local.Params.Add("tag", d.tag)
	d.body = params.Body
	if t.SessionTimer > 0 {
		d.timer.RequestInterval(max(t.SessionTimer, a.cfg.MinSession))
	}
	d.invite = d.firstInvite()
	if err := a.addLeg(d); err != nil {
		return nil, nil, &transport.NotSent{Err: fmt.Errorf("%w: %w", ErrLocalFault, err)}
	}
	tx, err := d.send(ctx, d.invite, to)
	if err != nil {
		a.legEnded()
		a.removeLeg(d)
		var unsent *transport.NotSent
		if !errors.As(err, &unsent) { // the peer received no complete message
			err = &transport.NotSent{Err: err}
		}
		return nil, nil, err
	}
	if observer.Sent != nil {
		observer.Sent(d.sentAt)
	}
	return d, tx, nil
}

// fromHeader returns the header From, with the caller ID in the format that the trunk requires.
func (d *Dialog) fromHeader() sip.FromHeader {
	user := d.params.From
	if d.trunk.CallerID == Asserted && d.trunk.Username != "" {
		user = d.trunk.Username
	}
	if user == "" { // the number is withheld (RFC 3323 section 4.1)
		return sip.FromHeader{DisplayName: "Anonymous", Address: sip.Uri{Scheme: "sip", User: "anonymous", Host: "anonymous.invalid"}}
	}
	return sip.FromHeader{Address: d.trunk.identity(user)}
}

func (d *Dialog) firstInvite() *sip.Request {
	req := d.leg.newRequest(sip.INVITE)
	if d.trunk.CallerID == Asserted && d.params.From != "" {
		asserted := d.trunk.identity(d.params.From)
		req.AppendHeader(sip.NewHeader("P-Asserted-Identity", "<"+asserted.String()+">"))
	}
	d.addOffer(req, d.params.Body)
	return req
}

func (d *Dialog) addOffer(req *sip.Request, body []byte) {
	req.AppendHeader(sip.NewHeader("Allow", allowedMethods))
	req.AppendHeader(sip.NewHeader("Supported", "timer"))
	d.agent.addUserAgent(req)
	d.addSessionTimer(req)
	if len(body) > 0 {
		req.AppendHeader(sip.NewHeader("Content-Type", d.params.ContentType))
		req.SetBody(body)
	}
}

// attempt is the setup of an outbound leg: its newest INVITE and the transaction of that INVITE.
type attempt struct {
	*Dialog
	tx        *sip.ClientTx
	acked     <-chan struct{}
	challenge transport.Challenge
	// responded is true if a response to the newest INVITE has arrived. provisional is true if a
	// provisional response to it has arrived. rang is true if a phone rings, and canceled if the
	// CANCEL was sent.
	responded, provisional, rang, canceled bool
	// localFault is true if an INVITE could not be sent again because of a fault of this process or
	// its database. notPermitted is true if Permit returned false. excluded contains the addresses
	// that responded with 503. abandonCause is the cause with which this side abandoned the call.
	localFault, notPermitted bool
	excluded                 []string
	abandonCause             callstate.Cause
	early                    []byte
	first, ring, confirm     *time.Timer
	begun                    time.Time
}

// runSetup sends and handles the INVITE until the call is answered or has ended. It returns true if
// the call was answered before this side abandoned it.
func (d *Dialog) runSetup(tx *sip.ClientTx) bool {
	at := &attempt{
		Dialog: d, tx: tx, begun: time.Now(),
		first: time.NewTimer(d.params.FirstResponse), ring: time.NewTimer(d.params.FirstRing),
		confirm: time.NewTimer(time.Hour),
	}
	at.confirm.Stop()
	at.watchAcks()
	defer func() { at.first.Stop(); at.ring.Stop(); at.confirm.Stop() }()
	hang := d.hangupRequested
	for {
		select {
		case <-d.responses.arrived:
			if answered, finished := at.handleResponses(); finished {
				return answered
			}
		case <-at.tx.Done():
			ended := at.tx
			if answered, finished := at.handleResponses(); finished { // the response ended the transaction
				return answered
			}
			if at.tx == ended { // no further INVITE has replaced this transaction
				at.endTransactionFailed(ended.Err())
				return false
			}
		case <-at.first.C:
			if !at.responded { // a phone can still ring, so handleLate handles further responses
				return at.endWithoutResponse(callstate.RecoveryOnTimerExpire, errNoResponse)
			}
		case <-at.ring.C:
			at.abandon(at.timerCause())
		case <-hang:
			hang = nil
			at.abandon(d.causeOfHangup())
		case <-at.confirm.C:
			return at.endWithoutResponse(callstate.RecoveryOnTimerExpire, errNoResponse)
		case <-d.agent.stop:
			return false
		}
	}
}

func (at *attempt) timerCause() callstate.Cause {
	switch {
	case at.rang:
		return callstate.NoAnswer
	case at.responded:
		return at.params.NotRinging
	}
	return callstate.RecoveryOnTimerExpire // without any response, the trunk counts as failed
}

// abandon ends the setup of the call with a CANCEL. A CANCEL may be sent only after a response has
// arrived (RFC 3261 section 9.1). If none has arrived, abandon is called again at the first
// response.
func (at *attempt) abandon(cause callstate.Cause) {
	if at.abandonCause == "" {
		at.abandonCause = cause
		at.ring.Stop()
	}
	if at.responded && !at.canceled {
		at.canceled = true
		at.sendCancel(at.abandonCause)
		at.confirm.Reset(confirmTimeout)
	}
}

var errNoResponse = errors.New("no final response to the INVITE")

// endWithoutResponse ends a leg whose INVITE has no final response. The leg becomes an orphan, and
// handleLate handles responses that still arrive.
func (at *attempt) endWithoutResponse(cause callstate.Cause, reason error) bool {
	if at.abandonCause != "" {
		cause = at.abandonCause
	}
	at.markOrphan(at.canceled)
	at.tx.Terminate()
	at.reportEnd(End{At: time.Now(), Cause: cause, ByUs: true, Err: reason})
	return false
}

func (at *attempt) endTransactionFailed(err error) {
	cause := callstate.NetworkOutOfOrder
	if errors.Is(err, transport.ErrTimeout) {
		cause = callstate.RecoveryOnTimerExpire
	}
	at.log.Debug("INVITE failed", "error", err)
	at.endWithoutResponse(cause, err)
}

// watchAcks closes at.acked when the final response has arrived and a refusal has been
// acknowledged. It discards the responses, because runSetup reads them from the queue d.responses.
func (at *attempt) watchAcks() {
	tx, acked := at.tx, make(chan struct{})
	at.acked = acked
	at.agent.spawn(func() {
		done := sync.OnceFunc(func() { close(acked) })
		defer done()
		for {
			select {
			case res := <-tx.Responses():
				if !res.IsProvisional() {
					done()
				}
			case <-tx.Done():
				return
			// No timer ends the transaction while the phone rings. So the transaction can outlast the user
			// agent.
			case <-at.agent.stop:
				return
			}
		}
	})
}

func (at *attempt) handleResponses() (answered, finished bool) {
	for {
		res := at.responses.pop()
		if res == nil {
			return false, false
		}
		if res.CSeq().SeqNo != at.invite.CSeq().SeqNo {
			continue
		}
		if answered, finished = at.handleResponse(res); finished {
			return answered, true
		}
	}
}

// handleResponse handles one response. answered is true if the call was answered. finished is true
// if no further response to the INVITE is expected.
func (at *attempt) handleResponse(res *sip.Response) (answered, finished bool) {
	now := time.Now()
	if !at.responded {
		at.responded = true
		at.first.Stop()
	}
	switch {
	case res.StatusCode < 200:
		at.handleProvisional(res, now)
		return false, false
	case res.StatusCode < 300:
		return at.handleAnswer(res, now), true
	}
	if at.abandonCause == "" && at.sendAgain(res) {
		return false, false
	}
	end := End{
		At: now, Status: res.StatusCode, Reason: res.Reason, Cause: at.abandonCause, ByUs: at.abandonCause != "",
		LocalFault:   at.localFault,
		NotPermitted: at.notPermitted,
	}
	if !end.ByUs {
		final := Final{Status: res.StatusCode, Rang: at.rang,
			RetryAfter: res.GetHeader("Retry-After") != nil, Reasons: headerValues(res, "Reason")}
		end.Cause, end.OtherTrunkAllowed = final.Cause(), final.AllowsOtherTrunk()
	}
	at.reportEnd(end)
	return false, true
}

func (at *attempt) handleProvisional(res *sip.Response, now time.Time) {
	if at.abandonCause != "" {
		at.abandon(at.abandonCause)
		return
	}
	at.provisional = true
	at.notifyAccepted(now)
	if len(res.Body()) > 0 {
		at.early = res.Body()
	}
	if res.StatusCode >= 180 && !at.rang {
		at.rang = true
		at.ring.Reset(at.params.Ring)
		at.notify(func(observer Observer) {
			if observer.Rang != nil {
				observer.Rang(now, res.Body())
			}
		})
	}
}

// handleAnswer acknowledges the first 200. If this side has already abandoned the call, it also
// hangs up.
func (at *attempt) handleAnswer(res *sip.Response, now time.Time) bool {
	at.mu.Lock()
	at.leg = at.leg.establishedLeg(res)
	at.leg.transport, at.leg.hop = at.invite.Transport(), at.invite.Destination()
	at.answeredBy = tagOf(res.To())
	at.established, at.acceptReason = true, res.Reason
	at.mu.Unlock()
	if at.abandonCause == "" {
		_ = at.keepState(nil)
	}
	at.addPeer(at.leg.requestRoute().Hop)
	at.acknowledge()
	at.closeInvite()
	if at.abandonCause != "" {
		close(at.answered)
		at.endBye(at.abandonCause)
		return false
	}
	at.timer.StartFromHeader(sessionExpires(res), now)
	at.supportsUpdate = supportsUpdate(res)
	body := res.Body()
	if len(body) == 0 { // an earlier provisional response can contain the SDP answer
		body = at.early
	}
	at.notifyAccepted(now)
	var err error
	at.notify(func(observer Observer) {
		if observer.Answered != nil {
			err = observer.Answered(now, body)
		}
	})
	close(at.answered)
	if err != nil {
		at.log.Info("call hung up: SDP answer not usable", "error", err)
		at.endBye(callstate.IncompatibleDest)
		return false
	}
	return true
}
