// Package contacts defines a workspace's contacts, their two independent states (DND and consent),
// and the records of their changes. It does no I/O.
package contacts

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
)

// DND is the opt-out state of a number.
type DND string

// These are the values of dnd_status.
const (
	DNDUnknown DND = "unknown"
	Clean      DND = "clean"
	OptedOut   DND = "dnd"
)

// Consent is the consent state of a number.
type Consent string

// These are the values of consent_status.
const (
	ConsentUnknown Consent = "unknown"
	Consented      Consent = "consented"
	Withdrawn      Consent = "withdrawn"
)

// These are the maximum lengths in characters.
const (
	MaxName       = 200
	MaxEmail      = 254
	MaxExternalID = 255
)

// Contact is the record of one number in one workspace.
type Contact struct {
	ID          uuid.UUID    `db:"id"`
	WorkspaceID uuid.UUID    `db:"workspace_id"`
	Number      phone.Number `db:"phone_e164"`
	Name        *string      `db:"name"`
	Email       *string      `db:"email"`
	ExternalID  *string      `db:"external_id"`
	Variables   Document     `db:"variables"`
	Metadata    Document     `db:"metadata"`
	DND         DND          `db:"dnd_status"`
	Consent     Consent      `db:"consent_status"`
	UpdatedAt   time.Time    `db:"updated_at"`
	// Erasures is the number of times that the person's data was erased.
	Erasures int64 `db:"erasures"`
}

// CreatedAt returns the time in the UUIDv7 of ID.
func (c Contact) CreatedAt() time.Time { return page.TimeOf(c.ID) }

// Fold returns a form of the name that is equal for names that differ only in upper and lower case.
func Fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// StatePairs returns the pairs of DND and consent that match the filters. An empty filter matches
// every state.
func StatePairs(dnd DND, consent Consent) (dnds, consents []string) {
	for _, d := range []DND{DNDUnknown, Clean, OptedOut} {
		for _, c := range []Consent{ConsentUnknown, Consented, Withdrawn} {
			if (dnd == "" || dnd == d) && (consent == "" || consent == c) {
				dnds, consents = append(dnds, string(d)), append(consents, string(c))
			}
		}
	}
	return dnds, consents
}
