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

// The test kills both replicas of gateway and webhook-dispatcher at random times, while a client
// follows the stream and calls are placed. The client resumes with the id of the last event. It must
// receive every event once and in order.
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
	// The stream starts with the next event, so the first call shows that it is open.
	posts := 0
	post := func() {
		t.Helper()
		until(t, "a call is accepted", func() bool {
			status, _, err := w.API.Do(t.Context(), "POST", "/v1/calls", map[string]any{
				"agent_id":        w.AgentID,
				"to":              fmt.Sprintf("+1415555%02d%02d", posts/90%100, posts%90),
				"idempotency_key": fmt.Sprint("stream ", posts),
			})
			return err == nil && (status == http.StatusAccepted || status == http.StatusOK)
		})
		posts++
	}
	until(t, "the stream is open", func() bool {
		post()
		pause(t, 300*time.Millisecond)
		return log.completed() > 0
	})
	first := posts
	for range sharedstack.Trials(5, 30) {
		for range 5 {
			post()
		}
		for _, name := range []string{"gateway", "webhook-dispatcher"} {
			pause(t, time.Duration(rng.IntN(300))*time.Millisecond)
			until(t, name+" is running", func() bool { return world.KillOne(name, rng.IntN(2)) })
		}
	}
	if err := world.AwaitReady(t.Context(), 2*time.Minute); err != nil {
		t.Fatal(err)
	}
	ended := posts - first
	until(t, "the last event arrives", func() bool { return log.completed() >= ended+1 })
	pause(t, time.Second) // an event that is sent twice arrives by then
	stop()
	if err := <-followed; err != nil {
		t.Errorf("FollowEvents: %v", err)
	}
	for id, times := range log.seen {
		if times != 1 {
			t.Errorf("event %s arrived %d times, want once", id, times)
		}
	}
	order := []string{"call.ringing", "call.answered", "call.completed"}
	whole := 0
	for call, types := range log.types {
		if slices.Equal(types, order) {
			whole++
			continue
		}
		if !slices.Equal(types, order[len(order)-len(types):]) { // the stream started during this call
			t.Errorf("events of call %s = %v, want %v", call, types, order)
		}
	}
	if whole < ended {
		t.Errorf("calls with all events = %d, want at least %d", whole, ended)
	}
}
