// Package phone defines phone numbers: their E.164 form, the places and time zones in which they
// can ring, and the kinds of numbers that are never dialed.
package phone

import (
	"slices"
	"strings"
)

// Number is an E.164 number with its plus sign ("+14155550123").
type Number string

// Parse accepts numbers that match ^\+[1-9]\d{6,14}$. It does not check whether the number exists.
func Parse(text string) (n Number, ok bool) {
	if len(text) < 1+7 || len(text) > 1+15 || text[0] != '+' || text[1] == '0' {
		return "", false
	}
	for _, c := range []byte(text[1:]) {
		if c < '0' || c > '9' {
			return "", false
		}
	}
	return Number(text), true
}

// Masked returns an ellipsis and the last four digits, for logs and spans.
func (n Number) Masked() string {
	if len(n) <= 4 {
		return "…"
	}
	return "…" + string(n[len(n)-4:])
}

// HasPrefix reports whether the number begins with one of the prefixes ("+1", "+4420"). An empty
// prefix matches nothing.
func (n Number) HasPrefix(prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return p != "" && strings.HasPrefix(string(n), p) })
}
