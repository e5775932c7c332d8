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

// afterFirstEvent lists counters that have no series before the first event, because the values of
// their labels are unknown.
var afterFirstEvent = []string{"ringfence_outbox_publish_errors_total", "ringfence_dialer_sip_refusals_total"}

// inventoryHead is the beginning of docs/reference/metrics.md.
const inventoryHead = `# Metrics

These are the metrics of all services, as ` + "`make observe`" + ` scraped them from the whole stack. ` +
	`The metrics of the Go runtime, of the process and of the Kafka client are not listed. ` +
	`No label contains an id, a phone number or a customer. The label sip_trunk contains the name of a SIP trunk.

| metric | type | meaning |
|---|---|---|
`

// compareInventory compares the metrics of the stack with docs/reference/metrics.md. It runs only
// in `make observe`, where every service runs with every feature. With RINGFENCE_METRICS=write it
// writes docs/reference/metrics.md instead.
func (p *prometheus) compareInventory(t *testing.T) {
	t.Helper()
	if !isFullRun() {
		return
	}
	var answer struct {
		Data map[string][]struct{ Type, Help string }
	}
	if err := p.client.Into(t.Context(), http.MethodGet, "/api/v1/metadata", nil, http.StatusOK, &answer); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for name, metadata := range answer.Data {
		if isLibraryMetric(name) || len(metadata) == 0 {
			continue
		}
		if metadata[0].Type == "counter" && !strings.HasSuffix(name, "_total") {
			name += "_total"
		}
		lines = append(lines, "| `"+name+"` | "+metadata[0].Type+" | "+strings.ReplaceAll(metadata[0].Help, "|", `\|`)+" |")
	}
	slices.Sort(lines)
	if os.Getenv(rewriting) == "write" {
		keep(t, inventory, inventoryHead+strings.Join(lines, "\n")+"\n")
		return
	}
	text, err := os.ReadFile(inventory)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("docs/reference/metrics.md does not list %s: RINGFENCE_METRICS=write make observe", line)
		}
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "| `"), "`")
		if strings.HasPrefix(line, "| `") && !slices.Contains(lines, line) && !slices.Contains(afterFirstEvent, name) {
			t.Errorf("docs/reference/metrics.md lists a metric that does not exist: %s", line)
		}
	}
}

var grows = regexp.MustCompile(`(?:rate|increase)\(([a-z_]+(?:\{[^}]*\})?)\[`)

// checkZeroCounters checks that each counter whose increase fires an alert exists with the value 0
// before its first event. Otherwise Prometheus would not count the first event as an increase.
func (p *prometheus) checkZeroCounters(t *testing.T) {
	t.Helper()
	var missing []query
	for _, groups := range loadRules(t) {
		for _, a := range kit.Alerts(groups) {
			for _, counter := range grows.FindAllStringSubmatch(a.Expr, -1) {
				q := query{"alert", a.Alert, counter[1]}
				if !strings.HasPrefix(q.expr, "ringfence_calls_ended_total") && (isFullRun() || !overSIP(q)) {
					missing = append(missing, q)
				}
			}
		}
	}
	err := kit.Until(t.Context(), kit.HangTimeout, "every counter in an alert has a series", func() (bool, error) {
		missing = p.empty(t, missing)
		return len(missing) == 0, nil
	})
	if err != nil {
		t.Errorf("%v: not %v", err, missing)
	}
}

// isLibraryMetric reports whether a metric comes from a library, not from Ringfence.
func isLibraryMetric(name string) bool {
	for _, prefix := range []string{"go_", "process_", "promhttp_", "kafka_buffered_", "kafka_connect", "kafka_disconnect", "kafka_fetch_", "kafka_produce_", "kafka_read_", "kafka_write_", "kafka_request_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
