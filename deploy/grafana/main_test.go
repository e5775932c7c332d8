package main

import (
	"bytes"
	"os"
	"path/filepath"
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
		if err != nil || !bytes.Equal(text, kept) {
			t.Errorf("%s is not what deploy/grafana/internal/board gives (%v): go run ./deploy/grafana", path, err)
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
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("dashboards %v %v, want %v", found, err, want)
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
				if titles[p.Title] || p.Title == "" || p.Unit == "" || len(p.Queries) == 0 {
					t.Errorf("%s: no title of its own, no unit or no query", where)
				}
				titles[p.Title] = true
				for _, q := range p.Queries {
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
