package holds

import (
	"github.com/google/uuid"

	"ringfence.dev/libs/money"
)

// Reason states how a request ended.
type Reason string

// Only the reason Ended can cause a charge. Every other reason releases the hold.
const (
	Ended     Reason = "ended"
	Withdrawn Reason = "withdrawn"
	Blocked   Reason = "blocked"
	Failed    Reason = "failed"
	Canceled  Reason = "canceled"
	Abandoned Reason = "abandoned"
	// CallUnknown means that the dialer has no inbound call with this id.
	CallUnknown Reason = "call_unknown"
)

// Outcome is the end of a request or of an inbound call. Its fields are stored in the table
// pending_settlements.
type Outcome struct {
	ID          int64
	WorkspaceID uuid.UUID
	// RequestID is the id of the call request, or the id of the inbound call.
	RequestID uuid.UUID
	Reason    Reason
	// BillableSeconds is the number of seconds to charge. It is 0 if nothing is charged.
	BillableSeconds int32
	// CallID is nil if there was no call.
	CallID      *uuid.UUID
	Traceparent string
	// WaitedSeconds is the time since the outcome was stored, measured with the database's clock.
	WaitedSeconds float64
}

// Late is the kind of a late outcome: an outcome whose hold is already settled or does not exist. A
// late outcome changes nothing.
type Late string

// These are the kinds of late outcomes, which are also the values of the metric's label `kind`.
// Repeat means that another event of the same call has already captured the hold with the same
// price.
const (
	NotLate             Late = ""
	Repeat              Late = "repeat"
	SecondCapture       Late = "second_capture"
	CaptureAfterRelease Late = "capture_after_release"
	ReleaseAfterCapture Late = "release_after_capture"
	SecondRelease       Late = "second_release"
	UnknownHold         Late = "unknown_hold"
)

// LateKinds returns all kinds except NotLate. The metric starts with the value 0 for each of these
// kinds.
func LateKinds() []Late {
	return []Late{Repeat, SecondCapture, CaptureAfterRelease, ReleaseAfterCapture, SecondRelease, UnknownHold}
}

// Charge returns the price of the seconds at the rate of the hold. The price is limited to the
// amount of the hold.
func (h Hold) Charge(seconds int32) money.Micro {
	return min(money.Price(h.PerMinute, seconds, h.IncrementSeconds), h.Amount)
}

// Settle returns the settled hold. The hold is captured if the price of the seconds is above 0.
// Otherwise it is released. If the hold is already settled, Settle returns it unchanged, and late
// describes how the outcome differs from the settlement.
func (h Hold) Settle(v Outcome) (settled Hold, late Late) {
	charge := h.Charge(v.BillableSeconds)
	switch {
	case h.State == Held:
	case h.State == Captured && charge == h.Charged() && sameCall(h.CallID, v.CallID):
		return h, Repeat
	case h.State == Captured && charge > 0:
		return h, SecondCapture
	case h.State == Captured:
		return h, ReleaseAfterCapture
	case charge > 0:
		return h, CaptureAfterRelease
	default:
		return h, SecondRelease
	}
	h.State, h.CallID = Released, v.CallID
	if charge > 0 {
		h.State, h.Captured = Captured, &charge
	}
	return h, NotLate
}

func sameCall(a, b *uuid.UUID) bool { return a != nil && b != nil && *a == *b }

// Charged returns the captured amount, or 0.
func (h Hold) Charged() money.Micro {
	if h.Captured == nil {
		return 0
	}
	return *h.Captured
}
