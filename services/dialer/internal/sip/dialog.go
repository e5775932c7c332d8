package sip

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// End describes how a leg ended.
type End struct {
	At    time.Time
	Cause callstate.Cause
	// ByUs is true if this side hung up, abandoned the call, or could not continue it.
	ByUs bool
	// Status is the status code of the final response to the INVITE, or 0 if there was none.
	Status int
	// Reason is the reason phrase of Status.
	Reason string
	// Err is the reason why there was no final response. It is nil if there was one.
	Err error
	// OtherTrunkAllowed is true if another trunk may be tried: the response shows that no phone rang
	// and no phone will ring.
	OtherTrunkAllowed bool
	// LocalFault is true if another INVITE had to be sent after the response Status, but was not sent
	// because of a fault of this process or its database.
	LocalFault bool
	// NotPermitted is true if Invite.Permit did not permit another INVITE after the response Status.
	NotPermitted bool
}

// Observer receives the events of a leg, one at a time, in the order of the fields. Offered and
// Agreed are called between Answered and Ended. The leg waits until a function returns. A function
// can be nil.
type Observer struct {
	// StoreState stores the teardown state. It is called at every change, and always before the ACK of
	// a 200. If the first call fails, Invite returns the error and sends nothing.
	StoreState func(state []byte) error
	// Sent is called before Invite returns. at is the time at which the first INVITE was sent.
	Sent func(at time.Time)
	// Accepted is called when the trunk accepts the call: at its first provisional response, or
	// else at the 200.
	Accepted func(at time.Time)
	// Rang is called once, when the phone rings. early is the body of the response that reports the
	// ringing, and can be empty. Audio before the 200 (early media) is not an answer.
	Rang func(at time.Time, early []byte)
	// Answered receives the SDP answer to this side's offer. If Answered returns an error, the leg
	// is hung up with the cause incompatible_destination.
	Answered func(at time.Time, answer []byte) error
	// Offered returns the SDP answer to an SDP offer within the call. If offer is nil, Offered returns
	// an SDP offer of this side, and Agreed receives the peer's answer. If Offered returns an error,
	// the peer's offer is refused with 488 and the call continues.
	Offered func(offer []byte) (answer []byte, err error)
	Agreed  func(answer []byte)
	// Ended is called once, as the last function.
	Ended func(End)
}

// Dialog is one leg, the SIP side of one call. An ended leg still handles messages for the time
// Config.Linger.
type Dialog struct {
	agent     *UserAgent
	transport *transport.Transport
	trunk     Trunk
	params    Invite
	observer  Observer
	log       *slog.Logger
	tag       string // this side's tag
	id        sip.CallIDHeader

	// hangupRequested is closed by Hangup. done is closed after Ended was called.
	hangupRequested, done chan struct{}
	hangOnce              sync.Once
	// remoteBye receives the cause of the peer's BYE. timerChanged receives a value when the session
	// timer changes.
	remoteBye chan callstate.Cause
	// answered is closed when the dialog is established. responses is the queue of the responses to
	// this side's open INVITE.
	answered     chan struct{}
	responses    responses
	timerChanged chan struct{}
	// arrival is the inbound INVITE, or nil for an outbound leg. Answer passes its arguments to
	// runInbound through the channel answers.
	arrival    *Arrival
	answers    chan answerRequest
	observerMu sync.Mutex

	peerAddresses []netip.Addr // guarded by UserAgent.mu

	mu          sync.Mutex
	leg         leg
	invite      *sip.Request // last INVITE that set up the leg; nil for an inbound call
	hangupCause callstate.Cause
	ended       bool
	// orphaned is true if the peer can still have a call that this side does not need and must end.
	// endReported is true after Ended was called.
	orphaned, endReported bool
	// sentFromOtherAddress is true if a process at another address sent the INVITE. This process then
	// does not receive the final response.
	sentFromOtherAddress bool
	// established is true if the dialog with the tag answeredBy is established. A proxy can send one
	// INVITE to several phones. otherForks contains, by tag, the dialogs of the other phones that
	// answered.
	established  bool
	answeredBy   string
	acceptReason string // reason phrase of the peer's 200
	otherForks   map[string]*leg
	canceled     bool
	finished     chan struct{} // closed when the peer no longer has a call of an orphaned leg
	// remoteCSeq is the highest CSeq of the peer. inviteOpen is true while this side's INVITE within
	// the dialog has no final response. remoteOffer is not nil while an INVITE or UPDATE of the peer
	// is open.
	remoteCSeq     uint32
	inviteOpen     bool
	remoteOffer    chan struct{}
	body           []byte // last SDP of this side
	supportsUpdate bool   // the peer supports UPDATE
	timer          Timer
	ackChannels    map[uint32]chan []byte // channels that expectAck returned, by CSeq of the peer's INVITE
	takenOnce      sync.Once
	// sentAt is the time at which the last INVITE was permitted. Only the goroutine that sends INVITEs
	// uses it.
	sentAt      time.Time
	referResult chan int // receives the result of this side's REFER; nil if no REFER is open
}

