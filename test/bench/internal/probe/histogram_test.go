package probe

import (
	"math"
	"strings"
	"testing"
)

const text = `# HELP other_seconds_bucket nothing of ours
other_seconds_bucket{le="1"} 7
ringfence_webhooks_claim_duration_seconds_bucket{le="0.001"} 10
ringfence_webhooks_claim_duration_seconds_bucket{le="0.005"} 90
ringfence_webhooks_claim_duration_seconds_bucket{le="0.01"} 100
ringfence_webhooks_claim_duration_seconds_bucket{le="+Inf"} %d
ringfence_webhooks_claim_duration_seconds_sum 0.5
ringfence_webhooks_claim_duration_seconds_count %d
`

func read(t *testing.T, count string) Histogram {
	t.Helper()
	got, err := Parse(strings.NewReader(strings.ReplaceAll(text, "%d", count)), "ringfence_webhooks_claim_duration_seconds")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestQuantile_InterpolatesInsideTheBucket(t *testing.T) {
	t.Parallel()
	for q, want := range map[float64]float64{0.05: 0.0005, 0.5: 0.003, 0.95: 0.0075, 1: 0.01} {
		if got := read(t, "100").Quantile(q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %g = %g, want %g", q, got, want)
		}
	}
	if got := read(t, "1000").Quantile(0.99); got != 0.01 {
		t.Errorf("beyond the last bound: %g, want that bound", got)
	}
	if got := (Histogram{}).Quantile(0.99); got != 0 {
		t.Errorf("of nothing: %g", got)
	}
}

func TestHistogram_DifferenceContainsOnlyLaterValues(t *testing.T) {
	t.Parallel()
	before, after := read(t, "100"), read(t, "100")
	after.buckets[0.001], after.buckets[0.005], after.buckets[0.01], after.buckets[math.Inf(1)] = 10, 90, 104, 104
	after.Count, after.sum = 104, 0.54
	since := after.Less(before)
	if got := since.Quantile(0.5); math.Abs(got-0.0075) > 1e-9 {
		t.Errorf("median = %g, want 0.0075", got)
	}
	if since.Count != 4 {
		t.Errorf("count = %g, want 4", since.Count)
	}
	if got := since.Mean(); math.Abs(got-0.01) > 1e-9 {
		t.Errorf("mean = %g, want 0.01", got)
	}
}

func TestParse_RefusesAMetricThatIsNotANumber(t *testing.T) {
	t.Parallel()
	if _, err := Parse(strings.NewReader("a_sum x\n"), "a"); err == nil {
		t.Error("no error")
	}
}
