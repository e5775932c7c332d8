package pages

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

const contactsPath = "/v1/contacts"

func (s *Server) contactRoutes() []route {
	return []route{
		{"GET /w/{workspace}/contacts", showContacts},
		{"GET /w/{workspace}/contacts/new", permitted("listen", showNewContact)},
		{"POST /w/{workspace}/contacts/new", createContact},
		{"GET /w/{workspace}/contacts/{contact}", showContact},
		{"POST /w/{workspace}/contacts/{contact}", changeContact},
		{"POST /w/{workspace}/contacts/{contact}/consent", changeConsent},
		{"POST /w/{workspace}/contacts/{contact}/erase", eraseContact},
	}
}

type contactsData struct {
	openapi.ContactPage
	DNDs, Consents []string
	Filtered       bool
	Last           string // the id of the last contact, if there are more
	Error          *gateway.Error
}

// contactQuery returns the filters of the list. If the search field contains a phone number, the
// list is filtered by number, otherwise by name.
func (v *visit) contactQuery() url.Values {
	query := v.listQuery("dnd_status", "consent_status", "email", "external_id")
	switch text := v.query("q"); {
	case text == "":
	case isNumber(text):
		query.Set("phone", phoneOf(text))
	default:
		query.Set("q", text)
	}
	return query
}

// isNumber reports whether a text looks like a phone number: it consists of separators and at least
// seven digits.
func isNumber(text string) bool {
	const separators = "+ ()-./"
	digits := strings.Map(func(r rune) rune {
		if strings.ContainsRune(separators, r) {
			return -1
		}
		return r
	}, text)
	return len(digits) >= 7 && strings.Trim(digits, "0123456789") == ""
}

func showContacts(v *visit) (view, error) {
	query := v.contactQuery()
	data := contactsData{DNDs: []string{"unknown", "clean", "dnd"},
		Consents: []string{"unknown", "consented", "withdrawn"}, Filtered: len(query) > 1}
	err := concurrently(read(v, &data.ContactPage, contactsPath, query))
	result := view{template: "contacts", title: "contacts.title", nav: "contacts"}
	if data.Error = fieldError(err); data.Error != nil {
		result.status, err = http.StatusUnprocessableEntity, nil
	}
	if data.HasMore {
		data.Last = data.Data[len(data.Data)-1].ID.String()
	}
	result.data = data
	return result, err
}

// contactForm has the texts of the fields of a contact.
type contactForm struct{ Name, Email, ExternalID, Metadata string }

func contactFormOf(c openapi.Contact) (form contactForm, err error) {
	form = contactForm{Name: textOf(c.Name), Email: textOf(c.Email), ExternalID: textOf(c.ExternalID)}
	text, err := json.MarshalIndent(c.Metadata, "", "  ")
	form.Metadata = string(text)
	return form, err
}

// submittedContact returns the fields of the form whose names have the prefix.
func (v *visit) submittedContact(prefix string) contactForm {
	return contactForm{Name: v.form(prefix + "name"), Email: v.form(prefix + "email"),
		ExternalID: v.form(prefix + "external_id"), Metadata: v.form(prefix + "metadata")}
}

// metadataOf decodes the metadata of a form. An empty text is an empty object.
func metadataOf(text string) (map[string]json.RawMessage, error) {
	metadata := map[string]json.RawMessage{}
	if text == "" {
		return metadata, nil
	}
	if err := json.Unmarshal([]byte(text), &metadata); err != nil || metadata == nil {
		return nil, &gateway.Error{Status: http.StatusUnprocessableEntity, Code: "validation_error", Field: "metadata"}
	}
	return metadata, nil
}

type newContactData struct {
	contactForm
	Number string
	// Existing is the id of the contact that already has the number.
	Existing string
	Error    *gateway.Error
}

func showNewContact(v *visit) (view, error) {
	return view{template: "contact_new", title: "contacts.new", nav: "contacts",
		data: newContactData{Number: v.query("phone")}}, nil
}

func createContact(v *visit) (view, error) {
	data := newContactData{contactForm: v.submittedContact(""), Number: phoneOf(v.form("phone"))}
	metadata, err := metadataOf(data.Metadata)
	var made openapi.Contact
	if err == nil {
		made, err = gateway.Post[openapi.Contact](v.r.Context(), v.Session, contactsPath, openapi.CreateContact{
			PhoneE164: data.Number, Name: textOrNil(data.Name), Email: textOrNil(data.Email),
			ExternalID: textOrNil(data.ExternalID), Metadata: &metadata,
		})
	}
	data.Error = fieldError(err)
	if gateway.Is(err, "contact_exists") {
		data.Error = gateway.AsError(err)
		var found openapi.ContactPage
		err = concurrently(read(v, &found, contactsPath, url.Values{"phone": {data.Number}, "limit": {"1"}}))
		if err != nil {
			return view{}, err
		}
		if len(found.Data) > 0 {
			data.Existing = found.Data[0].ID.String()
		}
	}
	if data.Error != nil {
		page := view{template: "contact_new", title: "contacts.new", nav: "contacts", data: data, status: data.Error.Status}
		return page, nil //nolint:nilerr // the page shows the error
	}
	return view{redirect: v.path("contacts", made.ID.String()), done: "contact_created"}, err
}

func textOrNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// erasure is an entry in the register of erasures.
type erasure struct {
	ID          uuid.UUID          `json:"id"`
	Actor       string             `json:"actor"`
	RequestedAt openapi.Timestamp  `json:"requested_at"`
	DoneAt      *openapi.Timestamp `json:"done_at"`
	Services    []struct {
		Service string             `json:"service"`
		Steps   int                `json:"steps"`
		Open    int                `json:"open"`
		DoneAt  *openapi.Timestamp `json:"done_at"`
	} `json:"services"`
}

