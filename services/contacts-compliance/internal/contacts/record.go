package contacts

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/phone"
)

// Kind is the kind of a consent record. It determines which state changes.
type Kind string

const (
	OptOut           Kind = "opt_out"
	OptOutRemoved    Kind = "opt_out_removed"
	ConsentGranted   Kind = "consent_granted"
	ConsentWithdrawn Kind = "consent_withdrawn"
)

// These are the sources that this service sets. Operators can send other sources.
const (
	SourceAPI  = "api"
	SourceCall = "call"
)

// Change is a requested change of one of the two states of a number.
type Change struct {
	WorkspaceID uuid.UUID
	Number      phone.Number
	Kind        Kind
	Source      string
	// Actor identifies who made the change: "operator:ann", "request:<id>" or "call:<id>".
	Actor  string
	Reason *string
	// Evidence is any JSON, or nil.
	Evidence json.RawMessage
	// CallID is the call in which the person asked for the change, or uuid.Nil. A change of the
	// same kind is recorded only once per call.
	CallID uuid.UUID
	// OccurredAt is the time at which the person asked for the change. If OccurredAt is zero, the
	// current time is recorded.
	OccurredAt time.Time
}

// Record is one row of the consent ledger. Before and After are the values of the changed state,
// which is DND or consent. The record of an import covers many numbers, so it has no Number,
// ContactID or Before.
type Record struct {
	ID         uuid.UUID       `db:"id"`
	Number     phone.Number    `db:"phone_e164"`
	ContactID  uuid.UUID       `db:"contact_id"`
	Kind       Kind            `db:"kind"`
	Source     string          `db:"source"`
	Actor      string          `db:"actor"`
	Reason     *string         `db:"reason"`
	Evidence   json.RawMessage `db:"evidence"`
	Before     string          `db:"before"`
	After      string          `db:"after"`
	OccurredAt time.Time       `db:"occurred_at"`
}

// Apply returns the contact after the change. It also returns the values of the changed state
// before and after the change.
func (c Contact) Apply(kind Kind) (changed Contact, before, after string) {
	changed = c
	switch kind {
	case OptOut:
		changed.DND = OptedOut
	case OptOutRemoved:
		changed.DND = Clean
	case ConsentGranted:
		changed.Consent = Consented
	case ConsentWithdrawn:
		changed.Consent = Withdrawn
	}
	switch kind {
	case OptOut, OptOutRemoved:
		return changed, string(c.DND), string(changed.DND)
	default:
		return changed, string(c.Consent), string(changed.Consent)
	}
}
