package rejoining_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/polltest"
	"ringfence.dev/services/dialer/internal/rejoining"
	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store/past"
)

// TestGuard_WhatThisProcessDialledIsKnownToTheNextDatabase: its fences were lost with the server that had them, and no fact tells of them.
func TestGuard_WhatThisProcessDialledIsKnownToTheNextDatabase(t *testing.T) {
	t.Parallel()
	r := newRestored(t)
	queued, lost, again, busy, untouched := uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()
	for _, id := range []uuid.UUID{queued, again, busy, untouched} {
		r.order(id)
	}
	living := called(uuid.New(), uuid.New(), "ringing", 2).GetCall() // of a call that has ended since, as nobody tells
	err := past.New(r.pool).Settle(t.Context(), []past.Told{{RequestID: uuid.New(), WorkspaceID: r.workspace, State: request.Dialing,
		Call: &past.Call{ID: uuid.MustParse(living.GetCallId()), AgentID: uuid.New(), To: "+14155550404", Status: "ringing", Version: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	r.told(inbound(uuid.New(), "completed", 1)) // there is a topic
	r.marked(time.Second, "another")
	guard := rejoining.NewGuard(r.cfg, past.New(r.pool), func() {})
	for _, dial := range []struct {
		id uuid.UUID
		to phone.Number
	}{{queued, "+14155550401"}, {lost, "+14155550402"}, {again, "+14155550403"}, {uuid.New(), "+14155550403"}, {busy, "+14155550404"}} {
		guard.Dialling(request.Request{CallRequestID: dial.id, WorkspaceID: r.workspace, To: dial.to, AgentID: uuid.New()}, uuid.New(), "+15005550006")
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- guard.Run(ctx) }()
	begun := time.Now()
	polltest.Until(t, "the hold ends", func() bool { return r.mark().Stands() })
	if held := time.Since(begun); held < rejoining.Gather {
		t.Errorf("it was gone through after %s: another dialer that lives may not have looked at it yet", held)
	}
	stop()
	<-done
	for _, row := range []struct {
		what   string
		id     uuid.UUID
		state  string
		fences int
	}{
		{"what it dialled, and is queued here", queued, "dialing", 1}, {"what it dialled, and was never here", lost, "dialing", 1},
		{"what it dialled before another to that number", again, "failed", 0}, {"what it dialled, where another call lives here", busy, "failed", 0},
		{"what nobody dialled", untouched, "queued", 0},
	} {
		if state, fences := r.state(row.id); state != row.state {
			t.Errorf("%s: state = %v, want %v", row.what, state, row.state)
		} else if fences != row.fences {
			t.Errorf("%s: fences = %v, want %v", row.what, fences, row.fences)
		}
	}
	if r.order(lost) {
		t.Error("a request that was dialled was queued when it came again")
	}
}
