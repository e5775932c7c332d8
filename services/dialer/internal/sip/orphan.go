package sip

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/callstate"
)

// sendCancel sends the CANCEL of an orphaned leg. The final response to the INVITE ends the leg.
// The response to the CANCEL ends the leg if the peer has no such call (481), or if this process
// does not receive the final response.
func (d *Dialog) sendCancel(cause callstate.Cause) {
	d.mu.Lock()
	invite := d.invite
	d.mu.Unlock()
	req := newCancel(invite, cause)
	req.SetTransport(invite.Transport())
	req.Laddr = invite.Laddr
	req.SetDestination(invite.Destination())
	d.agent.spawn(func() {
		ctx, done := d.agent.stopContext()
		defer done()
		res, err := d.transport.ExchangeOnce(ctx, req)
		switch {
		case err != nil:
			d.log.Info("CANCEL not answered", "call_id", d.id, "error", err)
		case res.StatusCode == sip.StatusCallTransactionDoesNotExists, res.IsSuccess() && d.sentFromOtherAddress:
			d.markFinished()
		}
	})
}

// markOrphan makes the leg an orphan: this side ends the leg without a final response, and a phone
// can still ring. handleLate handles responses that still arrive. canceled is true if the INVITE
// was canceled.
func (d *Dialog) markOrphan(canceled bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.orphaned, d.canceled = true, canceled
}

func (d *Dialog) isOrphan() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.orphaned
}

// markFinished closes d.finished: the peer no longer has a call of this leg.
func (d *Dialog) markFinished() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.finished:
	default:
		close(d.finished)
	}
}

// handleResponse receives every response to an INVITE, in order. The leg of the response can be in
// setup, established or ended. If this user agent has no such leg, another process sent the INVITE.
func (a *UserAgent) handleResponse(res *sip.Response) {
	id, from, cseq := res.CallID(), res.From(), res.CSeq()
	if id == nil || from == nil || cseq == nil || cseq.MethodName != sip.INVITE {
		return
	}
	d, unknown := a.findOrAddStray(id, from.Params.GetOr("tag", ""), res)
	if unknown != nil {
		a.spawn(func() { a.endStray(unknown) })
	}
	if d == nil {
		return
	}
	d.addPeer(res.Source())
	if !d.responses.push(res) {
		a.spawn(func() { d.handleLate(res) })
	}
}

// maxStrays is the maximum number of stored 200s without a leg (see stray).
const maxStrays = 1000

type strayKey struct {
	id  sip.CallIDHeader
	tag string
}

// stray is a 200 to an INVITE that a dead process sent from this address. This user agent does not
// have the leg. But only this process receives the 200, so it must hang up.
type stray struct {
	answer *sip.Response
	// done is closed when the peer has responded to the BYE, or when the BYE has failed. err is set
	// before that.
	done chan struct{}
	err  error
}

// strays contains the newest strays. Without it, Reap would have to wait for the next
// retransmission of a 200, and the peer waits longer before each retransmission.
type strays struct {
	answers map[strayKey]*stray
	order   []strayKey
}

// addIfNew stores a 200. It returns nil if the 200 is a retransmission.
func (s *strays) addIfNew(key strayKey, answer *sip.Response) *stray {
	if s.answers == nil {
		s.answers = map[strayKey]*stray{}
	}
	if s.answers[key] != nil {
		return nil
	}
	if len(s.order) == maxStrays {
		delete(s.answers, s.order[0])
		s.order = s.order[1:]
	}
	s.answers[key] = &stray{answer: answer, done: make(chan struct{})}
	s.order = append(s.order, key)
	return s.answers[key]
}

// findOrAddStray returns the leg to which a response belongs. If the user agent has no such leg and
// the response is a new 200, it stores the 200 and returns its stray.
func (a *UserAgent) findOrAddStray(id *sip.CallIDHeader, tag string, res *sip.Response) (*Dialog, *stray) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.legs[*id][tag]
	if d == nil && res.IsSuccess() {
		return nil, a.strays.addIfNew(strayKey{*id, tag}, res)
	}
	return d, nil
}

// findStray returns the 200 that arrived before this user agent restored the leg, or nil.
func (a *UserAgent) findStray(d *Dialog) *stray {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.strays.answers[strayKey{d.id, d.tag}]
}

