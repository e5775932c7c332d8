// Package holds owns a hold's life: what is set aside for a call's longest length, and how the end of
// its request settles it, once. It knows neither the database nor why a call ended.
package holds

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"ringfence.dev/libs/money"
	"ringfence.dev/services/billing-wallet/internal/rates"
)

// State is where a hold stands; captured and released are final.
type State string

// The states of a hold.
const (
	Held     State = "held"
	Captured State = "captured"
	Released State = "released"
)

// Order asks for a hold.
type Order struct {
	RequestID      uuid.UUID
	WorkspaceID    uuid.UUID
	To             string
	MaxCallSeconds int32
}

// Hold is credit set aside for one call request, at the price agreed then.
type Hold struct {
	RequestID        uuid.UUID
	WorkspaceID      uuid.UUID
	Amount           money.Micro `db:"amount_micro"`
	Currency         string
	PerMinute        money.Micro `db:"per_minute_micro"`
	IncrementSeconds int32
	MaxCallSeconds   int32
	State            State
	Captured         *money.Micro `db:"captured_micro"`
	CallID           *uuid.UUID
}

var (
	// ErrEnded says that the hold of this request id was settled already: the id is never used again.
	ErrEnded = errors.New("this call request has ended and can hold nothing any more")
	// ErrForeign says that the request id belongs to another workspace.
	ErrForeign = errors.New("this call request belongs to another workspace")
)

// Insufficient says that the wallet cannot cover a call.
type Insufficient struct {
	Needed, Available money.Micro
	Currency          string
}

func (e *Insufficient) Error() string {
	return fmt.Sprintf("The longest possible call needs %s %s and %s %s is available. Top up the wallet or shorten the agent's calls.",
		e.Needed, e.Currency, e.Available, e.Currency)
}

// Decision answers one order.
type Decision struct {
	Hold Hold
	// Repeated says that the hold stood before this order.
	Repeated bool
	// Err is nil, ErrEnded, ErrForeign or an *Insufficient.
	Err error
}

// WalletView is what a workspace's orders are decided on; Decide writes to it.
type WalletView struct {
	Spendable money.Micro
	Currency  string
	Rates     []rates.Rate
	// Known holds every hold of the ordered ids that stands already.
	Known map[uuid.UUID]Hold
}

// Decide answers one order and takes its amount off what may be spent. The same id again gets the hold
// that stands, whatever the order says.
func (d *WalletView) Decide(o Order) Decision {
	if known, ok := d.Known[o.RequestID]; ok {
		switch {
		case known.WorkspaceID != o.WorkspaceID:
			return Decision{Err: ErrForeign}
		case known.State != Held:
			return Decision{Err: ErrEnded}
		}
		return Decision{Hold: known, Repeated: true}
	}
	agreed := rates.Match(d.Rates, o.To)
	needed := money.Price(agreed.PerMinute, o.MaxCallSeconds, agreed.IncrementSeconds)
	if needed > d.Spendable {
		return Decision{Err: &Insufficient{Needed: needed, Available: d.Spendable, Currency: d.Currency}}
	}
	h := Hold{
		RequestID: o.RequestID, WorkspaceID: o.WorkspaceID, Amount: needed, Currency: d.Currency, PerMinute: agreed.PerMinute,
		IncrementSeconds: agreed.IncrementSeconds, MaxCallSeconds: o.MaxCallSeconds, State: Held,
	}
	d.Spendable -= needed
	d.Known[o.RequestID] = h
	return Decision{Hold: h}
}
