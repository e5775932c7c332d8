// Package phone owns what a telephone number is to us: its E.164 shape, where on earth it may
// ring, and whether it is of a kind that is never dialled. It knows no policy.
package phone

import (
	"slices"
	"strings"
)

// Number is an E.164 number, leading plus included ("+14155550123").
type Number string

// Parse accepts exactly ^\+[1-9]\d{6,14}$ (contract.md §1); there is no other test of validity.
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

// Masked shows the last four digits only, for logs and spans.
func (n Number) Masked() string {
	if len(n) <= 4 {
		return "…"
	}
	return "…" + string(n[len(n)-4:])
}

// HasPrefix says whether the number begins with one of the prefixes ("+1", "+4420").
func (n Number) HasPrefix(prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return p != "" && strings.HasPrefix(string(n), p) })
}