// endStray acknowledges a 200 and hangs up. It does not wait for the process that takes over the
// leg. That process can have another address, and then it does not receive the 200.
func (a *UserAgent) endStray(s *stray) {
	defer close(s.done)
	if s.err = a.awaitTransport(); s.err != nil {
		return
	}
	res := s.answer
	to := Trunk{Name: res.Source(), Transport: res.Transport()}
	if peer, err := netip.ParseAddrPort(res.Source()); err == nil && a.cfg.Peer != nil {
		if known, ok := a.cfg.Peer(peer, res.Transport()); ok {
			to = known
		}
	}
	us := leg{
		callID: *res.CallID(), local: *res.From(), hop: res.Source(), transport: res.Transport(),
		cseq: seqOf(res) + crashCSeqGap, contact: a.transport.Contact("", res.Transport()),
	}
	if to := res.To(); to != nil {
		us.target = *to.Address.Clone()
	}
	us = us.establishedLeg(res)
	d := newDialog(a, a.transport, to, Observer{}, us.callID)
	d.leg = us
	a.cfg.Log.Warn("hanging up an answered call of a dead process", "call_id", string(us.callID))
	d.ack(us, nil, seqOf(res))
	if s.err = d.sendBye(us, callstate.NormalTemporaryFailure); s.err != nil {
		a.cfg.Log.Warn("BYE not answered", "call_id", string(us.callID), "error", s.err)
	}
}

// responses is a queue of the responses to an INVITE, in order.
type responses struct {
	mu      sync.Mutex
	all     []*sip.Response
	closed  bool
	arrived chan struct{}
}

// maxResponses limits the queue. When the queue is full, further provisional responses are dropped.
const maxResponses = 64

// push appends a response. It returns false if the queue is closed.
func (r *responses) push(res *sip.Response) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	if len(r.all) < maxResponses || !res.IsProvisional() && len(r.all) < 2*maxResponses {
		r.all = append(r.all, res)
	}
	select {
	case r.arrived <- struct{}{}:
	default:
	}
	return true
}

func (r *responses) pop() *sip.Response {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return nil
	}
	first := r.all[0]
	r.all = r.all[1:]
	return first
}

// close closes the queue and returns the responses that are still queued. Responses that arrive
// after close are passed to handleLate.
func (r *responses) close() (left []*sip.Response) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left, r.closed, r.all = r.all, true, nil
	return left
}

// closeInvite closes the queue of responses. It passes the responses that are still queued to
// handleLate.
func (d *Dialog) closeInvite() {
	for _, res := range d.responses.close() {
		d.handleLate(res)
	}
}

func seqOf(res *sip.Response) uint32 {
	if cseq := res.CSeq(); cseq != nil {
		return cseq.SeqNo
	}
	return 0
}

// handleLate handles a response that arrives after this side has ended its INVITE.
func (d *Dialog) handleLate(res *sip.Response) {
	d.mu.Lock()
	invite, orphan, canceled := d.invite, d.orphaned, d.canceled
	ours := invite != nil && seqOf(res) == invite.CSeq().SeqNo
	if ours && orphan && res.IsProvisional() {
		d.canceled = true
	}
	d.mu.Unlock()
	switch {
	case !ours:
	case res.IsProvisional():
		if orphan && !canceled {
			d.sendCancel(callstate.OriginatorCancel)
		}
	case res.IsSuccess():
		d.handleLateAnswer(res)
	case orphan:
		ack := newRefusalAck(invite, res)
		ack.SetTransport(invite.Transport())
		ack.Laddr = invite.Laddr
		ack.SetDestination(invite.Destination())
		if err := d.transport.Send(ack); err != nil {
			d.log.Info("ACK to a refused INVITE not sent", "call_id", d.id, "error", err)
		}
		d.markFinished()
	}
}

