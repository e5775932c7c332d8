package bridging

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
	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// looksAtOnce is how many calls the carrier is asked about side by side.
	looksAtOnce = 8
	// underWay is how long the news of an end that the carrier knows of may take to stand in its feed.
	underWay = 5 * time.Second
)

// Looker asks the carrier once in a while about every call that lives here: an end that its news never told then costs that long, not the longest time
// of a call. One replica does it, the one that reads the news.
type Looker struct {
	store   *store.Store
	carrier carrier.Carrier
	relay   *outbox.Relay
	every   time.Duration
	ended   func()
}

// NewLooker looks once in every; zero: never. ended is told when calls end.
func NewLooker(st *store.Store, trunk carrier.Carrier, relay *outbox.Relay, every time.Duration, ended func()) *Looker {
	return &Looker{store: st, carrier: trunk, relay: relay, every: every, ended: ended}
}

// Run looks until ctx ends.
func (l *Looker) Run(ctx context.Context) error {
	if l.every <= 0 {
		return nil
	}
	ticker := time.NewTicker(l.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := l.look(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "the carrier was not asked about the calls that live", "error", err)
		}
	}
}

func (l *Looker) look(ctx context.Context) error {
	_, mine, err := l.store.ReadFeed(ctx, l.carrier.Name())
	if err != nil || !mine {
		return err
	}
	live, err := l.store.LiveCalls(ctx)
	if err != nil {
		return err
	}
	over := l.over(ctx, live)
	if len(over) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(underWay):
	}
	if err := l.keepUntold(ctx, over); err != nil || len(over) == 0 {
		return err
	}
	return l.settle(ctx, over)
}

// over are the calls of which the carrier says that they have ended. The questions are spread over half the time to the next look.
func (l *Looker) over(ctx context.Context, live []uuid.UUID) map[uuid.UUID]carrier.Knowledge {
	found := map[uuid.UUID]carrier.Knowledge{}
	if len(live) == 0 {
		return found
	}
	pace := time.NewTicker(max(time.Microsecond, l.every/2/time.Duration(len(live))))
	defer pace.Stop()
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(looksAtOnce)
	for _, id := range live {
		select {
		case <-ctx.Done():
		case <-pace.C:
		}
		asking.Go(func() error {
			known, err := l.carrier.Find(ctx, id)
			if err != nil || known.EndedAt == nil { // who cannot be asked, or does not know the call, is no witness
				return nil //nolint:nilerr // the next look asks again
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

// keepUntold leaves only the ends that the feed has gone past: nothing is unread, or what is unread happened later. What is still to be read tells more
// than the carrier's memory of a call does.
func (l *Looker) keepUntold(ctx context.Context, over map[uuid.UUID]carrier.Knowledge) error {
	place, mine, err := l.store.ReadFeed(ctx, l.carrier.Name())
	if err != nil {
		return err
	}
	unread, err := l.carrier.News(ctx, place.Cursor, 0)
	if err != nil {
		return err
	}
	maps.DeleteFunc(over, func(_ uuid.UUID, known carrier.Knowledge) bool {
		return !mine || unread.Feed != place.Feed || len(unread.News) > 0 && !unread.News[0].At.After(*known.EndedAt)
	})
	return nil
}

func (l *Looker) settle(ctx context.Context, over map[uuid.UUID]carrier.Knowledge) error {
	var ended []uuid.UUID
	err := l.store.Change(ctx, slices.Collect(maps.Keys(over)), func(calls map[uuid.UUID]*call.Call) {
		ended = nil
		for id, c := range calls {
			if over[id].Replay(c, zone(c)) {
				ended = append(ended, id)
			}
		}
	})
	if err != nil {
		return err
	}
	if len(ended) > 0 {
		slog.WarnContext(ctx, "the carrier's news left out ends, which it was asked about", "calls", len(ended), "call_id", ended[0])
		l.relay.Wake()
		l.ended()
	}
	return nil
}
