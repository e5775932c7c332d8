package dial_test

import (
	"maps"
	"testing"

	"ringfence.dev/services/dialer/internal/carrier"
)

// TestLateness_TellsWhatARequestWaitedFor: what a workspace's own limits hold back is not counted against the promise.
func TestLateness_TellsWhatARequestWaitedFor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, limits string
		want         map[string]uint64
	}{
		{"us", "", map[string]uint64{"no": 1, "limits": 0}},
		{"its own limits", `INSERT INTO rate_buckets (scope, version, tokens, own_limit_since, own_limit_seen)
			VALUES ($1::uuid::text, 1, 1, now() - interval '1 hour', now() + interval '1 hour')`,
			map[string]uint64{"no": 0, "limits": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			if tt.limits != "" {
				d.exec(tt.limits, d.request.WorkspaceID)
			}
			d.dial(&trunks{says: []func(carrier.Originate) error{takes}})
			if got := d.lateness(); !maps.Equal(got, tt.want) {
				t.Errorf("dialled by what they waited for: %v, want %v", got, tt.want)
			}
		})
	}
}

// lateness is how many were dialled, by what they waited for.
func (d *desk) lateness() map[string]uint64 {
	d.t.Helper()
	families, err := d.metrics.Gather()
	if err != nil {
		d.t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, family := range families {
		if family.GetName() == "ringfence_dialer_due_to_originate_seconds" {
			for _, metric := range family.GetMetric() {
				counts[metric.GetLabel()[0].GetValue()] = metric.GetHistogram().GetSampleCount()
			}
		}
	}
	return counts
}
