package httpapi

import (
	"fmt"
	"net/http"

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
	req, err := body.createContact()
	if err != nil {
		return err
	}
	c := contacts.Contact{WorkspaceID: serviceauth.CallerFrom(r.Context()).WorkspaceID,
		Number: phone.Number(req.PhoneE164), Name: req.Name}
	if req.Metadata != nil {
		c.Metadata = contacts.Document(*req.Metadata)
	}
	if c.ID, err = uuid.NewV7(); err != nil {
		return fmt.Errorf("make contact id: %w", err)
	}
	stored, existed, err := a.store.Create(r.Context(), c)
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

// changeContact handles PATCH /v1/contacts/{id}. A name of null clears the name. Metadata is merged
// at the top level.
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
	req, err := body.updateContact()
	if err != nil {
		return err
	}
	c, err := a.store.Update(r.Context(), workspaceID, id, func(c *contacts.Contact) (err error) {
		if !req.Name.IsZero() {
			c.Name = req.Name.Pointer()
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
func (f bodyFields) metadataPatch() (*openapi.Document, error) {
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
	document := openapi.Document(patch)
	return &document, nil
}

// createContact parses the body of a POST. The error names every invalid field.
func (f bodyFields) createContact() (req openapi.CreateContact, err error) {
	var number, name, metadata error
	req.PhoneE164, number = f.requiredText("phone_e164", maxText)
	if _, ok := phone.Parse(req.PhoneE164); number == nil && !ok {
		number = apierr.Validation("phone_e164", "must be E.164: a plus and 7 to 15 digits, such as +14155550123.")
	}
	req.Name, name = f.optionalText("name", contacts.MaxName)
	if f.hasValue("metadata") {
		req.Metadata, metadata = f.newMetadata()
	}
	return req, apierr.Join(number, name, metadata)
}

// newMetadata parses the metadata of a new contact. It leaves out members that are null.
func (f bodyFields) newMetadata() (*openapi.Document, error) {
	patch, err := f.metadataPatch()
	if err != nil {
		return nil, err
	}
	merged, err := contacts.Document{}.Merge("metadata", contacts.Document(*patch))
	document := openapi.Document(merged)
	return &document, err
}

// updateContact parses the body of a PATCH. The error names every invalid field.
func (f bodyFields) updateContact() (req openapi.UpdateContact, err error) {
	name, nameFault := f.optionalText("name", contacts.MaxName)
	if name != nil {
		req.Name = openapi.Value(*name)
	} else if _, given := f["name"]; given {
		req.Name = openapi.Null[string]()
	}
	metadata, metadataFault := f.metadataPatch()
	req.Metadata = metadata
	return req, apierr.Join(nameFault, metadataFault)
}
