package aimodel

import (
	"testing"
	"time"
)

func TestRetirementOf_ReturnsTheAnnouncedRetirement(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, model, day, successor string
		known                       bool
	}{
		{name: "voice model", model: "gpt-realtime", day: "2027-01-20", successor: "gpt-realtime-2.1", known: true},
		{
			name: "name with surrounding spaces", model: " gpt-4o-mini ", day: "2027-01-14", successor: "gpt-6-luna",
			known: true,
		},
		{name: "model without an announced retirement", model: "gpt-realtime-2.1"},
		{name: "another provider's model", model: "llama-4"},
		{name: "empty name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, known := RetirementOf(tt.model)
			if known != tt.known {
				t.Fatalf("RetirementOf(%q) known = %v, want %v", tt.model, known, tt.known)
			}
			if !known {
				return
			}
			if day := got.At.Format(time.DateOnly); day != tt.day {
				t.Errorf("RetirementOf(%q).At = %s, want %s", tt.model, day, tt.day)
			}
			if got.Successor != tt.successor {
				t.Errorf("RetirementOf(%q).Successor = %q, want %q", tt.model, got.Successor, tt.successor)
			}
		})
	}
}

func TestRetirement_IsDue60DaysBeforeTheShutdown(t *testing.T) {
	t.Parallel()
	retirement, known := RetirementOf("gpt-realtime")
	if !known {
		t.Fatal("gpt-realtime has no retirement")
	}
	day := func(text string) time.Time {
		at, err := time.Parse(time.DateOnly, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	tests := []struct {
		name string
		now  time.Time
		want bool
	}{
		{name: "61 days before", now: day("2026-11-20")},
		{name: "60 days before", now: day("2026-11-21"), want: true},
		{name: "after the shutdown", now: day("2027-03-01"), want: true},
	}
	for _, tt := range tests {
		if got := retirement.Due(tt.now); got != tt.want {
			t.Errorf("%s: Due = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A duplicate model, or a successor that also retires, would give operators wrong advice.
func TestRetirements_ModelsAreUniqueAndSuccessorsDoNotRetire(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, row := range retirements() {
		if _, err := time.Parse(time.DateOnly, row.day); err != nil {
			t.Errorf("day %q of %v: %v", row.day, row.models, err)
		}
		if _, retires := RetirementOf(row.successor); retires {
			t.Errorf("successor %s of %v retires as well", row.successor, row.models)
		}
		for _, model := range row.models {
			if seen[model] {
				t.Errorf("model %s is listed twice", model)
			}
			seen[model] = true
		}
	}
}
