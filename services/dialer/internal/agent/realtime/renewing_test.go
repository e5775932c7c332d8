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
	o.renew = 200 * time.Millisecond
	s, err := o.Open(t.Context(), agent.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	s.Begin()
	go func() {
		for len(server.Received("conversation.item.create")) < 2 { // renewed, and told what was said
			time.Sleep(time.Millisecond)
		}
		server.Cut() // the one loss that is made good
		for server.Connections() < 5 {
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
