package holds

import (
	"regexp"
	"strings"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/money"
)

// Rate is the price of calls to numbers that begin with Prefix.
type Rate struct {
	Prefix           string
	PerMinute        money.Micro `db:"per_minute_micro"`
	IncrementSeconds int32
}

// Default returns the rate for numbers without a matching prefix. See
// docs/reference/api/billing.md.
func Default() Rate { return Rate{PerMinute: 50_000, IncrementSeconds: 1} }

// MaxPerMinute limits a rate to a thousand credits per minute.
const MaxPerMinute = 1_000 * money.Credit

// MaxIncrementSeconds limits the billing increment.
const MaxIncrementSeconds = 3600

var prefixShape = regexp.MustCompile(`^\+[1-9][0-9]{0,14}$`)

// Match returns the rate with the longest prefix of the number. If no prefix matches, Match returns
// the default rate.
func Match(rates []Rate, number string) Rate {
	best := Default()
	for _, r := range rates {
		if len(r.Prefix) > len(best.Prefix) && strings.HasPrefix(number, r.Prefix) {
			best = r
		}
	}
	return best
}

// Check returns a 422 validation_error if the list is invalid.
func Check(rates []Rate) error {
	seen := make(map[string]bool, len(rates))
	for _, r := range rates {
		switch {
		case !prefixShape.MatchString(r.Prefix):
			return apierr.Validation("prefix", "must be a plus and 1 to 15 digits, such as +4420; %.40q is not.", r.Prefix)
		case seen[r.Prefix]:
			return apierr.Validation("prefix", "must stand once; %s stands twice.", r.Prefix)
		case r.PerMinute < 0 || r.PerMinute > MaxPerMinute:
			return apierr.Validation("per_minute", "must be between 0 and %s; it is %s for %s.", MaxPerMinute, r.PerMinute,
				r.Prefix)
		case r.IncrementSeconds < 1 || r.IncrementSeconds > MaxIncrementSeconds:
			return apierr.Validation("increment_seconds", "must be between 1 and %d; it is %d for %s.",
				MaxIncrementSeconds, r.IncrementSeconds, r.Prefix)
		}
		seen[r.Prefix] = true
	}
	return nil
}

// Prefixes returns all prefixes of the number that a rate can have: from the plus sign with one
// digit to the whole number.
func Prefixes(number string) []string {
	prefixes := make([]string, 0, len(number))
	for n := len("+1"); n <= len(number); n++ {
		prefixes = append(prefixes, number[:n])
	}
	return prefixes
}
