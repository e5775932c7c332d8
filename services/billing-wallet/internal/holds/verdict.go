package holds

import (
	"github.com/google/uuid"

	"ringfence.dev/libs/money"
)

// Reason is the fact that ended a request.
type Reason string

// Ended is the one fact that can charge; every other gives the whole hold back.
const (
	Ended     Reason = "ended"
	Withdrawn Reason = "withdrawn"
	Blocked   Reason = "blocked"
	Failed    Reason = "failed"
	Canceled  Reason = "canceled"
	Abandoned Reason = "abandoned"
)

// Outcome is news that a request ended.
type Outcome struct {
	ID          int64
	WorkspaceID uuid.UUID
	RequestID   uuid.UUID
	Reason      Reason
	// BillableSeconds is zero when nothing is charged.
	BillableSeconds int32
	// CallID is nil when there was no call.
	CallID      *uuid.UUID
	Traceparent string
	// WaitedSeconds is how long the verdict has waited, by the database's clock.
	WaitedSeconds float64
}

// Late names news about a hold that is settled already, or was never made. It changes nothing.
type Late string

// The kinds of late news, as they are counted. Repeat is the capture that the hold has: the same call
// at the same price. It happens when an event of the call settled the hold before ended arrived.
const (
	NotLate             Late = ""
	Repeat              Late = "repeat"
	SecondCapture       Late = "second_capture"
	CaptureAfterRelease Late = "capture_after_release"
	ReleaseAfterCapture Late = "release_after_capture"
	SecondRelease       Late = "second_release"
	UnknownHold         Late = "unknown_hold"
)

// LateKinds lists them, for the metric.
func LateKinds() []Late {
	return []Late{Repeat, SecondCapture, CaptureAfterRelease, ReleaseAfterCapture, SecondRelease, UnknownHold}
}

// Charge is what the seconds cost at the agreed price, never more than the hold.
func (h Hold) Charge(seconds int32) money.Micro {
	return min(money.Price(h.PerMinute, seconds, h.IncrementSeconds), h.Amount)
}

// Settle settles the hold: captured if the seconds cost anything, otherwise released. A hold that is
// settled already is not changed; late is the kind of the verdict that arrived too late.
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

// Charged is what was captured, zero when nothing was.
func (h Hold) Charged() money.Micro {
	if h.Captured == nil {
		return 0
	}
	return *h.Captured
}
