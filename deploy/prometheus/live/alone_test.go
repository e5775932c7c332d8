package live

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/deploy/prometheus/internal/alert"
)

// TestFaults_OrNamedAsTriedAlone: each rule, a page or a ticket, fires live in one fault, or stands in the README's list of those that do not; never both.
func TestFaults_OrNamedAsTriedAlone(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| rule | since here |\n|---|---|\n")
	if !found {
		t.Fatal("the README has no list")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	tried := map[string]int{}
	for row := range strings.Lines(table) {
		for _, rule := range regexp.MustCompile(`[A-Za-z]+( \(ticket\))?`).FindAllString(strings.SplitN(row, "|", 3)[1], -1) {
			tried[rule]++
		}
	}
	live := 0
	for _, f := range faults() {
		for _, rule := range f.alerts {
			tried[rule]++
			live++
		}
	}
	known := map[string]bool{}
	for _, group := range alert.Groups() {
		for _, a := range group.Alerts {
			rule := named(a.Name, string(a.Severity))
			if known[rule] = true; tried[rule] != 1 {
				t.Errorf("%s is named %d times among what faults make fire and what promtool alone does", rule, tried[rule])
			}
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(tried)) {
		if !known[rule] {
			t.Errorf("there is no rule %s", rule)
		}
	}
	if live != 51 {
		t.Errorf("live = %v, want 51", live)
	} else if len(known) != 54 {
		t.Errorf("length of known = %d, want 54", len(known))
	}
}
