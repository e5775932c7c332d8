package prometheus_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/test/kit"
)

const runbooks = "../../docs/runbooks/"

func TestRunbooks_OneForEachAlert(t *testing.T) {
	t.Parallel()
	var alerts []string
	for _, groups := range loadRules(t) {
		for _, a := range kit.Alerts(groups) {
			alerts = append(alerts, a.Alert)
		}
	}
	slices.Sort(alerts)
	// an alert can have two rules with the same name: one that pages and one that opens a ticket
	alerts = slices.Compact(alerts)
	var pages []string
	for name, text := range pagesOf(t) {
		if name[0] >= 'A' && name[0] <= 'Z' && name != "README.md" {
			pages = append(pages, strings.TrimSuffix(name, ".md"))
			if want := "# " + strings.TrimSuffix(name, ".md") + "\n"; !strings.HasPrefix(text, want) {
				t.Errorf("%s does not begin with %q", name, want)
			}
			for _, want := range []string{
				"\n## Meaning\n", "\n## Impact\n", "\n## Diagnosis\n", "\n## Remedy\n", "\n**Escalate.** ",
			} {
				if !strings.Contains(text, want) {
					t.Errorf("%s has no %q", name, want)
				}
			}
		}
		for _, link := range regexp.MustCompile(`\]\(([A-Za-z-]+\.md)\)`).FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(runbooks + link[1]); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, link[1])
			}
		}
	}
	slices.Sort(pages)
	if !slices.Equal(alerts, pages) {
		t.Errorf("alerts %v\nrunbooks %v", alerts, pages)
	}
}

func pagesOf(t *testing.T) map[string]string {
	t.Helper()
	found, err := filepath.Glob(runbooks + "*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(path)] = string(text)
	}
	return pages
}

func blocks(text, kind string) (lines []string) {
	for _, found := range regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		lines = append(lines, strings.Split(strings.TrimSpace(found[1]), "\n")...)
	}
	return lines
}

// This test checks the HTTP routes in the commands. A test in cmd/ringfence checks the ringfence
// commands.
func TestRunbooks_EveryCommandExists(t *testing.T) {
	t.Parallel()
	src := source(t)
	asked := regexp.MustCompile(`^curl .*"\$(BASE|PRIVATE)(/[^"?]*)`)
	for name, text := range pagesOf(t) {
		if name[0] < 'A' || name[0] > 'Z' {
			continue
		}
		for _, line := range blocks(text, "sh") {
			switch {
			case asked.MatchString(line):
				if path := asked.FindStringSubmatch(line)[2]; !src.hasRoute(path) {
					t.Errorf("%s requests %s, which is not a route", name, path)
				}
			case !strings.HasPrefix(line, "ringfence ") && !strings.HasPrefix(line, "kubectl -n ringfence "):
				t.Errorf("%s: %q is not known", name, line)
			}
		}
	}
}

// Each log line, setting, field, route, path and test must exist in the code, and each panel in the
// dashboards.
func TestRunbooks_NamesExistInTheCode(t *testing.T) {
	t.Parallel()
	src := source(t)
	for name, text := range pagesOf(t) {
		if name == "README.md" {
			continue
		}
		for _, word := range src.unknownNames(text) {
			if !strings.HasPrefix(name, "postgres-") {
				t.Errorf("%s names %q, which does not exist in the code", name, word)
			} else if !slices.Contains(postgresNames, word) {
				t.Errorf("ofPostgres does not contain %v of %s", word, name)
			}
		}
	}
	const wrong = "The log lines `the moon fell into the sea` and `it fell: 2 moons, all of them`, and `moon_phase`; set MOON_PHASE; see the panel *Moons*, GET /v1/moons/{id}, `libs/moon`, TestMoon and `make moon`.\n"
	if found := src.unknownNames(wrong); len(found) != 9 {
		t.Errorf("unknown words found = %q, want nine", found)
	}
}
