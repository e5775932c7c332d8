// Package eventstream sends the events of a workspace to the clients of GET /v1/events, in the
// order of their positions.
package eventstream

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// MaxStreams is the maximum number of open streams of a workspace on all replicas
// (docs/reference/api/webhooks.md#event-stream).
const MaxStreams = 10

// maxReplicaStreams limits the open streams of a replica, because each stream can have a page of
// events in memory.
const maxReplicaStreams = 1000

const (
	// minPoll and maxPoll limit the time between two polls for new events. After a poll that found
	// events, the time is minPoll. After a poll that found no events, the time doubles. Events that
	// this replica stored wake their streams without a poll.
	minPoll, maxPoll = 25 * time.Millisecond, 200 * time.Millisecond
	// idlePoll is the time between two reads of the database's timeline id while no stream is open.
	idlePoll = 5 * time.Second
	// errorPoll is the time between two polls while the database is not available.
	errorPoll = time.Second
	// lease is the time for which the streams of a crashed replica still count.
	lease         = 15 * time.Second
	renewInterval = 5 * time.Second
	// maxReads limits the number of concurrent reads, so that enough database connections remain
	// for the deliveries.
	maxReads = 4
)

// Hub contains the open streams of this replica and wakes them when their workspace has new events.
// It polls the database, because LISTEN does not work behind PgBouncer in transaction mode. It is
// safe for concurrent use.
type Hub struct {
	store *store.Store
	reads chan struct{}
	open  prometheus.Gauge
	sent  prometheus.Counter
	// These fields have the values of the constants, except in tests.
	commentInterval, writeTimeout time.Duration
	maxStreams                    int

	mu sync.Mutex
	// streams contains the open streams of each workspace. seen contains, for each workspace, the
	// position of the newest event for which the hub has woken the streams.
	streams map[uuid.UUID][]*Stream
	seen    map[uuid.UUID]int64
	// count is the number of streams that are open or being opened.
	count int
	// opened receives a value when the first stream is opened. Run then polls again.
	opened chan struct{}
}

// New returns a hub. Run must be called.
func New(st *store.Store, metrics prometheus.Registerer) *Hub {
	h := &Hub{
		store: st, reads: make(chan struct{}, maxReads), streams: map[uuid.UUID][]*Stream{}, seen: map[uuid.UUID]int64{},
		opened: make(chan struct{}, 1), commentInterval: commentInterval, writeTimeout: writeTimeout,
		maxStreams: maxReplicaStreams,
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ringfence_webhooks_open_streams", Help: "Open event streams of this replica.",
		}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ringfence_webhooks_streamed_events_total", Help: "Events that were written to event streams.",
		}),
	}
	metrics.MustRegister(h.open, h.sent)
	return h
}

// Filter decides which events a stream sends.
type Filter struct {
	// Types are the event types that the stream sends. If Types is nil, the stream sends all stored
	// events.
	Types []string
	// Turns is true if the stream also sends the turns of calls in progress.
	Turns bool
}

// Open registers a stream of the workspace that starts after the cursor. It returns 429
// rate_limited if the workspace has MaxStreams streams, and 503 unavailable if this replica has its
// maximum number of streams. The caller must call Stream.Close.
func (h *Hub) Open(
	ctx context.Context,
	workspaceID uuid.UUID,
	after store.StreamCursor,
	filter Filter,
) (*Stream, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("generate stream id: %w", err)
	}
	if !h.reserve() {
		return nil, apierr.Unavailable("The event stream")
	}
	opened, err := h.store.OpenStream(ctx, id, workspaceID, lease, MaxStreams)
	if err != nil {
		h.release()
		return nil, err
	}
	if !opened {
		h.release()
		refused := apierr.New(http.StatusTooManyRequests, "rate_limited",
			"This workspace already has %d open event streams. Close one first.", MaxStreams)
		refused.RetryAfter = renewInterval
		return nil, refused
	}
	s := &Stream{
		hub:         h,
		id:          id,
		workspaceID: workspaceID,
		cursor:      after,
		timeline:    after.Timeline,
		types:       filter.Types,
		wake:        make(chan struct{}, 1),
		ended:       make(chan struct{}),
	}
	if filter.Turns {
		s.turns = make(chan []byte, maxTurns)
	}
	s.position.Store(after.Position)
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.streams) == 0 {
		wake(h.opened)
	}
	h.streams[workspaceID] = append(h.streams[workspaceID], s)
	h.open.Inc()
	return s, nil
}

