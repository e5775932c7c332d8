package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"ringfence.dev/deploy/prometheus/internal/alert"
)

// TestRules_AreWhatTheSourceGives holds the committed files against the generator.
func TestRules_AreWhatTheSourceGives(t *testing.T) {
	t.Parallel()
	for _, group := range alert.Groups() {
		for path, want := range map[string]string{
			"rules/" + group.Name + ".yml":  alert.Render(group, alert.Options{}),
			"trials/" + group.Name + ".yml": alert.Trials(group, "../rules/"+group.Name+".yml"),
		} {
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != want {
				t.Errorf("%s differs from deploy/prometheus/internal/alert: go run ./deploy/prometheus", path)
			}
		}
	}
}

// TestTrials_EveryAlertFiresAndClears runs promtool with a series for each alert.
func TestTrials_EveryAlertFiresAndClears(t *testing.T) {
	t.Parallel()
	promtool := debian(t, "promtool")
	for _, group := range alert.Groups() {
		t.Run(group.Name, func(t *testing.T) {
			t.Parallel()
			for _, a := range group.Alerts {
				if len(a.Trial) == 0 {
					t.Errorf("%s has no trial", a.Name)
				}
			}
			cmd := exec.CommandContext(t.Context(), promtool, "test", "rules", group.Name+".yml")
			cmd.Dir = "trials"
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("promtool test rules: %v\n%s", err, out)
			}
		})
	}
}

// TestConfig_IsPrometheusOwn lets the tools read what an SRE would start with.
func TestConfig_IsPrometheusOwn(t *testing.T) {
	t.Parallel()
	promtool, amtool := debian(t, "promtool"), debian(t, "amtool")
	for _, check := range [][]string{
		{promtool, "check", "config", "prometheus.yml"},
		{promtool, "check", "config", "local.yml"},
		{amtool, "check-config", "alertmanager.yml"},
	} {
		if said, err := exec.CommandContext(t.Context(), check[0], check[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", strings.Join(check[1:], " "), err, said)
		}
	}
}

// debian is a program of Debian's packages prometheus and prometheus-alertmanager (make peers).
func debian(t *testing.T, name string) string {
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

// TestMetrics_EveryOneIsInTheCode holds each metric of rules and pages against what the services register.
func TestMetrics_EveryOneIsInTheCode(t *testing.T) {
	t.Parallel()
	src := source(t)
	for _, group := range alert.Groups() {
		for _, a := range group.Alerts {
			for _, metric := range src.unknown(a.Expr) {
				t.Errorf("%s looks at %s, which nobody tells", a.Name, metric)
			}
		}
	}
	for name, text := range pagesOf(t) {
		for _, query := range blocks(text, "promql") {
			for _, metric := range src.unknown(query) {
				t.Errorf("%s looks at %s, which nobody tells", name, metric)
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
			for _, metric := range src.unknown(strings.ReplaceAll(query[1], `\"`, `"`)) {
				t.Errorf("%s looks at %s, which nobody tells", path, metric)
			}
		}
	}
	if len(src.unknown(`sum(rate(ringfence_dialer_dreams_total[5m]))`)) != 1 {
		t.Error("a metric that is not there is not missed")
	}
}

// TestAlertmanager_SilencesNoSymptom: what a cause silences is an alert of ours, and none on what customers feel.
func TestAlertmanager_SilencesNoSymptom(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("alertmanager.yml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, group := range alert.Groups() {
		for _, a := range group.Alerts {
			known[a.Name] = group.Name != "promises" && a.Name != "CallsExpired" && a.Name != "DialQueueStuck" && a.Name != "WebhookQueueStuck"
		}
	}
	found := 0
	for _, rule := range regexp.MustCompile(`target_matchers: \[alertname=~?"([^"]+)"\]`).FindAllStringSubmatch(string(text), -1) {
		for name := range strings.SplitSeq(rule[1], "|") {
			if found++; !known[name] {
				t.Errorf("%s is silenced: it is none of ours, or what a customer feels", name)
			}
		}
	}
	if found == 0 {
		t.Error("no rule was read")
	}
}
