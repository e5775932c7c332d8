package subscriptions

import (
	"fmt"
	"time"
)

// FailureRule says when an endpoint has failed for so much and so long that it is switched off (contract.md §5): all
// three must hold. Test deliveries do not count here.
type FailureRule struct {
	// Failures is how many attempts in a row failed.
	Failures int `env:"WEBHOOK_FAILED_AFTER_FAILURES" envDefault:"20" help:"failed attempts in a row, one of three that switch an endpoint off"`
	// For is how long they have been failing.
	Duration time.Duration `env:"WEBHOOK_FAILED_AFTER" envDefault:"15m" help:"how long they have been failing, the second of the three"`
	// Exhausted is how many deliveries used up all their attempts meanwhile.
	Exhausted int `env:"WEBHOOK_FAILED_AFTER_EXHAUSTED" envDefault:"3" help:"deliveries that used up all attempts, the third"`
}

// Health is how the deliveries of one subscription have gone since the last success.
type Health struct {
	// Failures and Exhausted count real deliveries only.
	Failures  int
	Exhausted int
	// Failing is the time since the first failure; zero when the last attempt succeeded.
	FailingFor time.Duration
}

// Met says that the rule switches the subscription off, and why.
func (r FailureRule) Met(h Health) (reason string, met bool) {
	if h.Failures < r.Failures || h.FailingFor < r.Duration || h.Exhausted < r.Exhausted {
		return "", false
	}
	return fmt.Sprintf("%d attempts in a row failed over %s and %d deliveries used up all their attempts.",
		h.Failures, h.FailingFor.Round(time.Second), h.Exhausted), true
}

// HalfMet says that a warning is due: half of each number is reached.
func (r FailureRule) HalfMet(h Health) bool {
	return 2*h.Failures >= r.Failures && 2*h.FailingFor >= r.Duration && 2*h.Exhausted >= r.Exhausted && h.Failures > 0
}
