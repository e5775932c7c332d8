package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
			if err != nil || string(got) != want {
				t.Errorf("%s is not what deploy/prometheus/internal/alert gives (%v): go run ./deploy/prometheus", path, err)
			}
		}
	}
}

// TestTrials_EveryAlertFiresAndGoes gives Prometheus' own tool a series for each alert.
func TestTrials_EveryAlertFiresAndGoes(t *testing.T) {
	t.Parallel()
	promtool := debian(t, "promtool")
	for _, group := range alert.Groups() {
		for _, a := range group.Alerts {
			if len(a.Trial) == 0 {
				t.Errorf("%s has no trial", a.Name)
			}
		}
		cmd := exec.CommandContext(t.Context(), promtool, "test", "rules", group.Name+".yml")
		cmd.Dir = "trials"
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", group.Name, err, said)
		}
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

const runbooks = "../runbooks/"

// TestRunbooks_OneForEachAlert holds alerts and pages one to one, and each link between pages.
func TestRunbooks_OneForEachAlert(t *testing.T) {
	t.Parallel()
	var alerts []string
	for _, group := range alert.Groups() {
		for _, a := range group.Alerts {
			alerts = append(alerts, a.Name)
		}
	}
	slices.Sort(alerts)
	alerts = slices.Compact(alerts) // a promise has two
	var pages []string
	for name, text := range pagesOf(t) {
		if name[0] >= 'A' && name[0] <= 'Z' && name != "README.md" {
			pages = append(pages, strings.TrimSuffix(name, ".md"))
			if !strings.HasPrefix(text, "# "+strings.TrimSuffix(name, ".md")+"\n") || !strings.Contains(text, "**What the customer feels.**") || !strings.Contains(text, "\n## Do\n") || !strings.Contains(text, "\n## Escalate\n") {
				t.Errorf("%s does not say what the customer feels, what to do, or when to escalate", name)
			}
		}
		for _, link := range regexp.MustCompile(`\]\(([A-Za-z-]+\.md)\)`).FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(runbooks + link[1]); err != nil {
				t.Errorf("%s leads to %s, which is not there", name, link[1])
			}
		}
	}
	slices.Sort(pages)
	if !slices.Equal(alerts, pages) {
		t.Errorf("alerts %v\nrunbooks %v", alerts, pages)
	}
}

func pagesOf(t *testing.T) map[string]string {
	t.Helper()
	found, err := filepath.Glob(runbooks + "*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(path)] = string(text)
	}
	return pages
}

// block is a fenced piece of a page.
func blocks(text, kind string) (lines []string) {
	for _, found := range regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		lines = append(lines, strings.Split(strings.TrimSpace(found[1]), "\n")...)
	}
	return lines
}

// TestRunbooks_EveryCommandExists holds each command of the alerts' pages against routes, make targets and the binaries' commands.
func TestRunbooks_EveryCommandExists(t *testing.T) {
	t.Parallel()
	src := source(t)
	asked := regexp.MustCompile(`"\$(ADMIN|BASE|PRIVATE)(/[^"?]*)`)
	made := regexp.MustCompile(`^make ([a-z]+)( SERVICE=([a-z-]+) TOPIC=([a-z0-9.-]+))?$`)
	own := regexp.MustCompile(`^([a-z-]+) (replay|verify|reconcile|reseal)( [a-z0-9.-]+)?$`)
	for name, text := range pagesOf(t) {
		if name[0] < 'A' || name[0] > 'Z' {
			continue
		}
		for _, line := range blocks(text, "sh") {
			switch {
			case asked.MatchString(line):
				if path := asked.FindStringSubmatch(line)[2]; !src.routes(path) {
					t.Errorf("%s asks %s, which nobody answers", name, path)
				}
			case made.MatchString(line):
				if target := made.FindStringSubmatch(line)[1]; !strings.Contains(src.makefile, "\n"+target+":") {
					t.Errorf("%s: there is no make %s", name, target)
				}
			case own.MatchString(line):
				found := own.FindStringSubmatch(line)
				if main := src.files["services/"+found[1]+"/cmd/"+found[1]+"/main.go"]; !strings.Contains(strings.ToLower(main), found[2]) {
					t.Errorf("%s: %s has no command %s", name, found[1], found[2])
				}
			default:
				t.Errorf("%s: nobody knows what %q is", name, line)
			}
		}
	}
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
