package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/mail"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

func viewContact(c contacts.Contact) openapi.Contact {
	return openapi.Contact{
		ID: c.ID, PhoneE164: string(c.Number), Name: c.Name, Email: c.Email, ExternalID: c.ExternalID,
		Variables: c.Variables, Metadata: c.Metadata, ConsentStatus: openapi.ConsentStatus(c.Consent),
		DndStatus: openapi.DndStatus(c.DND),
		CreatedAt: openapi.TimestampOf(c.CreatedAt()), UpdatedAt: openapi.TimestampOf(c.UpdatedAt),
	}
}

// listContacts handles GET /v1/contacts.
func (a *API) listContacts(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	req, err := page.Parse(query)
	if err != nil {
		return err
	}
	filter := store.Filter{}
	if filter.Number, err = httpserver.QueryPhone(r.URL.Query(), "phone"); err != nil {
		return err
	}
	name, err := httpserver.QueryText(query, "q")
	if err != nil {
		return err
	}
	if name != nil { // an empty q filters nothing, because every name contains the empty string
		filter.Name = *name
	}
	dnd, err := httpserver.QueryEnum(query, "dnd_status", string(contacts.DNDUnknown), string(contacts.Clean),
		string(contacts.OptedOut))
	if err != nil {
		return err
	}
	consent, err := httpserver.QueryEnum(query, "consent_status", string(contacts.ConsentUnknown),
		string(contacts.Consented), string(contacts.Withdrawn))
	if err != nil {
		return err
	}
	filter.DND, filter.Consent = contacts.DND(dnd), contacts.Consent(consent)
	if filter.Email, err = httpserver.QueryText(query, "email"); err != nil {
		return err
	}
	if filter.ExternalID, err = httpserver.QueryText(query, "external_id"); err != nil {
		return err
	}
	rows, err := a.store.List(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, filter, req)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(req, rows, viewContact))
}

// createContact handles POST /v1/contacts. It responds 201, or 409 with the id of the existing
// contact of the number.
func (a *API) createContact(w http.ResponseWriter, r *http.Request) error {
	body, err := decode(r)
	if err != nil {
		return err
	}
	req, consent, err := body.createContact()
	if err != nil {
		return err
	}
	c := contacts.Contact{WorkspaceID: serviceauth.CallerFrom(r.Context()).WorkspaceID,
		Number: phone.Number(req.PhoneE164), Name: req.Name, Email: req.Email, ExternalID: req.ExternalID}
	if req.Metadata != nil {
		c.Metadata = contacts.Document(*req.Metadata)
	}
	if c.ID, err = uuid.NewV7(); err != nil {
		return fmt.Errorf("make contact id: %w", err)
	}
	var stored contacts.Contact
	var existed bool
	if consent == nil {
		stored, existed, err = a.store.Create(r.Context(), c)
	} else {
		change := byCustomer(r, c.Number, consent.Kind)
		change.Source, change.Evidence = consent.Source, consent.Evidence
		stored, existed, err = a.store.CreateWithConsent(r.Context(), c, change)
	}
	if err != nil {
		return err
	}
	if existed {
		refusal := apierr.Conflict("contact_exists",
			"A contact with this number exists. Read or change that one (existing_id).")
		refusal.Fields = map[string]string{"existing_id": stored.ID.String()}
		return refusal
	}
	return httpserver.WriteJSON(w, http.StatusCreated, viewContact(stored))
}

// readContact handles GET /v1/contacts/{id}.
func (a *API) readContact(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", "contact")
	if err != nil {
		return err
	}
	c, err := a.store.ByID(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id)
	if err != nil {
		return convertNotFound(err, "contact")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewContact(c))
}

// changeContact handles PATCH /v1/contacts/{id}. Null clears name, email and external_id. Metadata
// is merged at the top level. If the body has the member consent, a consent record is stored.
func (a *API) changeContact(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", "contact")
	if err != nil {
		return err
	}
	workspaceID := serviceauth.CallerFrom(r.Context()).WorkspaceID
	if _, err := a.store.ByID(r.Context(), workspaceID, id); err != nil {
		return convertNotFound(err, "contact") // an unknown contact gives 404 before the body is checked
	}
	body, err := decode(r)
	if err != nil {
		return err
	}
	req, consent, err := body.updateContact()
	if err != nil {
		return err
	}
	if consent != nil {
		change := byCustomer(r, "", consent.Kind) // store.Update sets the number
		change.Source, change.Evidence = consent.Source, consent.Evidence
		consent = &change
	}
	c, err := a.store.Update(r.Context(), workspaceID, id, consent, func(c *contacts.Contact) (err error) {
		if !req.Name.IsZero() {
			c.Name = req.Name.Pointer()
		}
		if !req.Email.IsZero() {
			c.Email = req.Email.Pointer()
		}
		if !req.ExternalID.IsZero() {
			c.ExternalID = req.ExternalID.Pointer()
		}
		if req.Metadata != nil {
			c.Metadata, err = c.Metadata.Merge("metadata", *req.Metadata)
		}
		return err
	})
	if err != nil {
		return convertNotFound(err, "contact")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewContact(c))
}

