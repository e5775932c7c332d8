package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/contacts-compliance/internal/contact"
)

const (
	maxName   = contact.MaxName
	maxReason = 500
	maxText   = httpserver.MaxBody // of strings whose own rule is stricter, such as a number
)

// fields is a request body by its top-level names, so that absent, null and wrong can be told apart.
type fields map[string]json.RawMessage

func decode(r *http.Request) (fields, error) {
	var body fields
	err := httpserver.DecodeJSON(r, &body)
	return body, err
}

// has says whether the field stands in the body with a value other than null.
func (f fields) has(name string) bool {
	raw, ok := f[name]
	return ok && !isNull(raw)
}

func isNull(raw json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(raw), []byte("null")) }

// text reads an optional string of at most most characters; nil when absent or null.
func (f fields) text(name string, most int) (*string, error) {
	if !f.has(name) {
		return nil, nil //nolint:nilnil // absent
	}
	var text string
	if err := json.Unmarshal(f[name], &text); err != nil {
		return nil, apierr.Validation(name, "must be a string.")
	}
	if utf8.RuneCountInString(text) > most {
		return nil, apierr.Validation(name, "may be at most %d characters long.", most)
	}
	return &text, nil
}

// required reads a string that must be there.
func (f fields) required(name string, most int) (string, error) {
	text, err := f.text(name, most)
	if err != nil {
		return "", err
	}
	if text == nil {
		return "", apierr.Validation(name, "is required.")
	}
	return *text, nil
}

// metadata reads what to merge; nil when absent. Null is refused.
func (f fields) metadata() (*openapi.Document, error) {
	raw, given := f["metadata"]
	if !given {
		return nil, nil //nolint:nilnil // absent
	}
	patch, err := contact.ParseDocument("metadata", raw)
	if err != nil {
		return nil, err
	}
	if _, err := patch.TimeZone(); err != nil && !isNull(patch[contact.TimeZoneKey]) {
		return nil, err
	}
	document := openapi.Document(patch)
	return &document, nil
}

func (f fields) createContact() (asked openapi.CreateContact, err error) {
	if asked.PhoneE164, err = f.required("phone_e164", maxText); err != nil {
		return asked, err
	}
	if _, ok := phone.Parse(asked.PhoneE164); !ok {
		return asked, apierr.Validation("phone_e164", "must be E.164: a plus and 7 to 15 digits, such as +14155550123.")
	}
	if asked.Name, err = f.text("name", maxName); err != nil {
		return asked, err
	}
	if f.has("metadata") {
		asked.Metadata, err = f.metadata()
	}
	return asked, err
}

// updateContact keeps a name of null: it clears.
func (f fields) updateContact() (asked openapi.UpdateContact, err error) {
	name, err := f.text("name", maxName)
	if err != nil {
		return asked, err
	}
	if name != nil {
		asked.Name = openapi.Value(*name)
	} else if _, given := f["name"]; given {
		asked.Name = openapi.Null[string]()
	}
	asked.Metadata, err = f.metadata()
	return asked, err
}

func (f fields) createOptOut() (asked openapi.CreateOptOut, err error) {
	if asked.PhoneE164, err = f.required("phone_e164", maxText); err != nil {
		return asked, err
	}
	if asked.Reason, err = f.text("reason", maxReason); err != nil {
		return asked, err
	}
	if _, ok := phone.Parse(asked.PhoneE164); !ok {
		return asked, invalidPhone("phone_e164")
	}
	return asked, nil
}
