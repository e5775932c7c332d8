package alerts

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
)

type prometheus struct{ client *kit.Client }

// startPrometheus starts a Prometheus that scrapes the private ports of the stacks. If Prometheus
// is not installed, it skips the test, or fails the test in CI.
func startPrometheus(t *testing.T, homes ...string) *prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatal("prometheus is not installed: apt-get install prometheus")
	}
	if err != nil {
		t.Skip("SKIPPED: prometheus is not installed: apt-get install prometheus")
	}
	dir := t.TempDir()
	shortRules(t, dir)
	keep(t, filepath.Join(dir, "prometheus.yml"), "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [\"rules-*.yml\"]\nscrape_configs:\n"+jobs(t, homes))
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "prometheus.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port), "--enable-feature=exemplar-storage", "--query.lookback-delta=10s", "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if output, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("prometheus: %s", output)
		}
	})
	p := &prometheus{client: kit.NewClient(fmt.Sprintf("http://127.0.0.1:%d", port), "")}
	await(t, "prometheus is ready", func() bool {
		status, _, err := p.client.Do(t.Context(), http.MethodGet, "/-/ready", nil)
		return err == nil && status == http.StatusOK
	})
	return p
}

func jobs(t *testing.T, homes []string) string {
	t.Helper()
	targets := map[string][]string{}
	for _, home := range homes {
		for name, port := range ports(t, home) {
			if service, _, private := strings.Cut(name, " private "); private {
				targets[service] = append(targets[service], fmt.Sprintf("127.0.0.1:%d", port))
			}
		}
	}
	var out strings.Builder
	for service, at := range targets {
		fmt.Fprintf(&out, "  - {job_name: %s, static_configs: [{targets: [%s]}]}\n", service, strings.Join(at, ", "))
	}
	return out.String()
}

func ports(t *testing.T, home string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(home, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	var state struct{ Ports map[string]int }
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}
	return state.Ports
}

func keep(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

type sample struct {
	Metric map[string]string
	Value  [2]any
}

func (s sample) number() bool {
	text, _ := s.Value[1].(string)
	return text != "" && text != "NaN"
}

func (p *prometheus) ask(ctx context.Context, query string) ([]sample, error) {
	var answer struct {
		Data struct{ Result []sample }
	}
	err := p.client.Into(ctx, http.MethodGet, "/api/v1/query?query="+url.QueryEscape(query), nil, http.StatusOK, &answer)
	return answer.Data.Result, err
}

// ruleName returns the name under which the tests list a rule: the alert's name, followed by
// "(ticket)" if the severity is ticket.
func ruleName(name, severity string) string {
	if severity == "ticket" {
		name += " (ticket)"
	}
	return name
}

// The states of an active alert. A pending alert becomes firing if its condition remains true.
const (
	firing = "firing"
	active = "pending|firing"
)

// rules returns the rules in a state, with the time since the rule's condition became true. It
// returns nil if the query failed.
func (p *prometheus) rules(ctx context.Context, state string) map[string]time.Duration {
	samples, err := p.ask(ctx, `time() - ALERTS_FOR_STATE and ignoring(alertstate) ALERTS{alertstate=~"`+state+`"}`)
	if err != nil {
		return nil
	}
	rules := map[string]time.Duration{}
	for _, s := range samples {
		text, _ := s.Value[1].(string)
		since, _ := time.ParseDuration(text + "s")
		name := ruleName(s.Metric["alertname"], s.Metric["severity"])
		rules[name] = max(rules[name], since.Round(time.Second))
	}
	return rules
}

func (p *prometheus) traces(ctx context.Context, metric string) []string {
	var answer struct {
		Data []struct {
			Exemplars []struct{ Labels map[string]string }
		}
	}
	now := time.Now()
	q := url.Values{"query": {metric}, "start": {fmt.Sprint(now.Add(-time.Minute).Unix())}, "end": {fmt.Sprint(now.Unix() + 1)}}
	if err := p.client.Into(ctx, http.MethodGet, "/api/v1/query_exemplars?"+q.Encode(), nil, http.StatusOK, &answer); err != nil {
		return nil
	}
	var ids []string
	for _, series := range answer.Data {
		for _, e := range series.Exemplars {
			ids = append(ids, e.Labels["trace_id"])
		}
	}
	return ids
}

func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	err := kit.Until(context.WithoutCancel(t.Context()), kit.HangTimeout, what, func() (bool, error) {
		return cond(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