func (h *Hub) reserve() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count >= h.maxStreams {
		return false
	}
	h.count++
	return true
}

func (h *Hub) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count--
}

func (h *Hub) remove(s *Stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	others := slices.DeleteFunc(h.streams[s.workspaceID], func(other *Stream) bool { return other == s })
	h.streams[s.workspaceID] = others
	if len(others) == 0 {
		delete(h.streams, s.workspaceID)
		delete(h.seen, s.workspaceID)
	}
	h.count--
	h.open.Dec()
}

// Wake makes the streams of the workspaces read new events. It is called after a commit and does
// not block.
func (h *Hub) Wake(workspaces []uuid.UUID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range workspaces {
		for _, s := range h.streams[id] {
			wake(s.wake)
		}
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run works until ctx ends. It polls for events that other replicas stored, renews the leases of
// the streams, and records the timelines of the database.
func (h *Hub) Run(ctx context.Context) error {
	wait, renewed, recorded := minPoll, time.Now(), ""
	for {
		workspaces := h.workspaces()
		found, timeline, err := h.poll(ctx, workspaces)
		if err == nil && timeline != recorded {
			if err = h.store.RecordTimeline(ctx); err == nil {
				recorded = timeline
			}
		}
		if err == nil && time.Since(renewed) >= renewInterval {
			renewed = time.Now()
			err = h.renew(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the process is stopping
		case err != nil:
			slog.WarnContext(ctx, "poll for new events of the event streams failed", "error", err)
			wait = errorPoll
		case len(workspaces) == 0:
			wait = idlePoll
		case found:
			wait = minPoll
		default:
			wait = min(max(2*wait, minPoll), maxPoll)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.opened:
			wait = minPoll
		case <-time.After(wait):
		}
	}
}

func (h *Hub) workspaces() []uuid.UUID {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := make([]uuid.UUID, 0, len(h.streams))
	for id := range h.streams {
		ids = append(ids, id)
	}
	return ids
}

// poll wakes the streams that have new events, and returns the timeline of the database.
//
// After a failover or a restore, new events can have positions that a stream has already sent. poll
// then ends the stream.
func (h *Hub) poll(ctx context.Context, workspaces []uuid.UUID) (found bool, timeline string, err error) {
	if len(workspaces) == 0 {
		timeline, err = h.store.Timeline(ctx)
		return false, timeline, err
	}
	positions, timeline, err := h.store.StreamPositions(ctx, workspaces)
	if err != nil {
		return false, "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, streams := range h.streams {
		for _, s := range streams {
			if s.timeline != timeline {
				s.end()
			}
		}
	}
	for id, position := range positions {
		if h.streams[id] == nil || position == h.seen[id] {
			continue
		}
		lost := position < h.seen[id]
		h.seen[id], found = position, true
		for _, s := range h.streams[id] {
			if lost {
				s.end()
			}
			if s.position.Load() < position {
				wake(s.wake)
			}
		}
	}
	return found, timeline, nil
}

// renew renews the leases of the open streams. If a stream is closed during the renewal, its row
// can be inserted again. Therefore renew deletes the rows of the streams that were closed.
func (h *Hub) renew(ctx context.Context) error {
	var ids, workspaces []uuid.UUID
	h.mu.Lock()
	for workspace, streams := range h.streams {
		for _, s := range streams {
			ids, workspaces = append(ids, s.id), append(workspaces, workspace)
		}
	}
	h.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	if err := h.store.RenewStreams(ctx, ids, workspaces, lease); err != nil {
		return err
	}
	if closed := h.closed(ids); len(closed) > 0 {
		return h.store.CloseStreams(ctx, closed...)
	}
	return nil
}

// closed returns the ids that belong to no open stream.
func (h *Hub) closed(ids []uuid.UUID) []uuid.UUID {
	h.mu.Lock()
	defer h.mu.Unlock()
	open := make(map[uuid.UUID]bool, len(ids))
	for _, streams := range h.streams {
		for _, s := range streams {
			open[s.id] = true
		}
	}
	return slices.DeleteFunc(ids, func(id uuid.UUID) bool { return open[id] })
}
