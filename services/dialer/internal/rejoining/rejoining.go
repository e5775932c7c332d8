// Package rejoining keeps law 1 over a restore: a dialer whose database is older than what it has told the world dials nothing until it has read its own topic.
package rejoining

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/services/dialer/internal/request"
	"ringfence.dev/services/dialer/internal/store/past"
)

const (
	// last is how many of the newest facts of each partition a start looks at. More than one: a deposed relay may have told an old one again.
	last = 20
	// batch is how many facts one transaction settles.
	batch = 500
	// margin is how far before the mark of the database reading begins. An event that the database may not
	// know was committed after the mark, by the same clock, and appended to the log after that. The log's
	// time of the event is therefore earlier than the mark only as far as the log's clock is behind the
	// database's. If the log's clock is ahead, or the event was published late, more is read than needed.
	margin = 10 * time.Minute
	// astray is how far the log's clock may be behind the database's. Each record shows it: it has the
	// event's own time, which is the database's, and the log's. Beyond that the whole topic is read.
	astray = margin / 2
	again  = time.Second
)

var errClocks = errors.New("facts were logged before the time that the database has for them")

// Await returns when the database knows every fact that was told. It looks at the newest on dial-events.v1, and at the database's own mark (past.Mark): at once as a rule. A database
// that was restored to an earlier time, or has become another, is brought up to date first: from its mark on the topic is read and settled. While Kafka or the database is away it
// tries again: who cannot tell does not dial. gather is how long the other dialers have to say what they dialled, before it is read what was told; Gather, but for tests.
func Await(ctx context.Context, cfg kafka.Config, st *past.Store, gather time.Duration) error {
	return await(ctx, cfg, st, gather, func(context.Context) error { return nil })
}

// await has the database know what the process knows itself before it reads, and anew where it becomes another again meanwhile.
func await(ctx context.Context, cfg kafka.Config, st *past.Store, gather time.Duration, know func(context.Context) error) error {
	for {
		err := settle(ctx, cfg, st, gather, know)
		if err == nil || ctx.Err() != nil {
			return err
		}
		slog.WarnContext(ctx, "nothing is dialled until the newest facts are known", "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(again):
		}
	}
}

func settle(ctx context.Context, cfg kafka.Config, st *past.Store, gather time.Duration, know func(context.Context) error) error {
	mark, err := st.Mark(ctx)
	if err != nil && !unheardOf(err) {
		return err
	}
	ctx, stop := whileOn(ctx, st, mark.Now)
	defer stop()
	if err := know(ctx); err != nil {
		return err
	}
	_, unknown, err := glance(ctx, cfg, st)
	if errors.Is(err, kafka.ErrNoTopic) {
		if err := nothingTold(ctx, st); err != nil {
			return err
		}
		return vouch(ctx, st, mark)
	}
	switch {
	case err != nil:
		return err
	case mark.Stands() && len(unknown) == 0:
		return vouch(ctx, st, mark)
	case len(unknown) == 0:
		slog.WarnContext(ctx, "the database has become another: it is on hold until dial-events.v1 is gone through", "timeline", mark.Now, "before", mark.On)
	default:
		slog.ErrorContext(ctx, "the database is older than what was told: it is on hold until dial-events.v1 is reconciled", "unknown", len(unknown))
	}
	if mark.Stands() {
		if err := st.Doubt(ctx); err != nil { // the others as well
			return err
		}
		mark.On = ""
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(gather):
	}
	newest, unknown, err := glance(ctx, cfg, st)
	if err != nil {
		return err
	}
	h := hold{cfg: cfg, store: st, newest: newest, unknown: unknown}
	if mark.Until != nil {
		h.since = mark.Until.Add(-margin)
	}
	err = h.reconcile(ctx)
	if errors.Is(err, errClocks) {
		slog.ErrorContext(ctx, "the clocks of database and dialers, or brokers, are apart: the whole topic is read", "error", err)
		h.since = time.Time{}
		err = h.reconcile(ctx)
	}
	if err != nil {
		return err
	}
	slog.WarnContext(ctx, "the database knows what was told; the hold is over", "told", h.told, "settled", h.settled, "since", h.since)
	return vouch(ctx, st, mark)
}

var errAnother = errors.New("the database has become another again")

