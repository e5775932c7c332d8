package subscriptions_test

import (
	"testing"
	"time"

	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

func TestFailureRule_IsMetIfAllThreeThresholdsAreReached(t *testing.T) {
	t.Parallel()
	rule := subscriptions.FailureRule{Failures: 20, Duration: 15 * time.Minute, Exhausted: 3}
	for name, tt := range map[string]struct {
		health     subscriptions.Health
		half, full bool
	}{
		"healthy": {health: subscriptions.Health{}},
		"many failures in a second": {health: subscriptions.Health{Failures: 500, Exhausted: 9,
			FailingFor: time.Second}},
		"few failures in a long time": {health: subscriptions.Health{Failures: 5, Exhausted: 1,
			FailingFor: time.Hour}},
		"no delivery that used all attempts": {health: subscriptions.Health{Failures: 40, Exhausted: 0,
			FailingFor: time.Hour}},
		"half of each threshold": {health: subscriptions.Health{Failures: 10, Exhausted: 2,
			FailingFor: 450 * time.Second}, half: true},
		"one failure below the threshold": {health: subscriptions.Health{Failures: 19, Exhausted: 3,
			FailingFor: 15 * time.Minute}, half: true},
		"one delivery below the threshold": {health: subscriptions.Health{Failures: 20, Exhausted: 2,
			FailingFor: 15 * time.Minute}, half: true},
		"a nanosecond below the duration threshold": {health: subscriptions.Health{Failures: 20, Exhausted: 3,
			FailingFor: 15*time.Minute - 1}, half: true},
		"exactly all three thresholds": {health: subscriptions.Health{Failures: 20, Exhausted: 3,
			FailingFor: 15 * time.Minute}, half: true, full: true},
		"far above all thresholds": {health: subscriptions.Health{Failures: 900, Exhausted: 200,
			FailingFor: 24 * time.Hour}, half: true, full: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reason, full := rule.Met(tt.health)
			if full != tt.full {
				t.Errorf("Met = %v, want %v", full, tt.full)
			}
			if hasReason := reason != ""; hasReason != tt.full {
				t.Errorf("Met: reason = %q, want one only if the rule is met", reason)
			}
			if half := rule.HalfMet(tt.health); half != tt.half {
				t.Errorf("HalfMet = %v, want %v", half, tt.half)
			}
		})
	}
}