// HasEvidence reports whether the record has evidence. The API returns null if it has none.
func (r consentRecord) HasEvidence() bool { return len(r.Evidence) > 0 && string(r.Evidence) != "null" }

type contactData struct {
	openapi.Contact
	// Form contains the values of the fields, and Was the values before the person changed them.
	Form, Was contactForm
	Records   gateway.Page[consentRecord]
	Erasures  gateway.Page[erasure]
	Error     *gateway.Error
}

func (v *visit) contactPath() (string, error) { return v.pathOf(contactsPath, "contact") }

func (v *visit) contactPage() string { return v.path("contacts", v.r.PathValue("contact")) }

func showContact(v *visit) (view, error) { return v.readContact(nil, contactForm{}) }

// readContact shows a contact. If its form was refused, the parameter form contains the submitted
// values.
func (v *visit) readContact(refused *gateway.Error, form contactForm) (view, error) {
	path, err := v.contactPath()
	if err != nil {
		return view{}, err
	}
	data := contactData{Error: refused}
	if data.Contact, err = gateway.Get[openapi.Contact](v.r.Context(), v.Session, path, nil); err != nil {
		return view{}, err
	}
	if data.Was, err = contactFormOf(data.Contact); err != nil {
		return view{}, err
	}
	result := view{template: "contact", title: "contacts.one", heading: v.mask(data.PhoneE164), nav: "contacts"}
	if data.Form = data.Was; refused != nil {
		data.Form, result.status = form, http.StatusUnprocessableEntity
		data.Was = v.submittedContact("was_")
	}
	if name := textOf(data.Name); name != "" {
		result.heading = name
	}
	var reads []func() error
	number := url.Values{"phone": {data.PhoneE164}, "limit": {"20"}}
	if v.can("listen") {
		reads = append(reads, read(v, &data.Records, v.admin("/consent-records"), number))
	}
	if v.can("guard") {
		reads = append(reads, read(v, &data.Erasures, v.admin("/erasures"), number))
	}
	err = concurrently(reads...)
	result.data = data
	return result, err
}

// changeContact sends only the fields that the person changed, so that it does not overwrite
// concurrent changes of other fields.
func changeContact(v *visit) (view, error) {
	path, err := v.contactPath()
	if err != nil {
		return view{}, err
	}
	form := v.submittedContact("")
	change, err := contactChange(v.submittedContact("was_"), form)
	if err == nil {
		_, err = gateway.Do[openapi.Contact](v.r.Context(), v.Session,
			gateway.Request{Method: http.MethodPatch, Path: path, Body: change})
	}
	if refused := fieldError(err); refused != nil {
		return v.readContact(refused, form)
	}
	return view{redirect: v.contactPage(), done: "contact_changed"}, err
}

// contactChange returns the body of the PATCH for the fields in which form differs from was.
func contactChange(was, form contactForm) (change openapi.UpdateContact, err error) {
	changed := func(before, after string) (member openapi.Nullable[string]) {
		switch {
		case before == after:
			return member
		case after == "":
			return openapi.Null[string]()
		}
		return openapi.Value(after)
	}
	change.Name, change.Email = changed(was.Name, form.Name), changed(was.Email, form.Email)
	change.ExternalID = changed(was.ExternalID, form.ExternalID)
	before, err := metadataOf(was.Metadata)
	if err != nil {
		return change, err
	}
	after, err := metadataOf(form.Metadata)
	if err != nil {
		return change, err
	}
	patch := openapi.JSONObject{}
	for key, value := range after {
		if old, ok := before[key]; !ok || !sameJSON(old, value) {
			patch[key] = value
		}
	}
	for key := range before {
		if _, ok := after[key]; !ok {
			patch[key] = json.RawMessage("null")
		}
	}
	if len(patch) > 0 {
		change.Metadata = &patch
	}
	return change, nil
}

// sameJSON reports whether two JSON values are equal apart from white space.
func sameJSON(a, b json.RawMessage) bool {
	var first, second bytes.Buffer
	return json.Compact(&first, a) == nil && json.Compact(&second, b) == nil && bytes.Equal(first.Bytes(), second.Bytes())
}

// changeConsent writes a consent record.
func changeConsent(v *visit) (view, error) {
	path, err := v.contactPath()
	if err != nil {
		return view{}, err
	}
	consent := map[string]string{"status": v.form("status"), "source": v.form("source")}
	if text := v.form("evidence"); text != "" {
		consent["evidence"] = text
	}
	_, err = gateway.Do[openapi.Contact](v.r.Context(), v.Session,
		gateway.Request{Method: http.MethodPatch, Path: path, Body: map[string]any{"consent": consent}})
	return view{redirect: v.contactPage(), done: "consent_changed"}, err
}

// eraseContact erases the data of a person. The user must type the number as a confirmation.
func eraseContact(v *visit) (view, error) {
	path, err := v.contactPath()
	if err != nil {
		return view{}, err
	}
	found, err := gateway.Get[openapi.Contact](v.r.Context(), v.Session, path, nil)
	if err != nil {
		return view{}, err
	}
	number := found.PhoneE164
	if !v.confirmed(number) {
		return view{redirect: v.contactPage(), done: "not_confirmed"}, nil
	}
	_, err = gateway.Do[map[string]any](v.r.Context(), v.Session,
		gateway.Request{Method: http.MethodDelete, Path: v.admin("/contacts/%s", url.PathEscape(number))})
	return view{redirect: v.contactPage(), done: "erased"}, err
}
