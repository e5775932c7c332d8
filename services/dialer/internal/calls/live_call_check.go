package calls

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// maxFinds is the highest number of concurrent queries to the carrier.
	maxFinds = 8
	// feedDelay is the longest time from the end of a call until its end event is in the event stream.
	feedDelay = 5 * time.Second
)

// LiveCallCheck regularly queries the carrier about all live calls. If a call has ended and its end
// event is missing in the event stream, the check ends the call. Only the replica that reads the
// stream runs the check.
type LiveCallCheck struct {
	store    *store.Store
	carrier  carrier.EventStream
	relay    *outbox.Relay
	interval time.Duration
	onEnd    func()
}

// NewLiveCallCheck returns a check that runs once per interval. If interval is 0, Run returns
// immediately. ended is called when the check has ended calls.
func NewLiveCallCheck(
	st *store.Store,
	trunk carrier.EventStream,
	relay *outbox.Relay,
	interval time.Duration,
	ended func(),
) *LiveCallCheck {
	return &LiveCallCheck{store: st, carrier: trunk, relay: relay, interval: interval, onEnd: ended}
}

// Run checks the live calls until ctx ends.
func (l *LiveCallCheck) Run(ctx context.Context) error {
	if l.interval <= 0 {
		return nil
	}
	ticker := time.NewTicker(l.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := l.checkCalls(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "check of live calls failed", "error", err)
		}
	}
}

func (l *LiveCallCheck) checkCalls(ctx context.Context) error {
	_, isReader, err := l.store.ClaimEventStream(ctx, l.carrier.Name())
	if err != nil || !isReader {
		return err
	}
	live, err := l.store.LiveCalls(ctx)
	if err != nil {
		return err
	}
	endedAtCarrier := l.endedAtCarrier(ctx, live)
	if len(endedAtCarrier) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(feedDelay):
	}
	if err := l.removeUnread(ctx, endedAtCarrier); err != nil || len(endedAtCarrier) == 0 {
		return err
	}
	return l.endCalls(ctx, endedAtCarrier)
}

// endedAtCarrier queries the carrier about the live calls. It returns the calls that have ended at
// the carrier. It spreads the queries over half of the interval.
func (l *LiveCallCheck) endedAtCarrier(ctx context.Context, live []uuid.UUID) map[uuid.UUID]carrier.CallStatus {
	found := map[uuid.UUID]carrier.CallStatus{}
	if len(live) == 0 {
		return found
	}
	pace := time.NewTicker(max(time.Microsecond, l.interval/2/time.Duration(len(live))))
	defer pace.Stop()
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(maxFinds)
	for _, id := range live {
		select {
		case <-ctx.Done():
		case <-pace.C:
		}
		asking.Go(func() error {
			known, err := l.carrier.Find(ctx, id)
			if err != nil || known.EndedAt == nil { // after an error, the call counts as live
				return nil //nolint:nilerr // ignore the error, because the next check queries the carrier again
			}
			mu.Lock()
			defer mu.Unlock()
			found[id] = known
			return nil
		})
	}
	_ = asking.Wait()
	return found
}

// removeUnread removes the calls whose end event can still arrive in the event stream. The reader
// must end these calls, because the event contains more details than the result of Find.
func (l *LiveCallCheck) removeUnread(ctx context.Context, endedAtCarrier map[uuid.UUID]carrier.CallStatus) error {
	place, isReader, err := l.store.ClaimEventStream(ctx, l.carrier.Name())
	if err != nil {
		return err
	}
	unread, err := l.carrier.Events(ctx, place.Cursor, 0)
	if err != nil {
		return err
	}
	maps.DeleteFunc(endedAtCarrier, func(_ uuid.UUID, known carrier.CallStatus) bool {
		return !isReader || unread.Stream != place.Stream ||
			len(unread.Events) > 0 && !unread.Events[0].At.After(*known.EndedAt)
	})
	return nil
}

func (l *LiveCallCheck) endCalls(ctx context.Context, endedAtCarrier map[uuid.UUID]carrier.CallStatus) error {
	var ended []uuid.UUID
	err := l.store.Change(ctx, slices.Collect(maps.Keys(endedAtCarrier)), func(calls map[uuid.UUID]*callstate.Call) {
		ended = nil
		for id, c := range calls {
			if endedAtCarrier[id].Replay(c, callstate.Zone(c.TimeZone, c.Person())) {
				ended = append(ended, id)
			}
		}
	})
	if err != nil {
		return err
	}
	if len(ended) > 0 {
		slog.WarnContext(
			ctx,
			"calls ended by the live call check, the carrier sent no end event",
			"calls",
			len(ended),
			"first_call_id",
			ended[0],
		)
		l.relay.Wake()
		l.onEnd()
	}
	return nil
}
