package alerts

import (
	"context"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

// isFullRun reports whether RINGFENCE_OBSERVE is set, as in `make observe`. Without it, the test
// injects only the first fault.
func isFullRun() bool { return os.Getenv("RINGFENCE_OBSERVE") != "" }

// isSelected reports whether the test injects the fault. RINGFENCE_OBSERVE is "whole" or a pattern
// of fault names.
func (f fault) isSelected() bool {
	switch pattern := os.Getenv("RINGFENCE_OBSERVE"); pattern {
	case "":
		return f.always
	case "whole":
		return true
	default:
		return regexp.MustCompile(pattern).MatchString(f.name)
	}
}

func TestObserving_PanelsHaveDataAndFaultsFireAlerts(t *testing.T) {
	w := startWorld(t)
	homes := []string{w.home}
	if isFullRun() { // the panels about audio need SIP calls, which only the second stack places
		w.secondStack = w.second(t)
		homes = append(homes, w.secondStack.home)
	}
	p := startPrometheus(t, homes...)
	p.checkZeroCounters(t)
	ctx, rest := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.load(ctx, 50*time.Millisecond) }()
	defer func() { rest(); <-done }()

	all := queries(t)
	asked := slices.DeleteFunc(slices.Clone(all), func(q query) bool { return !isFullRun() && overSIP(q) })
	still := asked
	defer func() {
		for _, q := range still {
			t.Errorf("%s: %s: no data: %s", q.board, q.panel, q.expr)
		}
	}()
	await(t, "every panel has had data", func() bool {
		still = p.empty(t, still)
		return len(still) == 0 || t.Context().Err() != nil
	})
	t.Logf("%d of the %d queries of all dashboards return data", len(asked), len(all))
	w.checkExemplars(t, p)
	p.compareInventory(t)
	for _, f := range faults() {
		if f.isSelected() && os.Getenv(rewriting) == "" {
			f.checkAlerts(t, w, p)
		}
	}
}

// checkExemplars checks three histograms. An exemplar of each must contain the id of a recorded
// trace.
func (w *testStack) checkExemplars(t *testing.T, p *prometheus) {
	t.Helper()
	for _, metric := range []string{"ringfence_http_request_duration_seconds_bucket", "ringfence_dialer_due_to_originate_seconds_bucket", "ringfence_webhooks_terminal_event_to_delivery_seconds_bucket"} {
		await(t, "an exemplar of "+metric+" leads to a trace", func() bool {
			for _, id := range p.traces(t.Context(), metric) {
				if len(w.traces.Spans(func(s kit.Span) bool { return s.TraceID == id })) > 0 {
					return true
				}
			}
			return false
		})
	}
}
