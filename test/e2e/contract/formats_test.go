package contract

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"
)

var (
	canonicalUUID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	utcStamp      = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$`)
	offsetStamp   = regexp.MustCompile(`^[0-9-]{10}T[0-9:]{8}\.[0-9]{3}[+-][0-9]{2}:[0-9]{2}$`)
)

// offsetDateTime is the format of times with an offset from UTC. CallSummary.scheduled_for has this
// format.
const offsetDateTime = "date-time-with-offset"

type format func(string) error

// Validate implements openapi3.StringFormatValidator.
func (f format) Validate(value string) error { return f(value) }

// responseFormats returns validators for the formats of values in responses. An id must be in lower
// case. A time must be in UTC with exactly three decimals.
func responseFormats() map[string]openapi3.StringFormatValidator {
	return map[string]openapi3.StringFormatValidator{
		"uuid": format(func(s string) error { return matches(canonicalUUID, s) }),
		"uri":  format(absolute),
		"date-time": format(func(s string) error {
			if err := matches(utcStamp, s); err != nil {
				return err
			}
			_, err := time.Parse(time.RFC3339, s)
			return err
		}),
		offsetDateTime: format(func(s string) error {
			if err := matches(offsetStamp, s); err != nil {
				return err
			}
			_, err := time.Parse(time.RFC3339, s)
			return err
		}),
	}
}

// requestFormats returns validators for the formats of values in requests. Requests may use more
// formats than responses.
func requestFormats() map[string]openapi3.StringFormatValidator {
	return map[string]openapi3.StringFormatValidator{
		"uuid":      format(uuid.Validate),
		"uri":       format(absolute),
		"date-time": format(func(s string) error { _, err := time.Parse(time.RFC3339, s); return err }),
	}
}

func matches(pattern *regexp.Regexp, s string) error {
	if !pattern.MatchString(s) {
		return fmt.Errorf("%q does not match %s", s, pattern)
	}
	return nil
}

func absolute(s string) error {
	address, err := url.Parse(s)
	if err == nil && (address.Scheme == "" || address.Host == "") {
		return fmt.Errorf("%q is not an absolute address", s)
	}
	return err
}

func sorted[M ~map[K]V, K cmp.Ordered, V any](m M) []K { return slices.Sorted(maps.Keys(m)) }

// Codes returns all documented error codes.
func Codes() []string { return sorted(statusOf) }
