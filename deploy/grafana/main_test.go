package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"ringfence.dev/deploy/grafana/internal/board"
)

// TestDashboards_AreWhatTheSourceGives holds the committed files against the generator, and decodes each strictly into Grafana's own types.
func TestDashboards_AreWhatTheSourceGives(t *testing.T) {
	t.Parallel()
	var want []string
	for _, b := range board.All() {
		path := filepath.Join("dashboards", b.UID+".json")
		want = append(want, path)
		text, err := render(b)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(text, kept) {
			t.Errorf("%s differs from deploy/grafana/internal/board: go run ./deploy/grafana", path)
		}
		var model dashboard.Dashboard
		if err := model.UnmarshalJSONStrict(kept); err != nil {
			t.Errorf("%s is no dashboard: %v", path, err)
		}
		if err := model.Validate(); err != nil {
			t.Errorf("%s is no good dashboard: %v", path, err)
		}
	}
	found, err := filepath.Glob("dashboards/*.json")
	slices.Sort(want)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found, want) {
		t.Errorf("dashboards = %v, want %v", found, want)
	}
}

// TestPanels_CanBeRead holds each panel to what somebody needs who was woken: a title of its own, a unit, and pages that exist; and each alert to a panel.
func TestPanels_CanBeRead(t *testing.T) {
	t.Parallel()
	shown := map[string]bool{}
	for _, b := range board.All() {
		titles := map[string]bool{}
		for _, row := range b.Rows {
			width := 0
			for _, p := range row.Panels {
				where := b.Title + ": " + p.Title
				if p.Title == "" {
					t.Errorf("%s: the title is empty", where)
				}
				if titles[p.Title] {
					t.Errorf("%s: another panel has the same title", where)
				}
				if p.Unit == "" {
					t.Errorf("%s: the unit is empty", where)
				}
				if len(p.Queries) == 0 {
					t.Errorf("%s: there is no query", where)
				}
				titles[p.Title] = true
				for _, q := range p.Queries {
					if fault := misread(p.Unit, q.Expr); fault != "" {
						t.Errorf("%s: %s: %s", where, fault, q.Expr)
					}
					if !p.Number && len(p.Queries) > 1 && q.Legend == "" {
						t.Errorf("%s: several lines and no names for them", where)
					}
				}
				for _, alert := range p.Alerts {
					shown[alert+".md"] = true
					if _, err := os.Stat("../runbooks/" + alert + ".md"); err != nil {
						t.Errorf("%s leads to %s, which is not there", where, alert)
					}
				}
				if width += 8; p.Number {
					width -= 4
				}
			}
			if width%24 != 0 {
				t.Errorf("%s: the row %q is not full", b.Title, row.Title)
			}
		}
	}
	pages, err := filepath.Glob("../runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		name := filepath.Base(page)
		if name[0] >= 'A' && name[0] <= 'Z' && name != "README.md" && !shown[name] {
			t.Errorf("no panel shows what %s is about", strings.TrimSuffix(name, ".md"))
		}
	}
}

var requests = regexp.MustCompile(`http_request|webhook_(attempts|started|connections)|calls_posts`)

// misread says what is wrong with a query for its unit: "" nothing that is known.
func misread(unit, query string) string {
	whole := !strings.Contains(query, " / ") && !strings.HasPrefix(query, "1 - ")
	switch {
	case strings.Contains(query, "vector("):
		return "a metric that is not told shows as a number"
	case strings.Contains(query, "histogram_quantile") && unit != "s":
		return "a duration is told in seconds"
	case unit == "reqps" && !requests.MatchString(query):
		return "these are no requests"
	case unit == "percentunit" && whole:
		return "this is no part of anything"
	case unit == "s" && !strings.Contains(query, "_seconds"), unit == "bytes" && !strings.Contains(query, "_bytes"):
		return "the metric is of another unit"
	}
	return ""
}

// TestPanels_NumbersAreOfNow: a number that is asked over time shows the last value of what is gone.
func TestPanels_NumbersAreOfNow(t *testing.T) {
	t.Parallel()
	for _, b := range board.All() {
		model, err := board.Render(b)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(model)
		if err != nil {
			t.Fatal(err)
		}
		var read struct {
			Panels []struct {
				Type, Title string
				Targets     []struct{ Instant, Range bool }
			}
		}
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		for _, p := range read.Panels {
			for _, target := range p.Targets {
				number := p.Type == "stat"
				if target.Instant != number {
					t.Errorf("%s: %s (%s): instant = %v, want %v", b.Title, p.Title, p.Type, target.Instant, number)
				}
				if target.Range == number {
					t.Errorf("%s: %s (%s): range = %v, want %v", b.Title, p.Title, p.Type, target.Range, !number)
				}
			}
		}
	}
}
