package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/contacts-compliance/internal/contact"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

const (
	maxName = 200
	maxText = httpserver.MaxBody // of strings whose own rule is stricter, such as a number
)

// contactView is a contact as specification 2.4 shows it.
type contactView struct {
	ID            uuid.UUID        `json:"id"`
	PhoneE164     phone.Number     `json:"phone_e164"`
	Name          *string          `json:"name"`
	Email         *string          `json:"email"`
	ExternalID    *string          `json:"external_id"`
	Variables     contact.Document `json:"variables"`
	Metadata      contact.Document `json:"metadata"`
	ConsentStatus contact.Consent  `json:"consent_status"`
	DNDStatus     contact.DND      `json:"dnd_status"`
	CreatedAt     string           `json:"created_at"`
	UpdatedAt     string           `json:"updated_at"`
}

func viewContact(c contact.Contact) contactView {
	return contactView{
		ID: c.ID, PhoneE164: c.Number, Name: c.Name, Email: c.Email, ExternalID: c.ExternalID,
		Variables: c.Variables, Metadata: c.Metadata, ConsentStatus: c.Consent, DNDStatus: c.DND,
		CreatedAt: stamp(c.CreatedAt()), UpdatedAt: stamp(c.UpdatedAt),
	}
}

// stamp writes an instant as RFC 3339 in UTC, to the millisecond.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// listContacts answers GET /v1/contacts.
func (a *API) listContacts(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	asked, err := page.Parse(query)
	if err != nil {
		return err
	}
	filter := store.Filter{}
	if filter.Number, err = queryNumber(r); err != nil {
		return err
	}
	if filter.Name, err = httpserver.QueryText(query, "q"); err != nil {
		return err
	}
	dnd, err := httpserver.QueryEnum(query, "dnd_status", string(contact.DNDUnknown), string(contact.Clean), string(contact.OptedOut))
	if err != nil {
		return err
	}
	consent, err := httpserver.QueryEnum(query, "consent_status", string(contact.ConsentUnknown), string(contact.Consented), string(contact.Withdrawn))
	if err != nil {
		return err
	}
	filter.DND, filter.Consent = contact.DND(dnd), contact.Consent(consent)
	rows, err := a.store.List(r.Context(), trust.CallerFrom(r.Context()).WorkspaceID, filter, asked)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(asked, rows, viewContact))
}

// queryNumber reads the optional parameter phone; a raw plus arrives as a space.
func queryNumber(r *http.Request) (phone.Number, error) {
	query := r.URL.Query()
	if !query.Has("phone") {
		return "", nil
	}
	number, ok := phone.Parse(strings.ReplaceAll(query.Get("phone"), " ", "+"))
	if !ok || len(query["phone"]) > 1 {
		return "", apierr.Validation("phone", "must be an E.164 number such as +14155550123.")
	}
	return number, nil
}

// createContact answers POST /v1/contacts: 201, or 409 with the id of the contact that has the number.
func (a *API) createContact(w http.ResponseWriter, r *http.Request) error {
	body, err := decode(r)
	if err != nil {
		return err
	}
	text, err := body.required("phone_e164", maxText)
	if err != nil {
		return err
	}
	number, ok := phone.Parse(text)
	if !ok {
		return apierr.Validation("phone_e164", "must be E.164: a plus and 7 to 15 digits, such as +14155550123.")
	}
	c := contact.Contact{WorkspaceID: trust.CallerFrom(r.Context()).WorkspaceID, Number: number}
	if c.Name, err = body.text("name", maxName); err != nil {
		return err
	}
	if body.has("metadata") {
		if c.Metadata, err = mergeMetadata(nil, body); err != nil {
			return err
		}
	}
	if c.ID, err = uuid.NewV7(); err != nil {
		return fmt.Errorf("make contact id: %w", err)
	}
	stored, existed, err := a.store.Create(r.Context(), c)
	if err != nil {
		return err
	}
	if existed {
		refusal := apierr.Conflict("contact_exists", "A contact with this number exists. Read or change that one (existing_id).")
		refusal.Fields = map[string]string{"existing_id": stored.ID.String()}
		return refusal
	}
	return httpserver.WriteJSON(w, http.StatusCreated, viewContact(stored))
}

func mergeMetadata(present contact.Document, body fields) (contact.Document, error) {
	patch, err := contact.ParseDocument("metadata", body["metadata"])
	if err != nil {
		return nil, err
	}
	if _, err := patch.TimeZone(); err != nil && !isNull(patch[contact.TimeZoneKey]) {
		return nil, err
	}
	return present.Merge("metadata", patch)
}

// readContact answers GET /v1/contacts/{id}.
func (a *API) readContact(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", "contact")
	if err != nil {
		return err
	}
	c, err := a.store.ByID(r.Context(), trust.CallerFrom(r.Context()).WorkspaceID, id)
	if err != nil {
		return found(err, "contact")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewContact(c))
}

// changeContact answers PATCH /v1/contacts/{id}: name null clears, metadata merges shallowly.
func (a *API) changeContact(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", "contact")
	if err != nil {
		return err
	}
	workspaceID := trust.CallerFrom(r.Context()).WorkspaceID
	if _, err := a.store.ByID(r.Context(), workspaceID, id); err != nil {
		return found(err, "contact") // 404 before the body's own faults
	}
	body, err := decode(r)
	if err != nil {
		return err
	}
	name, err := body.text("name", maxName)
	if err != nil {
		return err
	}
	c, err := a.store.Change(r.Context(), workspaceID, id, func(c *contact.Contact) (err error) {
		if _, named := body["name"]; named {
			c.Name = name
		}
		if _, given := body["metadata"]; given {
			c.Metadata, err = mergeMetadata(c.Metadata, body)
		}
		return err
	})
	if err != nil {
		return found(err, "contact")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewContact(c))
}
