package alerts

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/test/kit"
)

// Each alert must be either fired by exactly one fault, or listed in the README as an alert that
// only promtool tests.
func TestFaults_CoverEveryAlert(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/prometheus/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| alert | reason |\n|---|---|\n")
	if !found {
		t.Fatal("the README has no table of alerts that promtool alone tests")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	tried := map[string]int{}
	for row := range strings.Lines(table) {
		for _, rule := range regexp.MustCompile(`[A-Za-z]+( \(ticket\))?`).FindAllString(strings.SplitN(row, "|", 3)[1], -1) {
			tried[rule]++
		}
	}
	for _, f := range faults() {
		for _, rule := range f.alerts {
			tried[rule]++
		}
	}
	known := map[string]bool{}
	for _, groups := range loadRules(t) {
		for _, a := range kit.Alerts(groups) {
			rule := ruleName(a.Alert, a.Severity())
			if known[rule] = true; tried[rule] != 1 {
				t.Errorf("faults and the README list %s %d times, want once", rule, tried[rule])
			}
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(tried)) {
		if !known[rule] {
			t.Errorf("there is no alert %s", rule)
		}
	}
}
