package holds_test

import (
	"errors"
	"slices"
	"testing"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/services/billing-wallet/internal/holds"
)

func TestMatch_UsesTheLongestPrefix(t *testing.T) {
	t.Parallel()
	list := []holds.Rate{{Prefix: "+44", PerMinute: 30, IncrementSeconds: 1}, {Prefix: "+4420", PerMinute: 40, IncrementSeconds: 6}, {Prefix: "+1", PerMinute: 10, IncrementSeconds: 1}, {Prefix: "+442071234567", PerMinute: 50, IncrementSeconds: 60}}
	for number, want := range map[string]holds.Rate{
		"+442079460000": {Prefix: "+4420", PerMinute: 40, IncrementSeconds: 6},
		"+441619460000": {Prefix: "+44", PerMinute: 30, IncrementSeconds: 1},
		"+442071234567": {Prefix: "+442071234567", PerMinute: 50, IncrementSeconds: 60},
		"+15550100123":  {Prefix: "+1", PerMinute: 10, IncrementSeconds: 1},
		"+4915112345":   holds.Default(),
	} {
		if got := holds.Match(list, number); got != want {
			t.Errorf("Match(%s) = %+v, want %+v", number, got, want)
		}
	}
}

func TestPrefixes_ReturnsAllPossiblePrefixes(t *testing.T) {
	t.Parallel()
	if got, want := holds.Prefixes("+4420"), []string{"+4", "+44", "+442", "+4420"}; !slices.Equal(got, want) {
		t.Errorf("Prefixes = %v, want %v", got, want)
	}
}

func TestCheck_RefusesInvalidRates(t *testing.T) {
	t.Parallel()
	if err := holds.Check([]holds.Rate{{Prefix: "+1", PerMinute: 0, IncrementSeconds: 1}, {Prefix: "+44",
		PerMinute: holds.MaxPerMinute, IncrementSeconds: holds.MaxIncrementSeconds}}); err != nil {
		t.Errorf("Check of good rates = %v", err)
	}
	for name, bad := range map[string][]holds.Rate{
		"no plus":                  {{Prefix: "44", PerMinute: 1, IncrementSeconds: 1}},
		"only a plus":              {{Prefix: "+", PerMinute: 1, IncrementSeconds: 1}},
		"a leading zero":           {{Prefix: "+044", PerMinute: 1, IncrementSeconds: 1}},
		"too long":                 {{Prefix: "+1234567890123456", PerMinute: 1, IncrementSeconds: 1}},
		"a letter":                 {{Prefix: "+44a", PerMinute: 1, IncrementSeconds: 1}},
		"a negative rate":          {{Prefix: "+44", PerMinute: -1, IncrementSeconds: 1}},
		"a rate above the maximum": {{Prefix: "+44", PerMinute: holds.MaxPerMinute + 1, IncrementSeconds: 1}},
		"no increment":             {{Prefix: "+44", PerMinute: 1, IncrementSeconds: 0}},
		"too long increment":       {{Prefix: "+44", PerMinute: 1, IncrementSeconds: holds.MaxIncrementSeconds + 1}},
		"the same twice": {{Prefix: "+44", PerMinute: 1, IncrementSeconds: 1}, {Prefix: "+44", PerMinute: 2,
			IncrementSeconds: 1}},
		"only one is at fault": {{Prefix: "+1", PerMinute: 1, IncrementSeconds: 1}, {Prefix: "", PerMinute: 2,
			IncrementSeconds: 1}},
	} {
		var refusal *apierr.Error
		if err := holds.Check(bad); !errors.As(err, &refusal) {
			t.Errorf("%s: Check = %v, want a %T", name, err, refusal)
		} else if refusal.Code != "validation_error" {
			t.Errorf(`%s: refusal.Code = %q, want "validation_error"`, name, refusal.Code)
		}
	}
}
