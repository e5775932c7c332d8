package contacts

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/phone"
)

// Kind is what happened to one of the two states.
type Kind string

// The kinds of a consent record.
const (
	OptOut           Kind = "opt_out"
	OptOutRemoved    Kind = "opt_out_removed"
	ConsentGranted   Kind = "consent_granted"
	ConsentWithdrawn Kind = "consent_withdrawn"
)

// The sources that this service names itself; an operator names others.
const (
	SourceAPI  = "api"
	SourceCall = "call"
)

// Change is a wish to move one of the states of a number, and why.
type Change struct {
	WorkspaceID uuid.UUID
	Number      phone.Number
	Kind        Kind
	Source      string
	// Actor is who did it: "operator:ann", "request:<id>", "call:<id>".
	Actor  string
	Reason *string
	// Evidence is any JSON; nil: none.
	Evidence json.RawMessage
	// CallID makes the change happen once per call; uuid.Nil otherwise.
	CallID uuid.UUID
	// OccurredAt is when the person said so; zero: now.
	OccurredAt time.Time
}

// Record is one line of the consent ledger. Before and After are the state that Kind moves, and only that one. A line that speaks of many
// numbers (an import, the beginning of a chain) has no Number, ContactID or Before.
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

// Apply moves the one state that the kind is about.
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