func newDialog(a *UserAgent, by *transport.Transport, t Trunk, observer Observer, callID sip.CallIDHeader) *Dialog {
	return &Dialog{
		agent: a, transport: by, trunk: t, observer: observer,
		log: a.cfg.Log, id: callID, tag: transport.Token(),
		hangupRequested: make(chan struct{}), done: make(chan struct{}),
		remoteBye: make(chan callstate.Cause, 1), answered: make(chan struct{}),
		answers:   make(chan answerRequest),
		responses: responses{arrived: make(chan struct{}, 1)}, timerChanged: make(chan struct{}, 1),
		otherForks: map[string]*leg{}, ackChannels: map[uint32]chan []byte{},
		finished: make(chan struct{}),
	}
}

func (d *Dialog) run(tx *sip.ClientTx) {
	if d.runSetup(tx) {
		d.runEstablished()
	}
	d.closeInvite()
	d.handleLateMessages()
}

// runEstablished runs a dialog from the 200 until the end of the leg.
func (d *Dialog) runEstablished() {
	for {
		wait, mine := d.timer.Next(time.Now())
		timer := time.NewTimer(wait)
		select {
		case <-d.hangupRequested:
			d.endBye(d.causeOfHangup())
			return
		case cause := <-d.remoteBye:
			d.reportEnd(End{At: time.Now(), Cause: cause, Status: sip.StatusOK})
			return
		case <-d.timerChanged:
		case <-timer.C:
			switch {
			case wait == Never:
			case mine:
				d.timer.StartRefresh()
				d.agent.spawn(d.refresh)
			default: // the peer has not refreshed the session in time (RFC 4028 section 10)
				d.log.Info("SIP session expired: the peer did not refresh it", "call_id", d.id)
				timer.Stop()
				d.requestHangup(callstate.RecoveryOnTimerExpire)
				d.endBye(d.causeOfHangup())
				return
			}
		case <-d.agent.stop:
			return
		}
		timer.Stop()
	}
}

// handleLateMessages handles messages that arrive after the end of the leg, for the time
// Config.Linger. Then it removes the leg.
func (d *Dialog) handleLateMessages() {
	d.agent.spawn(func() {
		timer := time.NewTimer(d.agent.cfg.Linger)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-d.agent.stop:
		}
		d.agent.removeLeg(d)
	})
}

// CallID returns the Call-ID of the leg.
func (d *Dialog) CallID() string { return string(d.id) }

// Done returns a channel that is closed after Ended was called.
func (d *Dialog) Done() <-chan struct{} { return d.done }

// State returns the teardown state, with which another process at the same address can end the leg.
// It is empty for an inbound call before the answer, because a caller gives up an unanswered call
// by itself.
func (d *Dialog) State() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.established {
		return d.leg.encodeState(nil)
	}
	if d.invite == nil { // an inbound call before the answer
		return nil
	}
	return d.leg.encodeState(d.invite)
}

// Hangup ends the leg with a CANCEL, a refusal or a BYE. The leg ends even if ctx ends first. If
// Hangup is called several times, the first cause counts. Before the answer, the cause
// normal_clearing is replaced by originator_cancel.
func (d *Dialog) Hangup(ctx context.Context, cause callstate.Cause) error {
	d.requestHangup(cause)
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *Dialog) requestHangup(cause callstate.Cause) {
	d.hangOnce.Do(func() {
		d.mu.Lock()
		d.hangupCause = cause
		d.mu.Unlock()
		close(d.hangupRequested)
	})
}

func (d *Dialog) causeOfHangup() callstate.Cause {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hangupCause == callstate.NormalClearing && !d.established {
		return callstate.OriginatorCancel
	}
	return d.hangupCause
}

// keepState passes the teardown state to Observer.StoreState. If invite is nil, it is the state of
// the established dialog. Otherwise it contains the INVITE that is sent next.
func (d *Dialog) keepState(invite *sip.Request) error {
	if d.observer.StoreState == nil {
		return nil
	}
	d.mu.Lock()
	state := d.leg.encodeState(invite)
	d.mu.Unlock()
	return d.observer.StoreState(state)
}

