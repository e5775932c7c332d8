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
	// longPoll is the time after which the carrier responds to a request for events if there are no
	// new events.
	longPoll = 2 * time.Second
	// retryPause is the pause after an error. It is also the time between two attempts to become the
	// reader while another replica is the reader.
	retryPause = 500 * time.Millisecond
)

// EventReader reads the event stream of one carrier and applies the events to calls. Only one
// replica reads at a time. The transaction that applies events also stores the position in the
// stream.
type EventReader struct {
	store  *store.Store
	stream carrier.EventStream
	calls  *Applier
	// position is the position after the last committed batch of events. If nil, the position must be
	// read from the database. Only Run uses it.
	position *store.StreamPosition
}

// NewEventReader returns a reader of the given event stream. The reader passes the events to the
// Applier.
func NewEventReader(st *store.Store, stream carrier.EventStream, to *Applier) *EventReader {
	return &EventReader{store: st, stream: stream, calls: to}
}

// Run reads and applies events until ctx ends.
func (r *EventReader) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		isReader, err := r.readBatch(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrLost) {
			slog.WarnContext(ctx, "carrier events not read or not applied", "error", err)
		}
		if isReader && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
	return nil
}

// readBatch reads and applies one batch of events. The commit extends the reader's lease. The
// commit fails if another replica has become the reader.
func (r *EventReader) readBatch(ctx context.Context) (isReader bool, err error) {
	var place store.StreamPosition
	if r.position != nil {
		place, r.position = *r.position, nil
	} else if place, isReader, err = r.store.ClaimEventStream(ctx, r.stream.Name()); err != nil || !isReader {
		return isReader, err
	}
	batch, err := r.stream.Events(ctx, place.Cursor, longPoll)
	if err != nil {
		return true, err
	}
	next := store.StreamPosition{Stream: batch.Stream, Cursor: place.Cursor}
	switch {
	// The carrier has lost its events, so the reader must start at the beginning of the new stream.
	case place.Stream != batch.Stream && place.Cursor > 0:
		slog.WarnContext(ctx, "carrier started a new event stream", "carrier", r.stream.Name())
		next.Cursor, batch.Events = 0, nil
	case len(batch.Events) > 0:
		next.Cursor = batch.Events[len(batch.Events)-1].Seq
	}
	if next == place {
		return true, nil
	}
	if err := r.calls.Apply(ctx, r.store.MoveStreamPosition(r.stream.Name(), place, next), batch.Events); err != nil {
		return true, err
	}
	r.position = &next
	return true, nil
}
