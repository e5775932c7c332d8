// Package prometheus reads the rule files of this directory for the tests that check them. The YAML
// files are the source.
package prometheus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Group is a group of a rule file.
type Group struct {
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

// Severity is page or ticket.
func (r Rule) Severity() string { return r.Labels["severity"] }

// Load reads every rule file of dir and returns the groups of each, by the file's name without its
// extension.
func Load(dir string) (map[string][]Group, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yml"))
	if err != nil {
		return nil, fmt.Errorf("list rule files: %w", err)
	}
	files := map[string][]Group{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read rules: %w", err)
		}
		var file struct{ Groups []Group }
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
func Alerts(groups []Group) []Rule {
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
