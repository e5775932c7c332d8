package alerts

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ringfence.dev/test/kit"
)

const (
	inventory = "../../docs/reference/metrics.md"
	rewriting = "RINGFENCE_METRICS"
)

// afterFirstEvent are counters that have no series before their first event: the values of their labels are not known.
var afterFirstEvent = []string{"ringfence_outbox_publish_errors_total", "ringfence_dialer_sip_refusals_total"}

// listed holds what the stack tells against the list of metrics, in make observe, which starts all that tells any; RINGFENCE_METRICS=write writes the list anew.
func (p *prometheus) listed(t *testing.T) {
	t.Helper()
	if !whole() {
		return
	}
	var answer struct {
		Data map[string][]struct{ Type, Help string }
	}
	if err := p.client.Into(t.Context(), http.MethodGet, "/api/v1/metadata", nil, http.StatusOK, &answer); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for name, told := range answer.Data {
		if theirs(name) || len(told) == 0 {
			continue
		}
		if told[0].Type == "counter" && !strings.HasSuffix(name, "_total") {
			name += "_total"
		}
		lines = append(lines, "| `"+name+"` | "+told[0].Type+" | "+strings.ReplaceAll(told[0].Help, "|", `\|`)+" |")
	}
	slices.Sort(lines)
	if os.Getenv(rewriting) == "write" {
		keep(t, inventory, "# Metrics\n\nWhat the services tell, scraped from the whole stack by `make observe`; those of Go, of the process and of the Kafka client are theirs. No label holds an id, a number or a customer; sip_trunk is the name that an operator gave a trunk.\n\n| metric | type | is |\n|---|---|---|\n"+strings.Join(lines, "\n")+"\n")
		return
	}
	text, err := os.ReadFile(inventory)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("METRICS.md does not list %s: RINGFENCE_METRICS=write make observe", line)
		}
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
		if strings.HasPrefix(line, "| `") && !slices.Contains(lines, line) && !slices.Contains(afterFirstEvent, name) {
			t.Errorf("METRICS.md lists what nobody tells: %s", line)
		}
	}
}

var grows = regexp.MustCompile(`(?:rate|increase)\(([a-z_]+(?:\{[^}]*\})?)\[`)

// standing holds the services to what alerts on growth need: their counters stand at zero before anything has happened, so that the first is seen. How calls end
// is an open set.
func (p *prometheus) standing(t *testing.T) {
	t.Helper()
	var missing []query
	for _, groups := range loadRules(t) {
		for _, a := range kit.Alerts(groups) {
			for _, counter := range grows.FindAllStringSubmatch(a.Expr, -1) {
				q := query{"alert", a.Alert, counter[1]}
				if !strings.HasPrefix(q.expr, "ringfence_calls_ended_total") && (whole() || !overSIP(q)) {
					missing = append(missing, q)
				}
			}
		}
	}
	err := kit.Until(t.Context(), kit.HangTimeout, "every counter that an alert looks at stands", func() (bool, error) {
		missing = p.empty(t, missing)
		return len(missing) == 0, nil
	})
	if err != nil {
		t.Errorf("%v: not %v", err, missing)
	}
}

// theirs are metrics that come with a library.
func theirs(name string) bool {
	for _, prefix := range []string{"go_", "process_", "promhttp_", "kafka_buffered_", "kafka_connect", "kafka_disconnect", "kafka_fetch_", "kafka_produce_", "kafka_read_", "kafka_write_", "kafka_request_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
