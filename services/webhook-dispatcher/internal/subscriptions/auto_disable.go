package subscriptions

import (
	"fmt"
	"time"
)

// FailureRule decides when a failing subscription is set to Failed. All three thresholds must be
// reached. Test deliveries are not counted
// (docs/reference/api/webhooks.md#failure-counter-and-automatic-disabling).
type FailureRule struct {
	// Failures is the minimum number of consecutive failed attempts.
	Failures int `env:"WEBHOOK_FAILED_AFTER_FAILURES" envDefault:"20" help:"Number of consecutive failed attempts that disables a subscription (status failed), if the other two WEBHOOK_FAILED_AFTER thresholds are reached too."`
	// Duration is the minimum time since the first of these failures.
	Duration time.Duration `env:"WEBHOOK_FAILED_AFTER" envDefault:"15m" help:"Time since the first of the consecutive failed attempts that disables a subscription (status failed), if the other two WEBHOOK_FAILED_AFTER thresholds are reached too."`
	// Exhausted is the minimum number of deliveries since the last success whose last permitted
	// attempt failed.
	Exhausted int `env:"WEBHOOK_FAILED_AFTER_EXHAUSTED" envDefault:"3" help:"Number of deliveries that used all their attempts since the last success that disables a subscription (status failed), if the other two WEBHOOK_FAILED_AFTER thresholds are reached too."`
}

// Health counts the failures of a subscription since its last success.
type Health struct {
	// Failures is the number of failed attempts. Exhausted is the number of deliveries whose last
	// permitted attempt failed. Test deliveries are not counted.
	Failures  int
	Exhausted int
	// FailingFor is the time since the first failure. It is zero if the last attempt succeeded.
	FailingFor time.Duration
}

// Met reports whether every threshold of the rule is reached. If so, the status of the subscription
// must become Failed. reason is a sentence for the operator. It is empty if the rule is not met.
func (r FailureRule) Met(h Health) (reason string, met bool) {
	if h.Failures < r.Failures || h.FailingFor < r.Duration || h.Exhausted < r.Exhausted {
		return "", false
	}
	return fmt.Sprintf("%d attempts in a row failed over %s and %d deliveries used up all their attempts.",
		h.Failures, h.FailingFor.Round(time.Second), h.Exhausted), true
}

// HalfMet reports whether half of each threshold is reached. The caller then logs a warning for the
// operator.
func (r FailureRule) HalfMet(h Health) bool {
	return 2*h.Failures >= r.Failures && 2*h.FailingFor >= r.Duration && 2*h.Exhausted >= r.Exhausted && h.Failures > 0
}
