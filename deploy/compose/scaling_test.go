package compose_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"ringfence.dev/libs/kafka"
)

// lagMetric is the metric on which consumers scale (libs/kafka): the number of records of a
// partition that the group has not committed.
const lagMetric = "ringfence_kafka_consumer_lag_records"

// A consumer must scale on its lag in the topics with the most partitions. Compacted topics are
// excluded, because they contain settings, which change rarely.
func TestCharts_ConsumersScaleOnTheirLag(t *testing.T) {
	t.Parallel()
	table := strings.Join(lines(t, "docs/deploy/helm.md"), "\n")
	for _, name := range services {
		var want, got []string
		widest := int32(0)
		for _, topic := range kafka.Catalogue() {
			if slices.Contains(kafka.Readers(topic.Name), name) {
				widest = max(widest, topic.Partitions)
			}
		}
		for _, topic := range kafka.Catalogue() {
			if slices.Contains(kafka.Readers(topic.Name), name) && topic.Partitions == widest && !topic.Compacted {
				want = append(want, topic.Name)
			}
		}
		for _, by := range valuesOf(t, name).Autoscaling.By {
			if by.Metric != lagMetric {
				continue
			}
			topic, known := kafka.Named(by.Labels["topic"])
			got = append(got, topic.Name)
			if !known {
				t.Errorf("%s scales on the topic %q, which is not in the catalogue", name, by.Labels["topic"])
			}
			wantEqual(t, name+": group of the lag", by.Labels["group"], name)
			wantEqual(t, name+": labels of the lag", len(by.Labels), 2)
			wantEqual(t, name+": partitions of "+topic.Name, by.Partitions, int(topic.Partitions))
			wantEqual(t, name+": rest of each divided by ten", by.Each%10, 0)
			// The documented rate is per second. The target is the number of records in ten seconds.
			if row := fmt.Sprintf("| %s | `%s` | %d |", name, topic.Name, by.Each/10); !strings.Contains(table, row) {
				t.Errorf("docs/deploy/helm.md has no row %q", row)
			}
		}
		same(t, name+" scales on the records of", got, want)
	}
}

// The rules of prometheus-adapter must contain one query for each metric of each HPA, in the HPA's
// namespace.
func TestCharts_AdapterHasEveryScalingMetric(t *testing.T) {
	t.Parallel()
	asked := 0
	for _, name := range services {
		for _, by := range valuesOf(t, name).Autoscaling.By {
			if asked++; adapterQuery(t, by.Metric, `namespace="ringfence"`) == "" {
				t.Errorf("%s scales on %s, which the adapter does not serve, or not once", name, by.Metric)
			}
		}
	}
	if asked < 5 {
		t.Errorf("only %d metrics are scaled on", asked)
	}
}

// adapterQuery returns the query that prometheus-adapter generates for a metric from the rules of
// helm/environments. It returns "" unless exactly one rule matches.
func adapterQuery(t *testing.T, metric, matchers string) (query string) {
	t.Helper()
	var adapter struct {
		Rules struct {
			External []struct {
				Series    string `yaml:"seriesQuery"`
				Query     string `yaml:"metricsQuery"`
				Resources struct {
					Overrides map[string]struct{ Resource string }
				}
			}
		}
	}
	parsed(t, "helm/environments/prometheus-adapter.yaml", &adapter)
	for _, rule := range adapter.Rules.External {
		names := regexp.MustCompile(`^\{__name__=~"(\^[^"]+\$)",namespace!=""\}$`).FindStringSubmatch(rule.Series)
		if names == nil {
			t.Fatal("the rule: names = nil, want a value")
		}
		if rule.Resources.Overrides["namespace"].Resource != "namespace" {
			t.Fatalf(`the rule: rule.Resources.Overrides["namespace"].Resource = %q, want "namespace"`,
				rule.Resources.Overrides["namespace"].Resource)
		}
		if !regexp.MustCompile(names[1]).MatchString(metric) {
			continue
		}
		text, err := template.New("").Delims("<<", ">>").Parse(rule.Query)
		var made strings.Builder
		if err == nil {
			err = text.Execute(&made, map[string]string{"Series": metric, "LabelMatchers": matchers})
		}
		if err != nil {
			t.Fatalf("Parse: %v", err)
		}
		if query != "" {
			t.Fatalf("query = %q, want it empty; metric = %s", query, metric)
		}
		query = made.String()
	}
	return query
}

// All replicas of a consumer export the lag of all partitions of the group, so a query must count
// each partition once. For an age metric, the query must return the highest age of all replicas.
func TestCharts_ScalingMetricCountsEachPartitionOnce(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("SKIPPED: promtool is not installed: apt-get install prometheus")
	}
	const trial = `
tests:
  - interval: 1m
    input_series:
      - {series: '%[1]s{namespace="ringfence",pod="a",group="calls",topic="dial-events.v1",partition="0"}', values: '5'}
      - {series: '%[1]s{namespace="ringfence",pod="b",group="calls",topic="dial-events.v1",partition="0"}', values: '4'}
      - {series: '%[1]s{namespace="ringfence",pod="a",group="calls",topic="dial-events.v1",partition="1"}', values: '7'}
      - {series: '%[1]s{namespace="ringfence",pod="b",group="calls",topic="dial-events.v1",partition="1"}', values: '7'}
      - {series: '%[1]s{namespace="ringfence",pod="a",group="calls",topic="wallet-events.v1",partition="0"}', values: '1000'}
      - {series: '%[1]s{namespace="ringfence",pod="c",group="billing-wallet",topic="dial-events.v1",partition="0"}', values: '1000'}
      - {series: '%[1]s{namespace="another",pod="a",group="calls",topic="dial-events.v1",partition="0"}', values: '1000'}
      - {series: 'ringfence_webhooks_oldest_due_seconds{namespace="ringfence",pod="a"}', values: '3'}
      - {series: 'ringfence_webhooks_oldest_due_seconds{namespace="ringfence",pod="b"}', values: '8'}
    promql_expr_test:
      - {expr: '%[2]s', eval_time: 0m, exp_samples: [{labels: '{}', value: 12}]}
      - {expr: '%[3]s', eval_time: 0m, exp_samples: [{labels: '{}', value: 8}]}
`
	file := filepath.Join(t.TempDir(), "adapter.yml")
	text := fmt.Sprintf(
		trial, lagMetric,
		adapterQuery(t, lagMetric, `group="calls",topic="dial-events.v1",namespace="ringfence"`),
		adapterQuery(t, "ringfence_webhooks_oldest_due_seconds", `namespace="ringfence"`),
	)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}
