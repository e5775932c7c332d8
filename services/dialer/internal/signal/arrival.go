package signal

import "github.com/emiago/sipgo/sip"

// Arrival is a call that comes in.
type Arrival struct{}

func (a *Agent) arrived(req *sip.Request, tx *sip.ServerTx) {
	a.refuse(req, tx, sip.StatusForbidden, "Forbidden")
}
