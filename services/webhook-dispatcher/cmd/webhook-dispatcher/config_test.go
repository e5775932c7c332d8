package main

import (
	"strings"
	"testing"
	"time"

	"ringfence.dev/services/webhook-dispatcher/internal/dispatch"
	"ringfence.dev/services/webhook-dispatcher/internal/retention"
)

// An attempt can start up to store.StartLimit after its claim. The attempt must end before the
// lease of the claim ends.
func TestConfig_RefusesALeaseThatIsShorterThanAnAttempt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lease, timeout time.Duration
		ok             bool
	}{
		{20 * time.Second, 10 * time.Second, true},
		{5 * time.Second, 4 * time.Second, true},
		{3 * time.Second, 2 * time.Second, true},
		{12 * time.Second, 10 * time.Second, false},
		{60 * time.Second, 55 * time.Second, true},
		{60 * time.Second, 56 * time.Second, false},
	} {
		cfg := Config{
			Dispatch: dispatch.Config{
				RetryDelays: []time.Duration{time.Second}, Lease: c.lease, Poll: time.Second, MaxInFlight: 1,
			},
			Sending: dispatch.ClientConfig{Timeout: c.timeout, MaxPerHost: 1}, Retention: retention.Config{Keep: 24 * time.Hour},
		}
		err := cfg.check()
		if (err == nil) != c.ok {
			t.Errorf("lease %s, timeout %s: check error = %v, want success = %v", c.lease, c.timeout, err, c.ok)
		} else if err != nil && !strings.Contains(err.Error(), "WEBHOOK_LEASE") {
			t.Errorf(`lease %s, timeout %s: err = %q, want it to contain "WEBHOOK_LEASE"`, c.lease, c.timeout, err.Error())
		}
	}
}