// metadataPatch parses the metadata to merge. It returns nil if the member metadata is absent, and
// an error if it is null.
func (f bodyFields) metadataPatch() (*openapi.JSONObject, error) {
	raw, given := f["metadata"]
	if !given {
		return nil, nil //nolint:nilnil // the field is absent
	}
	patch, err := contacts.ParseDocument("metadata", raw)
	if err != nil {
		return nil, err
	}
	if _, err := patch.TimeZone(); err != nil && !isNull(patch[contacts.TimeZoneKey]) {
		return nil, err
	}
	document := openapi.JSONObject(patch)
	return &document, nil
}

// createContact parses the body of a POST. The error names every invalid field. req has only the
// fields that the client sent. change is the requested change of the contact's consent, or nil if
// the body has no member consent.
func (f bodyFields) createContact() (req openapi.CreateContact, change *contacts.Change, err error) {
	var number, name, email, externalID, metadata, consent error
	req.PhoneE164, number = f.requiredText("phone_e164", maxText)
	if _, ok := phone.Parse(req.PhoneE164); number == nil && !ok {
		number = apierr.Validation("phone_e164", "must be E.164: a plus and 7 to 15 digits, such as +14155550123.")
	}
	req.Name, name = f.optionalText("name", contacts.MaxName)
	req.Email, email = f.email()
	req.ExternalID, externalID = f.externalID()
	if f.hasValue("metadata") {
		req.Metadata, metadata = f.newMetadata()
	}
	if f.hasValue("consent") {
		change, consent = f.consent()
	}
	return req, change, apierr.Join(number, name, email, externalID, metadata, consent)
}

func (f bodyFields) email() (*string, error) {
	text, err := f.optionalText("email", contacts.MaxEmail)
	if err != nil || text == nil {
		return nil, err
	}
	if parsed, err := mail.ParseAddress(*text); err != nil || parsed.Address != *text {
		return nil, apierr.Validation("email", "must be an e-mail address such as ada@example.com.")
	}
	return text, nil
}

func (f bodyFields) externalID() (*string, error) {
	text, err := f.optionalText("external_id", contacts.MaxExternalID)
	if err == nil && text != nil && *text == "" {
		return nil, apierr.Validation("external_id", "must have at least 1 character.")
	}
	return text, err
}

// consent parses the member consent. The error names the members as "consent.status".
func (f bodyFields) consent() (*contacts.Change, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(f["consent"], &members); err != nil || members == nil {
		return nil, apierr.Validation("consent", "must be an object with status and source.")
	}
	named := bodyFields{}
	for name, raw := range members {
		named["consent."+name] = raw
	}
	change, err := consentChange(named, "consent.")
	return &change, err
}

// newMetadata parses the metadata of a new contact. It leaves out members that are null.
func (f bodyFields) newMetadata() (*openapi.JSONObject, error) {
	patch, err := f.metadataPatch()
	if err != nil {
		return nil, err
	}
	merged, err := contacts.Document{}.Merge("metadata", contacts.Document(*patch))
	document := openapi.JSONObject(merged)
	return &document, err
}

// updateContact parses the body of a PATCH. The error names every invalid field. req has only the
// fields that the client sent. change is the requested change of the contact's consent, or nil if
// the body has no member consent.
func (f bodyFields) updateContact() (req openapi.UpdateContact, change *contacts.Change, err error) {
	name, nameFault := f.optionalText("name", contacts.MaxName)
	email, emailFault := f.email()
	externalID, externalIDFault := f.externalID()
	req.Name, req.Email, req.ExternalID = f.nullable("name", name), f.nullable("email", email),
		f.nullable("external_id", externalID)
	metadata, metadataFault := f.metadataPatch()
	req.Metadata = metadata
	var consentFault error
	if _, given := f["consent"]; given {
		change, consentFault = f.consent()
	}
	return req, change, apierr.Join(nameFault, emailFault, externalIDFault, metadataFault, consentFault)
}

// nullable returns value as a field of the response. A nil value becomes null if the request
// contains the field. Otherwise the field is absent.
func (f bodyFields) nullable(name string, value *string) openapi.Nullable[string] {
	if value != nil {
		return openapi.Value(*value)
	}
	if _, given := f[name]; given {
		return openapi.Null[string]()
	}
	return openapi.Nullable[string]{}
}
