package dial_test

import (
	"maps"
	"testing"

	"ringfence.dev/services/dialer/internal/carrier"
)

// The SLO of dial lateness does not include delays that a workspace's own limits cause.
func TestLateness_DelayByWorkspaceLimitsIsCountedUnderItsOwnLabel(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, limits string
		want         map[string]uint64
	}{
		{"no limit of the workspace", "", map[string]uint64{"no": 1, "limits": 0, "pause": 0}},
		{"a limit of the workspace", `INSERT INTO rate_buckets (scope, version, tokens, own_limit_since, own_limit_seen)
			VALUES ($1::uuid::text, 1, 1, now() - interval '1 hour', now() + interval '1 hour')`,
			map[string]uint64{"no": 0, "limits": 1, "pause": 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			if tt.limits != "" {
				d.exec(tt.limits, d.request.WorkspaceID)
			}
			d.dialAll(&fakeCarrier{answers: []func(carrier.Originate) error{accept}})
			if got := d.lateness(); !maps.Equal(got, tt.want) {
				t.Errorf("dialed requests by label held = %v, want %v", got, tt.want)
			}
		})
	}
}

func (d *fixture) lateness() map[string]uint64 {
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
