// Package carrierevents reads the events of a carrier that has a feed, and applies them to the
// calls. One replica reads at a time. Its place in the feed moves in the transaction that applies
// the events.

package calls

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/store"
)

const (
	// longPoll is how long one question for events stays open.
	longPoll = 2 * time.Second
	// retryPause is the pause while another replica reads, and after an error.
	retryPause = 500 * time.Millisecond
)

// EventReader reads the feed of one carrier.
type EventReader struct {
	store *store.Store
	feed  carrier.EventStream
	calls *Applier
	// place is where the last committed batch ended; nil: it has to be read. Used by Run only.
	place *store.Place
}

// NewEventReader returns a reader of a feed.
func NewEventReader(st *store.Store, feed carrier.EventStream, to *Applier) *EventReader {
	return &EventReader{store: st, feed: feed, calls: to}
}

// Run reads until ctx ends.
func (r *EventReader) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		mine, err := r.read(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrLost) {
			slog.WarnContext(ctx, "carrier events not read", "error", err)
		}
		if mine && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
	return nil
}

// read applies one batch if this replica is the reader. The commit of a batch extends the lease of
// the reader, so the next batch begins at its end. The commit fails if another replica has become
// the reader.
func (r *EventReader) read(ctx context.Context) (mine bool, err error) {
	var place store.Place
	if r.place != nil {
		place, r.place = *r.place, nil
	} else if place, mine, err = r.store.ReadFeed(ctx, r.feed.Name()); err != nil || !mine {
		return mine, err
	}
	batch, err := r.feed.Events(ctx, place.Cursor, longPoll)
	if err != nil {
		return true, err
	}
	next := store.Place{Feed: batch.Feed, Cursor: place.Cursor}
	switch {
	case place.Feed != batch.Feed && place.Cursor > 0: // the carrier lost its past: read its new feed from the beginning
		slog.WarnContext(ctx, "carrier began a new feed", "carrier", r.feed.Name())
		next.Cursor, batch.Events = 0, nil
	case len(batch.Events) > 0:
		next.Cursor = batch.Events[len(batch.Events)-1].Seq
	}
	if next == place {
		return true, nil
	}
	if err := r.calls.Apply(ctx, r.store.MoveFeed(r.feed.Name(), place, next), batch.Events); err != nil {
		return true, err
	}
	r.place = &next
	return true, nil
}
