package realtime

import (
	"testing"
	"time"

	"ringfence.dev/libs/guard"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/realtime/realtimetest"
)

// The model ends a session after an hour. It is opened anew before, as often as need be, and that is no loss.
func TestSession_IsRenewedBeforeTheModelEndsIt(t *testing.T) {
	t.Parallel()
	if renewAfter >= time.Hour || renewAfter <= agent.Longest {
		t.Errorf("renewed after %s", renewAfter)
	}
	server := realtimetest.New(realtimetest.Options{})
	t.Cleanup(server.Close)
	o := New(Config{URL: server.URL, Key: "k", Model: "m"}, guard.New(nil), nil)
	o.renew = 30 * time.Millisecond
	s, err := o.Open(t.Context(), agent.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for server.Connections() < 4 {
			time.Sleep(time.Millisecond)
		}
		s.Close()
	}()
	var last agent.Event
	for last = range s.Events() { //nolint:revive // the last counts
	}
	if last.Kind != agent.Closed {
		t.Errorf("it ended with %s: %v", last.Kind, last.Err)
	}
}