// notify calls a function of the observer, unless Ended was called.
func (d *Dialog) notify(call func(Observer)) {
	d.observerMu.Lock()
	defer d.observerMu.Unlock()
	if !d.endReported {
		call(d.observer)
	}
}

func (d *Dialog) notifyAccepted(now time.Time) {
	d.takenOnce.Do(func() {
		d.notify(func(observer Observer) {
			if observer.Accepted != nil {
				observer.Accepted(now)
			}
		})
	})
}

// reportEnd calls Observer.Ended. Later calls of reportEnd have no effect.
func (d *Dialog) reportEnd(e End) {
	d.mu.Lock()
	if d.ended {
		d.mu.Unlock()
		return
	}
	d.ended = true
	if e.Status == sip.StatusOK {
		e.Reason = d.acceptReason
	}
	d.mu.Unlock()
	d.observerMu.Lock()
	d.endReported = true
	if d.observer.Ended != nil {
		d.observer.Ended(e)
	}
	d.observerMu.Unlock()
	close(d.done)
	d.agent.legEnded()
}

// endBye sends a BYE. It calls reportEnd when the peer responds or after confirmTimeout. After
// confirmTimeout, the BYE is still retransmitted.
func (d *Dialog) endBye(cause callstate.Cause) {
	at := time.Now()
	d.mu.Lock()
	open := d.remoteOffer
	d.mu.Unlock()
	if open != nil { // the ACK of the last answered offer must precede the BYE (RFC 3261 section 15)
		waitForEither(open, d.agent.stop)
	}
	answered := make(chan struct{})
	d.agent.spawn(func() {
		defer close(answered)
		d.mu.Lock()
		us := d.leg
		d.mu.Unlock()
		if err := d.sendBye(us, cause); err != nil {
			d.log.Info("BYE not answered", "call_id", d.id, "error", err)
		}
	})
	timer := time.NewTimer(confirmTimeout)
	defer timer.Stop()
	select {
	case <-answered:
	case <-timer.C:
	case <-d.remoteBye: // both sides hung up at the same time
	case <-d.agent.stop:
	}
	d.reportEnd(End{At: at, Cause: cause, ByUs: true, Status: sip.StatusOK})
}

func (d *Dialog) nextCSeq() uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leg.cseq++
	return d.leg.cseq
}

// sendBye sends a BYE and waits for the response. A 481 counts as success, because the peer then no
// longer has the dialog.
func (d *Dialog) sendBye(us leg, cause callstate.Cause) error {
	us.cseq = d.nextCSeq()
	req := us.newBye(cause)
	d.agent.addUserAgent(req)
	ctx, done := d.agent.stopContext()
	defer done()
	_, err := d.transportFor(us).Exchange(ctx, req, us.requestRoute(), d.trunk.credentials(), d.nextCSeq)
	return err
}

// transportFor returns the transport for requests within the dialog: the transport of the INVITE.
// If the next hop is another host over TLS, the returned transport requires a certificate for that
// host.
func (d *Dialog) transportFor(us leg) *transport.Transport {
	if to := us.requestRoute(); to.Name() != "" {
		if own, err := d.agent.transportTo(d.trunk, to); err == nil {
			return own
		}
	}
	return d.transport
}

// stopContext returns a context that ends when the user agent is closed, or after 40 s.
func (a *UserAgent) stopContext() (context.Context, context.CancelFunc) {
	// 40 s is longer than any SIP transaction.
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	quit := context.AfterFunc(a.ctx, cancel)
	return ctx, func() { quit(); cancel() }
}

func (d *Dialog) acknowledge() {
	d.mu.Lock()
	us, invite := d.leg, d.invite
	d.mu.Unlock()
	d.ack(us, invite, invite.CSeq().SeqNo)
}

func (d *Dialog) ack(us leg, invite *sip.Request, seq uint32) {
	ack, by := us.newAck(invite, seq), d.transportFor(us)
	err := by.Prepare(ack, us.requestRoute())
	if err == nil {
		err = by.Send(ack)
	}
	if err != nil { // harmless: the peer repeats its 200, and this side repeats the ACK
		d.log.Warn("ACK to the 200 not sent", "call_id", d.id, "error", err)
	}
}

func byeCause(req *sip.Request) callstate.Cause { return ByeCause(headerValues(req, "Reason")) }

func tagOf(to *sip.ToHeader) string {
	if to == nil {
		return ""
	}
	return to.Params.GetOr("tag", "")
}
