package prometheus_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"ringfence.dev/test/kit"
)

// TestRunbooks_QueriesHaveValidSyntax parses every PromQL query of the pages.
// TestMetrics_AreRegistered checks the names of their metrics.
func TestRunbooks_QueriesHaveValidSyntax(t *testing.T) {
	t.Parallel()
	promtool := debianProgram(t, "promtool")
	found, err := kit.PageBlocks("../..", kit.PromQLTest)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range found {
		for query := range strings.Lines(b.Text) {
			if output, err := checkQuery(t, promtool, strings.TrimSpace(query)); err != nil {
				t.Errorf("%s: %v\n%s", b, err, output)
			}
		}
	}
	if _, err := checkQuery(t, promtool, "sum by (job (up)"); err == nil {
		t.Error("a query with a missing parenthesis was accepted")
	}
}

// checkQuery checks a file with one recording rule, because promtool parses a query without a
// server only in a rule.
func checkQuery(t *testing.T, promtool, query string) (output []byte, err error) {
	t.Helper()
	rule := map[string]string{"record": "query", "expr": query}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "page", "rules": []any{rule}}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "query.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err = exec.CommandContext(t.Context(), promtool, "check", "rules", file).CombinedOutput(); err != nil {
		return output, fmt.Errorf("promtool check rules: %w", err)
	}
	return output, nil
}
