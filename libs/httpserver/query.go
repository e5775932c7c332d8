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
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
)

// PathID returns a path parameter as a UUID. For a malformed id it returns 404 not_found with the
// kind of object in the message.
func PathID(r *http.Request, name, kind string) (uuid.UUID, error) {
	id, ok := parseUUID(chi.URLParam(r, name))
	if !ok {
		return uuid.Nil, apierr.NotFound(kind)
	}
	return id, nil
}

// PathText returns a path parameter with its percent-encoding decoded. chi returns the parameter as
// the client sent it, for example "%2B15550100". A parameter that cannot be decoded is returned
// unchanged.
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

// QueryEnum returns an optional query parameter that must have one of the allowed values. If the
// parameter is absent, QueryEnum returns "". Any other value is 422.
func QueryEnum(q url.Values, name string, allowed ...string) (string, error) {
	value, given, err := singleParam(q, name)
	if err != nil || !given {
		return "", err
	}
	if !slices.Contains(allowed, value) {
		return "", apierr.Validation(name, "must be one of %s.", strings.Join(allowed, ", "))
	}
	return value, nil
}

// QueryUUID returns an optional id. If the id is absent, the result is nil. A malformed id is 422.
func QueryUUID(q url.Values, name string) (*uuid.UUID, error) {
	value, given, err := singleParam(q, name)
	if err != nil || !given {
		return nil, err
	}
	id, ok := parseUUID(value)
	if !ok {
		return nil, apierr.Validation(name, "must be a UUID.")
	}
	return &id, nil
}

// QueryTime returns an optional time. If the time is absent, the result is nil. A malformed time is
// 422. A space counts as "+", because some clients do not percent-encode the "+" of the offset.
func QueryTime(q url.Values, name string) (*time.Time, error) {
	value, given, err := singleParam(q, name)
	if err != nil || !given {
		return nil, err
	}
	at, err := ParseTime(strings.ReplaceAll(value, " ", "+"))
	if err != nil {
		return nil, apierr.Validation(name, "must be a date-time like 2026-06-04T09:00:00Z, with an offset.")
	}
	return &at, nil
}

// QueryCreated converts the times created_after and created_before to ids. Ids are UUIDs of version
// 7, which are ordered by their creation time. from is the lowest id after created_after. until is
// the lowest id that is not before created_before. An id is nil if its parameter is absent. A
// malformed time is 422.
func QueryCreated(q url.Values) (from, until *uuid.UUID, err error) {
	after, err := QueryTime(q, "created_after")
	if err != nil {
		return nil, nil, err
	}
	before, err := QueryTime(q, "created_before")
	if err != nil {
		return nil, nil, err
	}
	if after != nil { // created_after is exclusive: start at the first id of the next millisecond
		first := page.FirstID(after.Truncate(time.Millisecond).Add(time.Millisecond))
		from = &first
	}
	if before != nil { // created_before is exclusive: end before the first id of this millisecond
		end := page.FirstID(before.Add(time.Millisecond - time.Nanosecond).Truncate(time.Millisecond))
		until = &end
	}
	return from, until, nil
}

// QueryText returns an optional text. If the parameter is absent, the result is nil. For an empty
// parameter, the result points to an empty text. NUL characters and invalid UTF-8 are 422.
func QueryText(q url.Values, name string) (*string, error) {
	value, given, err := singleParam(q, name)
	if err != nil || !given {
		return nil, err
	}
	if strings.ContainsRune(value, 0) || !utf8.ValidString(value) {
		return nil, apierr.Validation(name, "must be UTF-8 text without NUL characters.")
	}
	return &value, nil
}

// QueryPhone returns an optional phone number, "" if it is absent, and 422 if it is not an E.164
// number. It also accepts a number whose "+" was not percent-encoded and was therefore decoded to a
// space.
func QueryPhone(q url.Values, name string) (phone.Number, error) {
	value, given, err := singleParam(q, name)
	if err != nil || !given {
		return "", err
	}
	number, ok := phone.Parse(strings.ReplaceAll(value, " ", "+"))
	if !ok {
		return "", apierr.Validation(name, "must be an E.164 number such as +14155550123.")
	}
	return number, nil
}

// singleParam returns 422 if a query parameter occurs several times, because it is unclear which
// value applies.
func singleParam(q url.Values, name string) (value string, given bool, err error) {
	if len(q[name]) > 1 {
		return "", true, apierr.Validation(name, "must stand once in the query.")
	}
	return q.Get(name), q.Has(name), nil
}

// ParseTime parses an RFC 3339 date-time with offset, including lower-case t and z (section 5.6).
// It rejects three forms that time.Parse accepts: hours of one digit, a comma before the fraction
// and an offset of 24 hours.
func ParseTime(text string) (time.Time, error) {
	if !dateTime.MatchString(text) {
		return time.Time{}, errors.New("read date-time: not an RFC 3339 date-time with an offset")
	}
	at, err := time.Parse(time.RFC3339, strings.ToUpper(text))
	if err != nil {
		return time.Time{}, fmt.Errorf("read date-time: %w", err)
	}
	return at, nil
}

var dateTime = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// parseUUID accepts only the form of 36 characters. uuid.Parse also accepts other forms.
func parseUUID(text string) (uuid.UUID, bool) {
	if len(text) != 36 {
		return uuid.Nil, false
	}
	id, err := uuid.Parse(text)
	return id, err == nil
}
