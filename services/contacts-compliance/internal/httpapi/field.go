package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
)

// maxText bounds strings whose own rule is stricter, such as a number.
const maxText = httpserver.MaxBody

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
