// Package contacts owns who a number belongs to in a workspace: the contact, its two states (opt-out and
// consent, which never touch each other) and the records of their changes. It stores nothing.
package contacts

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
)

// DND says whether the person opted out of being called.
type DND string

// The values of dnd_status (specification 2.4).
const (
	DNDUnknown DND = "unknown"
	Clean      DND = "clean"
	OptedOut   DND = "dnd"
)

// Consent says whether the person agreed to be called.
type Consent string

// The values of consent_status (specification 2.4).
const (
	ConsentUnknown Consent = "unknown"
	Consented      Consent = "consented"
	Withdrawn      Consent = "withdrawn"
)

// MaxName is how many characters a name may have (contract.md §6); nothing longer is ever found.
const MaxName = 200

// Contact is one number in one workspace.
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
	// Erasures is how often the person was erased.
	Erasures int64 `db:"erasures"`
}

// CreatedAt is the instant inside the id.
func (c Contact) CreatedAt() time.Time { return page.TimeOf(c.ID) }

// Fold makes names comparable without regard to case, in every script.
func Fold(name string) string { return strings.ToLower(strings.ToUpper(name)) }

// Lanes are the pairs of states that may hold a contact with these; "" is any.
func Lanes(dnd DND, consent Consent) (dnds, consents []string) {
	for _, d := range []DND{DNDUnknown, Clean, OptedOut} {
		for _, c := range []Consent{ConsentUnknown, Consented, Withdrawn} {
			if (dnd == "" || dnd == d) && (consent == "" || consent == c) {
				dnds, consents = append(dnds, string(d)), append(consents, string(c))
			}
		}
	}
	return dnds, consents
}
