package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

const rulesFolder = "../../deploy/prometheus/rules"

func TestWriteAlerts_EqualsTheCommittedPage(t *testing.T) {
	t.Parallel()
	var current bytes.Buffer
	if err := writeAlerts(&current, rulesFolder); err != nil {
		t.Fatal(err)
	}
	committed, err := os.ReadFile("../../docs/reference/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(committed, current.Bytes()) {
		t.Error("docs/reference/alerts.md differs from the alert rules: run make alerts and commit it")
	}
}

func TestWriteAlerts_RejectsAnIncompleteFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "calls.yml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeAlerts(&bytes.Buffer{}, folder); err == nil {
		t.Error("writeAlerts succeeded in a folder with one rule file, want an error")
	}
}

func TestWriteAlert_WritesOneRow(t *testing.T) {
	t.Parallel()
	rule := alertRule{Alert: "A", For: "1h"}
	rule.Labels.Severity, rule.Annotations.Summary = "page", "x | y"
	rule.Annotations.Runbook = "docs/runbooks/A.md"
	var row bytes.Buffer
	if err := writeAlert(&row, rule); err != nil {
		t.Fatal(err)
	}
	const want = "| [A](../runbooks/A.md) | page | x \\| y | 60 min |\n"
	if row.String() != want {
		t.Errorf("row = %q, want %q", row.String(), want)
	}
	for name, change := range map[string]func(*alertRule){
		"a runbook outside docs": func(r *alertRule) { r.Annotations.Runbook = "runbooks/A.md" },
		"an invalid duration":    func(r *alertRule) { r.For = "soon" },
	} {
		wrong := rule
		change(&wrong)
		if err := writeAlert(&bytes.Buffer{}, wrong); err == nil {
			t.Errorf("writeAlert with %s succeeded, want an error", name)
		}
	}
}
