package kit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// RuleGroup is a group of a Prometheus rule file.
type RuleGroup struct {
	Name  string `yaml:"name"`
	Rules []Rule `yaml:"rules"`
}

// Rule is an alerting rule (Alert is set) or a recording rule (Record is set).
type Rule struct {
	Alert       string            `yaml:"alert,omitempty"`
	Record      string            `yaml:"record,omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for,omitempty"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

// Severity returns the severity label, which is page or ticket.
func (r Rule) Severity() string { return r.Labels["severity"] }

// LoadRules reads every rule file of dir. It maps each file's name without the extension to the
// groups in the file.
func LoadRules(dir string) (map[string][]RuleGroup, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yml"))
	if err != nil {
		return nil, fmt.Errorf("list rule files: %w", err)
	}
	files := map[string][]RuleGroup{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read rules: %w", err)
		}
		var file struct{ Groups []RuleGroup }
		if err := yaml.Unmarshal(text, &file); err != nil {
			return nil, fmt.Errorf("parse %s: %w", path, err)
		}
		files[strings.TrimSuffix(filepath.Base(path), ".yml")] = file.Groups
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no rule files", dir)
	}
	return files, nil
}

// Alerts returns the alerting rules of the groups.
func Alerts(groups []RuleGroup) []Rule {
	var alerts []Rule
	for _, group := range groups {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				alerts = append(alerts, rule)
			}
		}
	}
	return alerts
}
