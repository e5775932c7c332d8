package grafana

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

type board struct {
	UID, Title string
	Panels     []panel
}

type panel struct {
	Type, Title string
	GridPos     struct{ W, Y int }
	Targets     []struct {
		Expr, LegendFormat string
		Instant, Range     bool
	}
	FieldConfig struct{ Defaults struct{ Unit string } }
	Links       []struct{ URL string }
}

// isStat reports whether the panel shows the current value instead of a graph.
func (p panel) isStat() bool { return p.Type == "stat" }

// readBoards decodes every dashboard strictly into Grafana's own types, and returns the part that
// the tests read.
func readBoards(t *testing.T) []board {
	t.Helper()
	paths, err := filepath.Glob("dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatal("there is no dashboard")
	}
	var all []board
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var model dashboard.Dashboard
		if err := model.UnmarshalJSONStrict(text); err != nil {
			t.Errorf("decode %s: %v", path, err)
		}
		if err := model.Validate(); err != nil {
			t.Errorf("validate %s: %v", path, err)
		}
		var b board
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatal(err)
		}
		if got, want := b.UID, strings.TrimSuffix(filepath.Base(path), ".json"); got != want {
			t.Errorf("uid of %s = %q, want %q", path, got, want)
		}
		all = append(all, b)
	}
	return all
}

// Each panel has a unique title, a unit that fits its queries, and a name for each of several
// series. Each row of panels is 24 columns wide.
func TestPanels_HaveUniqueTitlesAndFittingUnits(t *testing.T) {
	t.Parallel()
	for _, b := range readBoards(t) {
		titles, widths := map[string]bool{}, map[int]int{}
		for _, p := range b.Panels {
			if p.Type == "row" {
				continue
			}
			where := b.Title + ": " + p.Title
			if p.Title == "" {
				t.Errorf("%s: the title is empty", where)
			}
			if titles[p.Title] {
				t.Errorf("%s: another panel has the same title", where)
			}
			if p.FieldConfig.Defaults.Unit == "" {
				t.Errorf("%s: the unit is empty", where)
			}
			if len(p.Targets) == 0 {
				t.Errorf("%s: there is no query", where)
			}
			titles[p.Title] = true
			widths[p.GridPos.Y] += p.GridPos.W
			p.checkTargets(t, where)
		}
		for y, width := range widths {
			if width%24 != 0 {
				t.Errorf("%s: the panels at height %d have a width of %d, want a multiple of 24", b.Title, y, width)
			}
		}
	}
}

func (p panel) checkTargets(t *testing.T, where string) {
	t.Helper()
	for _, target := range p.Targets {
		if fault := unitFault(p.FieldConfig.Defaults.Unit, target.Expr); fault != "" {
			t.Errorf("%s: %s: %s", where, fault, target.Expr)
		}
		if !p.isStat() && len(p.Targets) > 1 && target.LegendFormat == "" {
			t.Errorf("%s: a query of several has no legend", where)
		}
		// A range query shows the last value of a series even if the series no longer exists. So a stat
		// panel must use an instant query.
		if target.Instant != p.isStat() {
			t.Errorf("%s: instant = %v, want %v", where, target.Instant, p.isStat())
		}
		if target.Range == p.isStat() {
			t.Errorf("%s: range = %v, want %v", where, target.Range, !p.isStat())
		}
	}
}

var runbookLink = regexp.MustCompile(`^\$\{runbooks\}/(\w+\.md)$`)

func TestPanels_LinkToRunbooks(t *testing.T) {
	t.Parallel()
	var linked []string
	for _, b := range readBoards(t) {
		for _, p := range b.Panels {
			for _, link := range p.Links {
				found := runbookLink.FindStringSubmatch(link.URL)
				if found == nil {
					t.Errorf("%s: %s: link %q, want ${runbooks}/….md", b.Title, p.Title, link.URL)
					continue
				}
				linked = append(linked, found[1])
				if _, err := os.Stat("../../docs/runbooks/" + found[1]); err != nil {
					t.Errorf("%s: %s links to %s, which does not exist", b.Title, p.Title, found[1])
				}
			}
		}
	}
	pages, err := filepath.Glob("../../docs/runbooks/[A-Z]*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !slices.Contains(linked, name) {
			t.Errorf("no panel links to %s", name)
		}
	}
}

var requests = regexp.MustCompile(`http_request|webhooks_(attempts|connections)|calls_create_requests`)

// unitFault returns the reason why the panel would show the query's result with a wrong unit, or ""
// if the unit fits.
func unitFault(unit, query string) string {
	whole := !strings.Contains(query, " / ") && !strings.HasPrefix(query, "1 - ")
	switch {
	case strings.Contains(query, "vector("):
		return "a missing metric is shown as a number"
	case strings.Contains(query, "histogram_quantile") && unit != "s":
		return "the unit of a duration is s"
	case unit == "reqps" && !requests.MatchString(query):
		return "the query counts no requests"
	case unit == "percentunit" && whole:
		return "the query is not a ratio"
	case unit == "s" && !strings.Contains(query, "_seconds"), unit == "bytes" && !strings.Contains(query, "_bytes"):
		return "the metric has another unit"
	}
	return ""
}