// whileOn ends with a database that becomes another, which is looked at once a second: what this process dialled must be told the next one, too, while the others wait for it.
func whileOn(ctx context.Context, st *past.Store, timeline string) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	if timeline == "" { // it does not tell
		return ctx, func() { end(nil) }
	}
	go func() {
		ticker := time.NewTicker(look)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			asking, cancel := context.WithTimeout(ctx, patience)
			mark, err := st.Mark(asking)
			cancel()
			if err == nil && mark.Now != timeline {
				end(errAnother)
				return
			}
		}
	}()
	return ctx, func() { end(nil) }
}

// glance answers the newest facts, and those of them that the database does not know.
func glance(ctx context.Context, cfg kafka.Config, st *past.Store) (newest map[uuid.UUID]past.Told, unknown []past.Told, err error) {
	if newest, err = glanced(ctx, cfg); err != nil {
		return nil, nil, err
	}
	unknown, err = st.Unknown(ctx, slices.Collect(maps.Values(newest)))
	return newest, unknown, err
}

// vouch moves a mark that does not stand, or is not there.
func vouch(ctx context.Context, st *past.Store, mark past.Mark) error {
	if mark.Now == "" || mark.Until != nil && mark.Stands() {
		return nil
	}
	return st.Vouch(ctx, mark.Now)
}

// nothingTold is a first start, unless the database has dialled: then the topic is not where it was, and who cannot tell does not dial.
func nothingTold(ctx context.Context, st *past.Store) error {
	ever, err := st.EverDialled(ctx)
	if ever {
		return errors.New("this database has dialled, and KAFKA_BROKERS know no dial-events.v1: set KAFKA_BROKERS to the cluster that has it; if it is gone for good, " +
			"look at what was dialled last (deploy/runbooks/postgres-restore.md) and start calls, which makes it")
	}
	return err
}

// hold is one reading of the topic, from since on.
type hold struct {
	cfg     kafka.Config
	store   *past.Store
	newest  map[uuid.UUID]past.Told
	unknown []past.Told // of the newest
	since   time.Time

	// over are facts of what has ended, until there is a batch of them; open those of what goes on, as far as was read.
	over          []past.Told
	open          map[uuid.UUID]past.Told
	told, settled int
}

// reconcile reads and settles. What has ended is settled as it is read, so that no more is held in memory than goes on at a time. Whoever is killed in the middle leaves a database
// that a glance finds as old as before: what it sees, and every call that lives (behind all that ended: a number has one), is settled last and together.
func (h *hold) reconcile(ctx context.Context) error {
	h.over, h.open, h.told, h.settled = nil, map[uuid.UUID]past.Told{}, 0, 0
	err := read(ctx, h.cfg, kafka.Span{Since: h.since}, func(rec kafka.Record, t past.Told) error {
		if ahead := rec.Time.Sub(rec.Logged); !h.since.IsZero() && ahead > astray {
			return fmt.Errorf("%w: by %s at offset %d of partition %d", errClocks, ahead, rec.Offset, rec.Partition)
		}
		return h.hear(ctx, t)
	})
	if err != nil {
		return err
	}
	for _, t := range h.unknown {
		if _, heard := h.open[t.Subject()]; !heard && t.State != request.Queued {
			return fmt.Errorf("%w: the newest of %s lies before %s", errClocks, t.Subject(), h.since)
		}
	}
	if err := h.settle(ctx, h.over); err != nil {
		return err
	}
	return h.settle(ctx, slices.Collect(maps.Values(h.open)))
}

// hear takes one fact. A request that waits is left alone: it is judged again when it is due.
func (h *hold) hear(ctx context.Context, t past.Told) error {
	h.told++
	if t.State == request.Queued {
		return nil
	}
	subject := t.Subject()
	if _, seen := h.newest[subject]; seen || !t.Over() {
		if before, known := h.open[subject]; !known || !overtaken(t, before) {
			h.open[subject] = t
		}
		return nil
	}
	delete(h.open, subject)
	if h.over = append(h.over, t); len(h.over) < batch {
		return nil
	}
	over := h.over
	h.over = h.over[:0]
	return h.settle(ctx, over)
}

// settle makes the database know of those that it does not know, all together.
func (h *hold) settle(ctx context.Context, told []past.Told) error {
	unknown, err := h.store.Unknown(ctx, told)
	if err != nil || len(unknown) == 0 {
		return err
	}
	h.settled += len(unknown)
	if err = h.store.Settle(ctx, unknown); anotherLives(err) {
		return oneByOne(ctx, unknown, h.store.SettleInPlace)
	}
	return err
}
