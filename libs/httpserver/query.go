package httpserver

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
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
// QueryText read the others: nil when absent, 422 naming the parameter when malformed.
func QueryEnum(q url.Values, name string, allowed ...string) (string, error) {
	value, given, err := once(q, name)
	if err != nil || !given {
		return "", err
	}
	if !slices.Contains(allowed, value) {
		return "", apierr.Validation(name, "must be one of %s.", strings.Join(allowed, ", "))
	}
	return value, nil
}

// QueryUUID reads an optional id.
func QueryUUID(q url.Values, name string) (*uuid.UUID, error) {
	value, given, err := once(q, name)
	if err != nil || !given {
		return nil, err
	}
	id, ok := parseUUID(value)
	if !ok {
		return nil, apierr.Validation(name, "must be a UUID.")
	}
	return &id, nil
}

// QueryTime takes a raw plus (decoded to a space) as a plus.
func QueryTime(q url.Values, name string) (*time.Time, error) {
	value, given, err := once(q, name)
	if err != nil || !given {
		return nil, err
	}
	at, err := ParseTime(strings.ReplaceAll(value, " ", "+"))
	if err != nil {
		return nil, apierr.Validation(name, "must be a date-time like 2026-06-04T09:00:00Z, with an offset.")
	}
	return &at, nil
}

// QueryText refuses NUL bytes and invalid UTF-8. A parameter that is there and empty is text like any other.
func QueryText(q url.Values, name string) (*string, error) {
	value, given, err := once(q, name)
	if err != nil || !given {
		return nil, err
	}
	if strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
		return nil, apierr.Validation(name, "must be UTF-8 text without NUL characters.")
	}
	return &value, nil
}

// once is the value of a parameter. One that stands twice leaves open which was meant: 422.
func once(q url.Values, name string) (value string, given bool, err error) {
	if len(q[name]) > 1 {
		return "", true, apierr.Validation(name, "must stand once in the query.")
	}
	return q.Get(name), q.Has(name), nil
}

// ParseTime reads an RFC 3339 date-time with its offset, to the letter: time.Parse also takes one-digit hours, a comma before
// the fraction and an offset of 24 hours, and refuses the small t and z of RFC 3339, 5.6.
func ParseTime(text string) (time.Time, error) {
	if !dateTime.MatchString(text) {
		return time.Time{}, errors.New("read date-time: it is not written as RFC 3339 says")
	}
	at, err := time.Parse(time.RFC3339, strings.ToUpper(text))
	if err != nil {
		return time.Time{}, fmt.Errorf("read date-time: %w", err)
	}
	return at, nil
}

var dateTime = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// parseUUID takes the 36-character form only: uuid.Parse also takes braces, urn: and no hyphens.
func parseUUID(text string) (uuid.UUID, bool) {
	if len(text) != 36 {
		return uuid.Nil, false
	}
	id, err := uuid.Parse(text)
	return id, err == nil
}
