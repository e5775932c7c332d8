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

// TestFaults_OrNamedAsTriedAlone: each alert fires live in some fault, or stands in the README's list of those that do not; never both.
func TestFaults_OrNamedAsTriedAlone(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| alert | since here |\n|---|---|\n")
	if !found {
		t.Fatal("the README has no list")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	tried := map[string]int{}
	for row := range strings.Lines(table) {
		for _, name := range regexp.MustCompile(`[A-Za-z]+`).FindAllString(strings.SplitN(row, "|", 3)[1], -1) {
			tried[name]++
		}
	}
	live := map[string]bool{}
	for _, f := range faults() {
		for _, name := range f.alerts {
			live[strings.TrimSuffix(name, " (ticket)")] = true
		}
	}
	for name := range live {
		tried[name]++
	}
	known := map[string]bool{}
	for _, group := range alert.Groups() {
		for _, a := range group.Alerts {
			if known[a.Name] = true; tried[a.Name] != 1 {
				t.Errorf("%s is named %d times among what faults make fire and what promtool alone does", a.Name, tried[a.Name])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tried)) {
		if !known[name] {
			t.Errorf("there is no alert %s", name)
		}
	}
	if len(live) != 44 || len(known) != 47 {
		t.Errorf("%d of %d alerts fire live: the README says otherwise", len(live), len(known))
	}
}