// handleLateAnswer acknowledges a late or repeated 200. If the 200 does not belong to the
// established dialog, handleLateAnswer hangs up the dialog of the 200.
func (d *Dialog) handleLateAnswer(res *sip.Response) {
	tag := tagOf(res.To())
	d.mu.Lock()
	invite, seq := d.invite, d.invite.CSeq().SeqNo
	if d.established && tag == d.answeredBy {
		us := d.leg
		d.mu.Unlock()
		d.ack(us, invite, seq)
		return
	}
	loser, known := d.otherForks[tag]
	if !known {
		if len(d.otherForks) >= maxOtherForks {
			d.mu.Unlock()
			return
		}
		us := d.leg.establishedLeg(res)
		us.transport, us.hop = invite.Transport(), invite.Destination()
		loser, d.otherForks[tag] = &us, &us
	}
	us, orphan := *loser, d.orphaned
	d.mu.Unlock()
	d.ack(us, invite, seq)
	if known {
		return
	}
	d.agent.spawn(func() {
		if err := d.sendBye(us, callstate.OriginatorCancel); err != nil {
			d.log.Info("BYE not answered", "call_id", d.id, "error", err)
			return
		}
		if orphan {
			d.markFinished()
		}
	})
}

// maxOtherForks is the maximum number of other phones of one INVITE that are hung up.
const maxOtherForks = 16

// crashCSeqGap is added to the CSeq of a teardown state, because the dead process can have sent
// more requests after it stored the state. Gaps in the CSeq are permitted (RFC 3261 section
// 12.2.1.1).
const crashCSeqGap = 100

// crossingTimeout is how long Reap waits for a 200 after the peer has rejected the CANCEL. The peer
// can have sent the 200 before it received the CANCEL.
const crossingTimeout = 2 * time.Second

// Reap ends a leg of a dead process, with CANCEL while the phone rings and with BYE after an
// answer. If state is empty, there is nothing to end. Reap returns when the peer has confirmed the
// end, or when ctx ends. It can be called again.
func (a *UserAgent) Reap(ctx context.Context, t Trunk, state []byte) error {
	if len(state) == 0 {
		return nil
	}
	s, err := ParseTeardown(state)
	if err != nil {
		return err
	}
	us, invite, err := restoreLeg(s)
	if err != nil {
		return err
	}
	to, _ := t.requestRoute()
	by, err := a.transportTo(t, to)
	if err != nil {
		return err
	}
	d := newDialog(a, by, t, Observer{}, us.callID)
	d.leg, d.invite, d.orphaned, d.ended, d.endReported = us, invite, true, true, true
	d.closeInvite()
	d.tag = us.local.Params.GetOr("tag", "")
	if known := a.find(&us.callID, d.tag); known != nil && !known.isOrphan() {
		return fmt.Errorf("reap call %s: this process owns a live leg of the call", us.callID)
	}
	if err := a.addLeg(d); err != nil {
		return err
	}
	d.addPeer(s.Hop)
	d.handleLateMessages()
	if invite == nil {
		close(d.answered)
		d.established, d.answeredBy = true, us.remote.Params.GetOr("tag", "")
		d.leg.cseq += crashCSeqGap
		return d.reapDialog(ctx)
	}
	d.canceled = true
	if err := d.transport.Restore(invite, s.Hop, s.Transport); err != nil {
		return err
	}
	if answered := a.findStray(d); answered != nil {
		select {
		case <-answered.done:
		case <-ctx.Done():
			return fmt.Errorf("reap call %s: %w", us.callID, ctx.Err())
		}
		if answered.err == nil {
			return nil
		}
		d.handleLate(answered.answer)
	}
	via := invite.Via()
	d.sentFromOtherAddress = via.Host != a.transport.Host() || via.Port != a.transport.Port(s.Transport)
	d.sendCancel(callstate.OriginatorCancel)
	select {
	case <-d.finished:
	case <-ctx.Done():
		return fmt.Errorf("reap call %s: %w", us.callID, ctx.Err())
	}
	return d.waitForCrossingAnswer(ctx)
}

// waitForCrossingAnswer waits for a 200 that the peer sent before it received the CANCEL.
func (d *Dialog) waitForCrossingAnswer(ctx context.Context) error {
	timer := time.NewTimer(crossingTimeout)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

func (d *Dialog) reapDialog(ctx context.Context) error {
	answered := make(chan error, 1)
	d.mu.Lock()
	us := d.leg
	d.mu.Unlock()
	d.agent.spawn(func() { answered <- d.sendBye(us, callstate.NormalTemporaryFailure) })
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return fmt.Errorf("reap call %s: %w", d.id, ctx.Err())
	}
}
