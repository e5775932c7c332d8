package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/test/kit/sharedstack"
)

// streamLog contains the events that one client of the stream has received.
type streamLog struct {
	mu   sync.Mutex
	seen map[uuid.UUID]int
	// types contains the event types of each call in the order of their arrival.
	types map[string][]string
	ended int
}

func (l *streamLog) add(event openapi.StreamedEvent) error {
	var envelope struct {
		Data struct {
			CallID string `json:"call_id"`
		}
	}
	if err := json.Unmarshal(event.Data, &envelope); err != nil {
		return fmt.Errorf("read event %s: %w", event.ID, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen[event.ID]++
	l.types[envelope.Data.CallID] = append(l.types[envelope.Data.CallID], string(event.Type))
	if event.Type == openapi.EventTypeCallCompleted {
		l.ended++
	}
	return nil
}

func (l *streamLog) completed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

func (l *streamLog) typesOf(call string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.types[call])
}

// The test kills both replicas of gateway and webhook-dispatcher at random times, while a client
// follows the stream and calls are placed. The client resumes with the id of the last event. It
// must receive every event once and in order.
func TestKills_EventStreamLosesAndRepeatsNothing(t *testing.T) {
	rng, world := sharedstack.Seeded(t, 1), stack(t)
	w := tenant(t, world.Stack, world.Hooks, killCredit)
	api, err := openapi.NewClient(
		world.Demo.BaseURL,
		openapi.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+w.WriteKey)
			return nil
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	log := &streamLog{seen: map[uuid.UUID]int{}, types: map[string][]string{}}
	ctx, stop := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() { followed <- openapi.FollowEvents(ctx, api, openapi.StreamEventsParams{}, log.add) }()
	posts := 0
	post := func() (id string) {
		t.Helper()
		until(t, "a call is accepted", func() bool {
			status, body, err := w.API.Do(t.Context(), "POST", "/v1/calls", map[string]any{
				"agent_id":        w.AgentID,
				"to":              fmt.Sprintf("+1415555%02d%02d", posts/90%100, posts%90),
				"idempotency_key": fmt.Sprint("stream ", posts),
			})
			if err != nil || status != http.StatusAccepted && status != http.StatusOK {
				return false
			}
			var request struct{ ID string }
			err = json.Unmarshal(body, &request)
			id = request.ID
			return err == nil
		})
		posts++
		return id
	}
	// A new stream sends only later events. Therefore the test places calls until the stream receives
	// the end of a call.
	until(t, "the stream is open", func() bool {
		post()
		pause(t, 300*time.Millisecond)
		return log.completed() > 0
	})
	var requests []string
	for range sharedstack.Trials(5, 30) {
		for range 5 {
			requests = append(requests, post())
		}
		for _, name := range []string{"gateway", "webhook-dispatcher"} {
			pause(t, time.Duration(rng.IntN(300))*time.Millisecond)
			until(t, name+" is running", func() bool { return world.KillOne(name, rng.IntN(2)) })
		}
	}
	if err := world.AwaitReady(t.Context(), 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, id := range requests {
		var request struct {
			CallID string `json:"call_id"`
		}
		until(t, "the call exists", func() bool {
			err := w.API.Into(t.Context(), "GET", "/v1/call-requests/"+id, nil, http.StatusOK, &request)
			return err == nil && request.CallID != ""
		})
		want := []string{"call.ringing", "call.answered", "call.completed"}
		until(t, "the events of the call arrive", func() bool { return len(log.typesOf(request.CallID)) >= len(want) })
		if got := log.typesOf(request.CallID); !slices.Equal(got, want) {
			t.Errorf("events of call %s = %v, want %v", request.CallID, got, want)
		}
	}
	pause(t, time.Second) // a second copy of an event would arrive within this second
	stop()
	if err := <-followed; err != nil {
		t.Errorf("FollowEvents: %v", err)
	}
	for id, times := range log.seen {
		if times != 1 {
			t.Errorf("event %s arrived %d times, want once", id, times)
		}
	}
}
