package realtime

import (
	"testing"
	"time"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
)

// The model ends a session after an hour, so the session must replace itself earlier, as often as
// necessary. A replacement must not count as a lost connection.
func TestSession_IsReplacedBeforeTheModelEndsIt(t *testing.T) {
	t.Parallel()
	if renewAfter >= time.Hour {
		t.Errorf("renewAfter = %v, want less than %v", renewAfter, time.Hour)
	} else if renewAfter <= agent.Longest {
		t.Errorf("renewAfter = %v, want more than %v", renewAfter, agent.Longest)
	}
	server := modeltest.NewRealtime(modeltest.RealtimeOptions{})
	t.Cleanup(server.Close)
	o := New(Config{URL: server.URL, Key: "k", Model: "m"}, ssrf.New(nil), nil)
	o.renewAfter = 200 * time.Millisecond
	s, err := o.Open(t.Context(), agent.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	s.Begin()
	ended := make(chan agent.Event, 1)
	go func() {
		var last agent.Event
		for last = range s.Events() { //nolint:revive // the test checks only the last event
		}
		ended <- last
	}()
	testkit.Until(t, "the session is renewed and has the transcript", func() bool {
		return len(server.Received("conversation.item.create")) >= 2
	})
	server.Cut() // after one lost connection, the session reconnects
	testkit.Until(t, "the fifth connection", func() bool { return server.Connections() >= 5 })
	s.Close()
	last := <-ended
	if last.Kind != agent.Closed {
		t.Errorf("last event = %s: %v", last.Kind, last.Err)
	}
}
