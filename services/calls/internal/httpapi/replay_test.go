package httpapi_test

import (
	"net/http"
	"testing"
)

const replayed = "Idempotency-Replayed"

func TestCreate_ReplayHasTheIdempotencyReplayedHeader(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.do(http.MethodPost, "/v1/calls", r.order("idempotency_key", "k"))
	if first.status != http.StatusAccepted {
		t.Fatalf("first POST = %d, want 202: %v", first.status, first.body)
	}
	if got := first.header.Get(replayed); got != "" {
		t.Errorf("%s of the first POST = %q, want none", replayed, got)
	}
	again := r.do(http.MethodPost, "/v1/calls", r.order("idempotency_key", "k"))
	if again.status != http.StatusOK {
		t.Errorf("replay = %d, want 200", again.status)
	}
	if got := again.header.Get(replayed); got != "true" {
		t.Errorf("%s of the replay = %q, want true", replayed, got)
	}
	unkeyed := r.do(http.MethodPost, "/v1/calls", r.order())
	if got := unkeyed.header.Get(replayed); got != "" {
		t.Errorf("%s of a POST without a key = %q, want none", replayed, got)
	}
}

func TestCreate_ReplayWithAnotherBodyIsCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want(http.StatusAccepted, http.MethodPost, "/v1/calls", r.order("idempotency_key", "k"))
	r.want(http.StatusOK, http.MethodPost, "/v1/calls", r.order("idempotency_key", "k"))
	if got := r.counter("ringfence_calls_mismatched_replays_total"); got != 0 {
		t.Errorf("mismatched replays after an equal body = %v, want 0", got)
	}
	r.want(http.StatusOK, http.MethodPost, "/v1/calls", r.order("idempotency_key", "k", "to", number(7)))
	if got := r.counter("ringfence_calls_mismatched_replays_total"); got != 1 {
		t.Errorf("mismatched replays after another number = %v, want 1", got)
	}
}

func (r *rig) counter(name string) float64 {
	r.t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	r.t.Fatalf("metric %s does not exist", name)
	return 0
}
