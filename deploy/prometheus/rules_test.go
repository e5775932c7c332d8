package prometheus_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"ringfence.dev/test/kit"
)

func loadRules(t *testing.T) map[string][]kit.RuleGroup {
	t.Helper()
	files, err := kit.LoadRules("rules")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestRules_PassPromtool(t *testing.T) {
	t.Parallel()
	promtool := debianProgram(t, "promtool")
	for name := range loadRules(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, args := range [][]string{
				{"check", "rules", "../rules/" + name + ".yml"},
				{"test", "rules", name + ".yml"},
			} {
				cmd := exec.CommandContext(t.Context(), promtool, args...)
				cmd.Dir = "trials"
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
				}
			}
		})
	}
}

func TestRules_EveryAlertIsTested(t *testing.T) {
	t.Parallel()
	for name, groups := range loadRules(t) {
		text, err := os.ReadFile("trials/" + name + ".yml")
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Tests []struct{ Name string }
		}
		if err := yaml.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		tested := map[string]bool{}
		for _, test := range file.Tests {
			tested[test.Name] = true
		}
		for _, a := range kit.Alerts(groups) {
			if want := a.Alert + " (" + a.Severity() + ")"; !tested[want] {
				t.Errorf("trials/%s.yml has no test named %q", name, want)
			}
			if !slices.Contains([]string{"page", "ticket"}, a.Severity()) {
				t.Errorf("severity of %s = %q, want page or ticket", a.Alert, a.Severity())
			}
			if got, want := a.Annotations["runbook_url"], "docs/runbooks/"+a.Alert+".md"; got != want {
				t.Errorf("runbook_url of %s = %q, want %q", a.Alert, got, want)
			}
		}
	}
}

func TestConfig_PassesPromtoolAndAmtool(t *testing.T) {
	t.Parallel()
	promtool, amtool := debianProgram(t, "promtool"), debianProgram(t, "amtool")
	for _, check := range [][]string{
		{promtool, "check", "config", "prometheus.yml"},
		{promtool, "check", "config", "local.yml"},
		{amtool, "check-config", "alertmanager.yml"},
	} {
		if output, err := exec.CommandContext(t.Context(), check[0], check[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(check[1:], " "), err, output)
		}
	}
}

// debianProgram returns the path of a program of the Debian packages prometheus and
// prometheus-alertmanager.
func debianProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed: apt-get install prometheus prometheus-alertmanager", name)
	}
	if err != nil {
		t.Skipf("SKIPPED: %s is not installed: apt-get install prometheus prometheus-alertmanager", name)
	}
	return path
}

func TestMetrics_AreRegistered(t *testing.T) {
	t.Parallel()
	src := source(t)
	for _, groups := range loadRules(t) {
		for _, group := range groups {
			for _, rule := range group.Rules {
				for _, metric := range src.unknownMetrics(rule.Expr) {
					t.Errorf("rule %s%s uses %s, which the code does not export", rule.Alert, rule.Record, metric)
				}
			}
		}
	}
	for name, text := range pagesOf(t) {
		for _, query := range blocks(text, "promql") {
			for _, metric := range src.unknownMetrics(query) {
				t.Errorf("%s uses %s, which the code does not export", name, metric)
			}
		}
	}
	dashboards, err := filepath.Glob("../grafana/dashboards/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range dashboards {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range regexp.MustCompile(`"expr": "((?:[^"\\]|\\.)*)"`).FindAllStringSubmatch(string(text), -1) {
			for _, metric := range src.unknownMetrics(strings.ReplaceAll(query[1], `\"`, `"`)) {
				t.Errorf("%s uses %s, which the code does not export", path, metric)
			}
		}
	}
	if len(src.unknownMetrics(`sum(rate(ringfence_dialer_dreams_total[5m]))`)) != 1 {
		t.Error("unknown does not report a metric that does not exist")
	}
}

// The inhibit rules must silence only alerts on causes. An alert on a symptom (an effect that
// customers notice) must always fire.
func TestAlertmanager_InhibitsOnlyAlertsOnCauses(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("alertmanager.yml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	symptoms := []string{"CallsExpired", "DialQueueStuck", "WebhookQueueStuck"}
	for file, groups := range loadRules(t) {
		for _, a := range kit.Alerts(groups) {
			known[a.Alert] = file != "slos" && !slices.Contains(symptoms, a.Alert)
		}
	}
	found := 0
	for _, rule := range regexp.MustCompile(`target_matchers: \[alertname=~?"([^"]+)"\]`).FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(rule[1], "|") {
			if found++; !known[name] {
				t.Errorf("%s is inhibited: it does not exist, or it is an alert on a symptom", name)
			}
		}
	}
	if found == 0 {
		t.Error("alertmanager.yml has no inhibit rule")
	}
}
