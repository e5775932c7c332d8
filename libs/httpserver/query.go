package httpserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
)

// PathID is the path parameter as a UUID; a malformed one is 404 not_found for the thing.
func PathID(r *http.Request, name, thing string) (uuid.UUID, error) {
	id, ok := parseUUID(chi.URLParam(r, name))
	if !ok {
		return uuid.Nil, apierr.NotFound(thing)
	}
	return id, nil
}

// PathText is the path parameter as text, percent-decoded (chi hands it over as it was sent: "%2B15550100" for a number).
// What cannot be decoded comes back as it was.
func PathText(r *http.Request, name string) string {
	raw := chi.URLParam(r, name)
	if r.URL.RawPath == "" {
		return raw
	}
	text, err := url.PathUnescape(raw)
	if err != nil {
		return raw
	}
	return text
}

// QueryEnum is an optional query parameter limited to the allowed values; "" when absent; 422 otherwise. QueryUUID, QueryTime and
// QueryText read the others: nil or "" when absent, 422 naming the parameter when malformed.
func QueryEnum(q url.Values, name string, allowed ...string) (string, error) {
	if !q.Has(name) {
		return "", nil
	}
	value := q.Get(name)
	if !slices.Contains(allowed, value) {
		return "", apierr.Validation(name, "must be one of %s.", strings.Join(allowed, ", "))
	}
	return value, nil
}

// QueryUUID reads an optional id.
func QueryUUID(q url.Values, name string) (*uuid.UUID, error) {
	if !q.Has(name) {
		return nil, nil
	}
	id, ok := parseUUID(q.Get(name))
	if !ok {
		return nil, apierr.Validation(name, "must be a UUID.")
	}
	return &id, nil
}

// QueryTime takes a raw plus (decoded to a space) as a plus.
func QueryTime(q url.Values, name string) (*time.Time, error) {
	if !q.Has(name) {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, strings.ReplaceAll(q.Get(name), " ", "+"))
	if err != nil {
		return nil, apierr.Validation(name, "must be a date-time like 2026-06-04T09:00:00Z, with an offset.")
	}
	return &at, nil
}

// QueryText refuses NUL bytes and invalid UTF-8.
func QueryText(q url.Values, name string) (string, error) {
	value := q.Get(name)
	if strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
		return "", apierr.Validation(name, "must be UTF-8 text without NUL characters.")
	}
	return value, nil
}

// parseUUID takes the 36-character form only: uuid.Parse also takes braces, urn: and no hyphens.
func parseUUID(text string) (uuid.UUID, bool) {
	if len(text) != 36 {
		return uuid.Nil, false
	}
	id, err := uuid.Parse(text)
	return id, err == nil
}
