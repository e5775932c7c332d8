// Package money defines amounts of credits. Inside the services an amount is an integer of
// millionths. In the API it is a JSON number with at most six decimal places
// (docs/reference/api/billing.md).
package money

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Micro is an amount in millionths of a credit.
type Micro int64

// Credit is one whole credit.
const Credit Micro = 1_000_000

const places = 6

// ErrAmount is the error of Parse for a text that is not an amount. Parse adds the reason.
var ErrAmount = errors.New("not an amount")

// Parse reads a decimal number with at most six decimal places ("12.5", "-0.000001"). It rejects
// exponents, spaces and numbers that do not fit into Micro.
func Parse(text string) (Micro, error) {
	digits, negative := strings.CutPrefix(text, "-")
	whole, fraction, pointed := strings.Cut(digits, ".")
	if !decimal(whole) || pointed && !decimal(fraction) {
		return 0, fmt.Errorf("%w: want digits with at most six decimal places, such as 12.5", ErrAmount)
	}
	if len(fraction) > places {
		return 0, fmt.Errorf("%w: it has more than six decimal places", ErrAmount)
	}
	scaled := whole + fraction + strings.Repeat("0", places-len(fraction))
	if negative {
		scaled = "-" + scaled // parse the number with its sign, so that the smallest int64 fits too
	}
	value, err := strconv.ParseInt(scaled, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: it is too large", ErrAmount)
	}
	return Micro(value), nil
}

func decimal(digits string) bool {
	if digits == "" {
		return false
	}
	for _, r := range digits {
		if r < '0' || r > '9' {
			return false
		}
	}
	return true
}

// String returns the shortest exact decimal ("0.5", "10", "-0.000001").
func (m Micro) String() string {
	sign, size := "", uint64(m)
	if m < 0 {
		sign, size = "-", -uint64(m) // the negation is also correct for the smallest int64
	}
	whole, fraction := size/uint64(Credit), size%uint64(Credit)
	if fraction == 0 {
		return sign + strconv.FormatUint(whole, 10)
	}
	text := fmt.Sprintf("%s%d.%06d", sign, whole, fraction)
	return strings.TrimRight(text, "0")
}

// MarshalJSON returns the amount as a JSON number.
func (m Micro) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalJSON accepts a JSON number or a decimal string. null changes nothing.
func (m *Micro) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "null" {
		return nil
	}
	if len(text) >= 2 && text[0] == '"' {
		text = text[1 : len(text)-1] // the text needs no unescaping, because Parse rejects escape sequences
	}
	value, err := Parse(text)
	if err != nil {
		return err
	}
	*m = value
	return nil
}

// Price returns the charge for a talk time of seconds at the rate perMinute. The time is rounded up
// to a multiple of incrementSeconds (at least 1), and the charge up to a whole Micro.
// If seconds or perMinute is 0 or less, the charge is 0. The charge is at most the largest Micro.
func Price(perMinute Micro, seconds, incrementSeconds int32) Micro {
	if perMinute <= 0 || seconds <= 0 {
		return 0
	}
	increment := int64(max(incrementSeconds, 1))
	billed := (int64(seconds) + increment - 1) / increment * increment
	const minute = 60
	high, low := bits.Mul64(uint64(perMinute), uint64(billed))
	if high >= minute {
		return math.MaxInt64
	}
	charge, rest := bits.Div64(high, low, minute)
	if charge >= math.MaxInt64 {
		return math.MaxInt64
	}
	if rest > 0 {
		charge++
	}
	return Micro(charge)
}
