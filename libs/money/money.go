// Package money owns amounts: integer micro-credits inside, JSON numbers exact to six places at
// the edge (contract.md §4).
package money

// Micro is an amount in millionths of a credit.
type Micro int64

// Credit is one whole credit.
const Credit Micro = 1_000_000

// Parse reads a decimal string of at most six places ("12.5", "-0.000001"). It refuses exponents,
// blanks, more places and what does not fit.
func Parse(text string) (Micro, error) { panic("unwritten") }

// String prints the shortest exact decimal ("0.5", "10", "-0.000001").
func (m Micro) String() string { panic("unwritten") }

// MarshalJSON prints the amount as a JSON number.
func (m Micro) MarshalJSON() ([]byte, error) { panic("unwritten") }

// UnmarshalJSON reads a JSON number or decimal string.
func (m *Micro) UnmarshalJSON(data []byte) error { panic("unwritten") }

// Price is the charge for seconds of talk at perMinute, billed in started increments of
// incrementSeconds (at least 1), rounded up to a whole micro-credit.
func Price(perMinute Micro, seconds, incrementSeconds int32) Micro { panic("unwritten") }
