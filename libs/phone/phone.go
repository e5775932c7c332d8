// Package phone owns what a telephone number is to us: its E.164 shape, where on earth it may
// ring, and whether it is of a kind that is never dialled. It knows no policy.
package phone

import "time"

// Number is an E.164 number, leading plus included ("+14155550123").
type Number string

// Parse accepts exactly ^\+[1-9]\d{6,14}$ (contract.md §1); there is no other test of validity.
func Parse(text string) (n Number, ok bool) { panic("unwritten") }

// Masked shows the last four digits only, for logs and spans.
func (n Number) Masked() string { panic("unwritten") }

// Zones lists every time zone (canonical IANA names, sorted) the number may ring in; empty when unknown
// (toll-free, not geographic, unassigned).
func (n Number) Zones() []*time.Location { panic("unwritten") }

// Forbidden names why a number is of a kind never dialled (premium, shared cost, satellite, short),
// or "" when it may be (contract.md §3).
func (n Number) Forbidden() string { panic("unwritten") }

// HasPrefix says whether the number begins with one of the prefixes ("+1", "+4420").
func (n Number) HasPrefix(prefixes []string) bool { panic("unwritten") }
