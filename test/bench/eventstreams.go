package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/test/bench/internal/probe"
	"ringfence.dev/test/kit"
)

const (
	// eventStreams is the number of streams, each in its own workspace.
	eventStreams = 50
	// streamedCalls is the number of calls in progress while the CPU time is measured.
	streamedCalls = 64
	// streamRounds is the number of rounds. Each round measures without streams, and then with
	// streams.
	streamRounds = 2
	// goalStreamCPU limits the CPU time of a call while streams are open. It is a multiple of the CPU
	// time of a call without streams.
	goalStreamCPU = 1.1
	// goalStreamDelay limits the time from the commit of an event to its arrival in the stream. It is
	// a multiple of the time from the commit to the first byte of the event's webhook.
	goalStreamDelay = 1.0
)

// EventStreams measures the CPU time that open event streams add to a call. It also measures the
// time from the commit of an event to its arrival in a stream, and compares it to the webhook.
func EventStreams(ctx context.Context, h *CallStack) error {
	if err := h.streamCPU(ctx); err != nil {
		return err
	}
	return h.streamDelay(ctx)
}

func (h *CallStack) streamCPU(ctx context.Context) error {
	workspaces, err := h.workspaces(ctx, "streams", eventStreams)
	if err != nil {
		return err
	}
	for _, w := range workspaces {
		if _, err := w.Subscribe(ctx, h.Hooks); err != nil {
			return err
		}
	}
	var used [2]time.Duration // index 0: without streams, index 1: with streams
	var calls [2]int
	for range streamRounds {
		for i := range used {
			spent, n, err := h.callsWithStreams(ctx, workspaces, i == 1)
			if err != nil {
				return err
			}
			used[i], calls[i] = used[i]+spent, calls[i]+n
		}
	}
	if used[0] <= 0 || calls[0] == 0 || calls[1] == 0 {
		fmt.Println("  CPU time not measured: it takes Linux, a Postgres of this machine and calls that end")
		return nil
	}
	without, with := probe.MS(used[0])/float64(calls[0]), probe.MS(used[1])/float64(calls[1])
	fmt.Printf("  CPU a call without streams     %.2f ms (%d calls)\n", without, calls[0])
	fmt.Printf("  CPU a call with %d streams     %.2f ms (%d calls)   %.3f x   %s\n", eventStreams, with, calls[1],
		with/without, probe.AtMost(with/without, goalStreamCPU, "x"))
	return nil
}

// callsWithStreams returns the CPU time of the services, the broker and Postgres during one
// measurement, and the number of calls that ended during the measurement.
func (h *CallStack) callsWithStreams(
	ctx context.Context, workspaces []*kit.Workspace, open bool,
) (used time.Duration, calls int, err error) {
	if open {
		streams, err := h.openStreams(ctx, workspaces)
		if err != nil {
			return 0, 0, err
		}
		// The error is ignored, because the measurement of the delay reports a lost event.
		defer func() { _, _ = streams.close() }()
	}
	var k levelResult
	if err := h.runLevel(ctx, &k, workspaces, streamedCalls); err != nil {
		return 0, 0, err
	}
	if err := h.awaitEnded(ctx, workspaces, callsStuck); err != nil {
		return 0, 0, err
	}
	h.Landing.takeResult(k.numbers)
	return k.used.Sum() - k.used["clients"], k.counted, nil
}

// streamedEvents contains the arrival times of the events in open streams.
type streamedEvents struct {
	mu     sync.Mutex
	at     map[uuid.UUID]time.Time
	twice  int
	cancel context.CancelFunc
	ended  sync.WaitGroup
	faults []error
}

