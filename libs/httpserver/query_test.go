package httpserver

import (
	"net/url"
	"strings"
	"testing"
)

func TestParseTime_AcceptsRFC3339Only(t *testing.T) {
	for _, row := range []struct {
		name, query string
		taken       bool
	}{
		{"one value", "p=2026-06-04T09:00:00Z", true},
		{"two values", "p=2026-06-04T09:00:00Z&p=2026-06-04T09:00:00Z", false},
		{"a fraction", "p=2026-06-04T09:00:00.123456789Z", true},
		{"lower-case t and z", "p=2026-06-04t09:00:00.5z", true},
		{"an offset whose plus sign is not percent-encoded", "p=2026-06-04T09:00:00+02:00", true},
		{"the year 0", "p=0000-01-01T00:00:00Z", true},
		{"the year 9999", "p=9999-12-31T23:59:59-23:59", true},
		{"the year 10000", "p=10000-01-01T00:00:00Z", false},
		{"a leap second", "p=2026-06-30T23:59:60Z", false},
		{"no offset", "p=2026-06-04T09:00:00", false},
		{"an offset of 99 hours", "p=2026-06-04T09:00:00%2B99:99", false},
		{"an offset of a day", "p=2026-06-04T09:00:00%2B24:00", false},
		{"an hour of one digit", "p=2026-06-04T9:00:00Z", false},
		{"a comma before the fraction", "p=2026-06-04T09:00:00,5Z", false},
		{"a date alone", "p=2026-06-04", false},
		{"digits of another script", "p=%D9%A2026-06-04T09:00:00Z", false},
	} {
		query, err := url.ParseQuery(row.query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := QueryTime(query, "p"); (err == nil) != row.taken {
			t.Errorf("%s: %v, want taken = %v", row.name, err, row.taken)
		}
	}
	twice := url.Values{"p": {"queued", "queued"}}
	_, e1 := QueryEnum(twice, "p", "queued")
	_, e2 := QueryUUID(twice, "p")
	_, e3 := QueryText(twice, "p")
	for i, err := range []error{e1, e2, e3} {
		if err == nil {
			t.Error("error = nil, want an error")
		} else if !strings.Contains(err.Error(), "p must stand once") {
			t.Errorf(`err = %q, want it to contain "p must stand once"; i = %d`, err.Error(), i)
		}
	}
}
