package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// ruleFiles lists the files of deploy/prometheus/rules with the titles of their sections.
func ruleFiles() []struct{ file, title string } {
	return []struct{ file, title string }{
		{"slos.yml", "Service level objectives"},
		{"guarantees.yml", "Guarantees"},
		{"calls.yml", "Calls"},
		{"delivery.yml", "Events and webhooks"},
		{"platform.yml", "Processes, databases and certificates"},
	}
}

// alertsPreface is the beginning of docs/reference/alerts.md.
const alertsPreface = `# Alerts

These are the alerts of [deploy/prometheus/rules](../../deploy/prometheus/rules). The name of an alert links to its
runbook. The alert fires when its condition has been true for the time in the last column.

Severity page: act now. Severity ticket: can wait for the next working day. [Operate](../operate.md#metrics-and-alerts)
describes the objectives and their burn rates. [renames.csv](renames.csv) lists earlier names of alerts and metrics.
`

type alertRule struct {
	Alert       string
	For         string
	Labels      struct{ Severity string }
	Annotations struct {
		Summary string
		Runbook string `yaml:"runbook_url"`
	}
}

// writeAlerts writes docs/reference/alerts.md from the rule files in a folder. It returns an error
// if the folder contains a file that ruleFiles does not list.
func writeAlerts(out io.Writer, folder string) error {
	found, err := filepath.Glob(filepath.Join(folder, "*.yml"))
	if err != nil {
		return fmt.Errorf("list the rule files: %w", err)
	}
	if len(found) != len(ruleFiles()) {
		return fmt.Errorf("%s has %d rule files, and ruleFiles lists %d", folder, len(found), len(ruleFiles()))
	}
	var page bytes.Buffer
	page.WriteString(alertsPreface)
	for _, f := range ruleFiles() {
		rules, err := readAlerts(filepath.Join(folder, f.file))
		if err != nil {
			return err
		}
		fmt.Fprintf(&page, "\n## %s\n\n| alert | severity | condition | for |\n|---|---|---|---|\n", f.title)
		for _, r := range rules {
			if err := writeAlert(&page, r); err != nil {
				return err
			}
		}
	}
	_, err = out.Write(page.Bytes())
	return err
}

// readAlerts returns the alerting rules of a file.
func readAlerts(path string) (alerts []alertRule, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the rules: %w", err)
	}
	var file struct{ Groups []struct{ Rules []alertRule } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			if r.Alert != "" {
				alerts = append(alerts, r)
			}
		}
	}
	return alerts, nil
}

func writeAlert(page *bytes.Buffer, r alertRule) error {
	runbook, ok := strings.CutPrefix(r.Annotations.Runbook, "docs/")
	if !ok {
		return fmt.Errorf("runbook_url of %s is %q, want a path in docs", r.Alert, r.Annotations.Runbook)
	}
	wait := time.Duration(0)
	if r.For != "" {
		var err error
		if wait, err = time.ParseDuration(r.For); err != nil {
			return fmt.Errorf("parse the duration of %s: %w", r.Alert, err)
		}
	}
	fmt.Fprintf(page, "| [%s](../%s) | %s | %s | %d min |\n", r.Alert, runbook,
		r.Labels.Severity, escapeCell(r.Annotations.Summary), int(wait.Minutes()))
	return nil
}