// openStreams opens one stream of each workspace.
func (h *CallStack) openStreams(ctx context.Context, workspaces []*kit.Workspace) (*streamedEvents, error) {
	within, cancel := context.WithCancel(ctx)
	s := &streamedEvents{at: map[uuid.UUID]time.Time{}, cancel: cancel, faults: make([]error, len(workspaces))}
	for i, w := range workspaces {
		transport := &http.Transport{Proxy: nil}
		client, err := openapi.NewClient(h.Stack.Demo.BaseURL, openapi.WithHTTPClient(&http.Client{Transport: transport}),
			openapi.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
				r.Header.Set("Authorization", "Bearer "+w.WriteKey)
				return nil
			}))
		if err != nil {
			cancel()
			return nil, err
		}
		s.ended.Go(func() {
			defer transport.CloseIdleConnections()
			s.faults[i] = openapi.FollowEvents(within, client, openapi.StreamEventsParams{}, s.receive)
		})
	}
	err := kit.Until(ctx, time.Minute, "the streams are open", func() (bool, error) {
		var open int
		err := h.db.QueryRow(ctx, countOpenStreams, ids(workspaces)).Scan(&open)
		return open == len(workspaces), err
	})
	if err != nil {
		_, ended := s.close()
		return nil, errors.Join(err, ended)
	}
	return s, nil
}

const countOpenStreams = `
SELECT count(*) FROM webhook_dispatcher.open_streams WHERE workspace_id = ANY ($1::uuid[]) AND expires_at > now()`

func (s *streamedEvents) receive(event openapi.StreamedEvent) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.at[event.ID]; known {
		s.twice++
		return nil
	}
	s.at[event.ID] = now
	return nil
}

func (s *streamedEvents) received() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// close ends the streams and returns the arrival times.
func (s *streamedEvents) close() (map[uuid.UUID]time.Time, error) {
	s.cancel()
	s.ended.Wait()
	return s.at, errors.Join(s.faults...)
}

// storedEvents reads when each event of a workspace was inserted. The commit follows shortly after.
const storedEvents = `
SELECT event_id, ingested_at FROM webhook_dispatcher.stream_events WHERE workspace_id = $1::uuid`

func (h *CallStack) streamDelay(ctx context.Context) error {
	workspaces, err := h.workspaces(ctx, "stream delay", 1)
	if err != nil {
		return err
	}
	w := workspaces[0]
	if _, err := w.Subscribe(ctx, h.Hooks); err != nil {
		return err
	}
	streams, err := h.openStreams(ctx, workspaces)
	if err != nil {
		return err
	}
	sent, err := postSteadily(ctx, h.Each, w)
	if err == nil {
		err = kit.Until(ctx, time.Minute, "every event arrives", func() (bool, error) {
			return len(h.Hooks.Deliveries(w.ID)) >= 3*len(sent) && streams.received() >= 3*len(sent), nil
		})
	}
	streamed, ended := streams.close()
	if err := errors.Join(err, ended); err != nil {
		return err
	}
	rows, err := h.db.Query(ctx, storedEvents, w.ID)
	if err != nil {
		return err
	}
	stored := map[uuid.UUID]time.Time{}
	var id uuid.UUID
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&id, &at}, func() error { stored[id] = at; return nil }); err != nil {
		return err
	}
	var toStream, toWebhook []time.Duration
	for _, d := range h.Hooks.Deliveries(w.ID) {
		event, err := uuid.Parse(d.EventID)
		if err != nil {
			return err
		}
		if arrived, ok := streamed[event]; ok {
			toStream = append(toStream, arrived.Sub(stored[event]))
			toWebhook = append(toWebhook, d.At.Sub(stored[event]))
		}
	}
	if len(toStream) == 0 {
		return errNothing
	}
	times := float64(probe.Quantile(toStream, 0.5)) / float64(probe.Quantile(toWebhook, 0.5))
	fmt.Printf("  stored → stream                %s (%d events, %d twice)\n", probe.Spread(toStream), len(toStream),
		streams.twice)
	fmt.Printf("  stored → webhook               %s\n", probe.Spread(toWebhook))
	fmt.Printf("    p50 of the stream            %.2f x   %s\n", times, probe.AtMost(times, goalStreamDelay, "x"))
	return nil
}
