package alerts

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type query struct{ board, panel, expr string }

// services are the values of the dashboard variable $job.
var services = []string{"gateway", "calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher"}

func queries(t *testing.T) (all []query) {
	t.Helper()
	type panel struct {
		Type, Title string
		Targets     []struct{ Expr string }
		Panels      []panel
	}
	paths, err := filepath.Glob("../../deploy/grafana/dashboards/*.json")
	if err != nil {
		t.Fatalf("no dashboards: Glob: %v", err)
	}
	if len(paths) == 0 {
		t.Fatal("no dashboards: length of paths = 0, want more")
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Title  string
			Panels []panel
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatal(err)
		}
		for _, p := range board.Panels {
			for _, inner := range append([]panel{p}, p.Panels...) {
				for _, target := range inner.Targets {
					expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "20s")
					if !strings.Contains(expr, "$job") {
						all = append(all, query{board.Title, inner.Title, expr})
						continue
					}
					for _, service := range services {
						all = append(all, query{board.Title, inner.Title, strings.ReplaceAll(expr, "$job", service)})
					}
				}
			}
		}
	}
	return all
}

func (p *prometheus) empty(t *testing.T, still []query) (empty []query) {
	t.Helper()
	for _, q := range still {
		samples, err := p.ask(t.Context(), q.expr)
		if err != nil {
			t.Fatalf("%s: %s: %v", q.board, q.panel, err)
		}
		has := false
		for _, s := range samples {
			has = has || s.number()
		}
		if !has {
			empty = append(empty, q)
		}
	}
	return empty
}
