package sip

import (
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/siptrace"
)

// maxOutside is the capacity of requestTrunks.
const maxOutside = 64

// requestTrunks contains, by Call-ID, the trunks of the newest requests that belong to no call
// (OPTIONS and REGISTER).
type requestTrunks struct {
	calls [maxOutside]struct {
		id    string
		trunk uuid.UUID
	}
	next int
}

func (o *requestTrunks) add(callID string, trunk uuid.UUID) {
	o.calls[o.next].id, o.calls[o.next].trunk = callID, trunk
	o.next = (o.next + 1) % maxOutside
}

func (o *requestTrunks) trunkOf(callID string) uuid.UUID {
	for _, one := range o.calls {
		if one.id == callID {
			return one.trunk
		}
	}
	return uuid.Nil
}

// recordMessage records a message if it belongs to a trunk.
func (a *UserAgent) recordMessage(m siptrace.Message) {
	if id, ok := a.trunkOf(m); ok {
		a.cfg.Trace.Record(id, m)
	}
}

// trunkOf returns the trunk of the call or request to which a message belongs. If there is none, it
// returns the trunk at the address of the peer. The address alone is not enough, because a trunk
// can use other addresses within a call.
func (a *UserAgent) trunkOf(m siptrace.Message) (id uuid.UUID, ok bool) {
	a.mu.Lock()
	for _, d := range a.legs[sip.CallIDHeader(m.CallID)] {
		id = d.trunk.ID
	}
	if id == uuid.Nil && m.CallID != "" {
		id = a.requestTrunks.trunkOf(m.CallID)
	}
	a.mu.Unlock()
	if id != uuid.Nil || a.cfg.TrunkAt == nil {
		return id, id != uuid.Nil
	}
	return a.cfg.TrunkAt(m.Peer, m.Transport)
}

// sendResponse sends a response in its transaction and records it.
func (a *UserAgent) sendResponse(tx *sip.ServerTx, res *sip.Response) error {
	at := time.Now()
	if err := tx.Respond(res); err != nil {
		return err
	}
	a.transport.TraceSent(res, at)
	return nil
}
