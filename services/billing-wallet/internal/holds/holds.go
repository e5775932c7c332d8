// Package holds decides how much credit a call request reserves, and how the end of the request
// settles the hold. The package also finds the rate of a call. Package store stores the holds.
package holds

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"ringfence.dev/libs/money"
)

// State is the state of a hold. The states captured and released are final.
type State string

const (
	Held     State = "held"
	Captured State = "captured"
	Released State = "released"
)

// Order is the request for a hold for one call request or one inbound call.
type Order struct {
	// RequestID is the id of the call request, or the id of the inbound call.
	RequestID      uuid.UUID
	WorkspaceID    uuid.UUID
	To             string
	MaxCallSeconds int32
	// Inbound is the rate of an inbound call. It is nil for a call request.
	Inbound *Rate
}

// Hold is the credit that is reserved for one call request or one inbound call. It contains the
// rate that was valid when the hold was made.
type Hold struct {
	// RequestID is the id of the call request, or the id of the call if Inbound is true.
	RequestID        uuid.UUID
	Inbound          bool
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
	// ErrEnded means that the hold of this id is already settled. The same id can never get another
	// hold.
	ErrEnded = errors.New("this call request or call has ended and can hold nothing any more")
	// ErrForeign means that the id belongs to another workspace.
	ErrForeign = errors.New("this call request or call belongs to another workspace")
)

// Insufficient is the error for a wallet whose spendable credit is below the price of the longest
// possible call.
type Insufficient struct {
	Needed, Available money.Micro
	Currency          string
}

func (e *Insufficient) Error() string {
	return fmt.Sprintf("The longest possible call needs %s %s and %s %s is available. Top up the wallet or shorten the agent's calls.",
		e.Needed, e.Currency, e.Available, e.Currency)
}

// Decision is the acceptance or the refusal of one call request.
type Decision struct {
	Hold Hold
	// Repeated is true if the hold existed before this order.
	Repeated bool
	// Err is nil, ErrEnded, ErrForeign or an *Insufficient.
	Err error
}

// WalletView is the data of one wallet that Decide needs: the spendable credit, the rates and the
// existing holds. Decide updates the WalletView, so that the next order is decided on the remaining
// credit.
type WalletView struct {
	Spendable money.Micro
	Currency  string
	Rates     []Rate
	// Known contains the holds that already exist for the request ids of the orders.
	Known map[uuid.UUID]Hold
}

// Decide decides one order. If it places a hold, it subtracts the amount of the hold from
// Spendable. If the request already has an open hold, Decide returns that hold, even if the order
// differs.
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
	agreed := Match(d.Rates, o.To)
	if o.Inbound != nil {
		agreed = *o.Inbound
	}
	needed := money.Price(agreed.PerMinute, o.MaxCallSeconds, agreed.IncrementSeconds)
	if needed > d.Spendable {
		return Decision{Err: &Insufficient{Needed: needed, Available: d.Spendable, Currency: d.Currency}}
	}
	h := Hold{
		RequestID: o.RequestID, WorkspaceID: o.WorkspaceID, Amount: needed, Currency: d.Currency, PerMinute: agreed.PerMinute,
		IncrementSeconds: agreed.IncrementSeconds, MaxCallSeconds: o.MaxCallSeconds, State: Held, Inbound: o.Inbound != nil,
	}
	d.Spendable -= needed
	d.Known[o.RequestID] = h
	return Decision{Hold: h}
}
