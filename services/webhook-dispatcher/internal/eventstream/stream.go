package eventstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

const (
	// commentInterval is the time between two comment lines.
	commentInterval = 15 * time.Second
	// writeTimeout is the maximum duration of one write. A client that reads more slowly is
	// disconnected.
	writeTimeout = 10 * time.Second
	// pageSize and pageBytes limit the events of one read, which the stream keeps in memory while it
	// writes them. The last body of a page can exceed pageBytes by 300 KiB.
	pageSize  = 64
	pageBytes = 256 << 10
)

// Stream is one open event stream.
type Stream struct {
	hub         *Hub
	id          uuid.UUID
	workspaceID uuid.UUID
	types       []string
	// turns contains the messages of turns that wait to be written. It is nil if the stream sends no
	// turns.
	turns chan []byte
	// timeline is the timeline of the database in which the cursor is valid.
	timeline string
	// cursor is the position of the last event that was read.
	cursor store.StreamCursor
	// position is the position of cursor. It is atomic because the hub reads it.
	position atomic.Int64
	wake     chan struct{}
	// ended is closed when the hub ends the stream.
	ended   chan struct{}
	endOnce sync.Once
}

func (s *Stream) end() { s.endOnce.Do(func() { close(s.ended) }) }

// Close removes the stream from the hub and from the count of the workspace.
func (s *Stream) Close(ctx context.Context) {
	s.hub.remove(s)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	// the error is only logged, because a remaining row has no effect after the end of its lease
	if err := s.hub.store.CloseStreams(ctx, s.id); err != nil {
		slog.WarnContext(ctx, "closed event stream not deleted from the database", "error", err)
	}
}

// Send first writes the stored events after the cursor, and then each new event. It returns when
// ctx ends, when the channel `closing` is closed, or when a write fails. The response must have no
// other content.
func (s *Stream) Send(ctx context.Context, w http.ResponseWriter, closing <-chan struct{}) {
	out := &writer{response: w, control: http.NewResponseController(w), timeout: s.hub.writeTimeout}
	if s.comment(out, "open") != nil {
		return
	}
	comments := time.NewTicker(s.hub.commentInterval)
	defer comments.Stop()
	wake(s.wake) // read the stored events first
	woken, retry := s.wake, (<-chan time.Time)(nil)
	for {
		select {
		case <-ctx.Done():
			return
		case <-closing:
			return
		case <-s.ended:
			return
		case <-comments.C:
			if s.comment(out, "keep-alive") != nil {
				return
			}
		case turn := <-s.turns:
			if out.write(func(to io.Writer) error { _, err := to.Write(turn); return err }) != nil {
				return
			}
		case <-retry:
			woken, retry = s.wake, nil
			wake(s.wake)
		case <-woken:
			more, err := s.sendPage(ctx, out)
			switch {
			case err == nil && more:
				wake(s.wake)
			case err == nil:
			case out.failed || ctx.Err() != nil || errors.Is(err, store.ErrTimelineChanged):
				return
			default:
				slog.WarnContext(ctx, "events of an event stream not read", "workspace_id", s.workspaceID, "error", err)
				woken, retry = nil, time.After(errorPoll)
			}
		}
	}
}

// comment writes a comment line with the id of the cursor. The client stores this id without
// receiving a message. So it can resume the stream even if its filter skipped all events before the
// cursor.
func (s *Stream) comment(out *writer, text string) error {
	return out.write(func(to io.Writer) error {
		_, err := fmt.Fprintf(to, ": %s\nid: %s\n\n", text, s.cursor.EventID)
		return err
	})
}

// sendPage reads one page of events and writes them. more is true if the page ended at a limit.
func (s *Stream) sendPage(ctx context.Context, out *writer) (more bool, err error) {
	select {
	case s.hub.reads <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("wait for a read of the event stream: %w", ctx.Err())
	}
	limits := store.StreamPage{Types: s.types, Limit: pageSize, MaxBytes: pageBytes}
	page, more, err := s.hub.store.StreamEvents(ctx, s.workspaceID, s.cursor, limits)
	<-s.hub.reads
	if err != nil || len(page) == 0 {
		return false, err
	}
	last := page[len(page)-1].StreamCursor
	page = slices.DeleteFunc(page, func(event store.StreamEvent) bool {
		return len(event.Body) == 0 || len(s.types) > 0 && !slices.Contains(s.types, event.Type)
	})
	if len(page) > 0 {
		if err := out.write(func(to io.Writer) error { return writeMessages(to, page) }); err != nil {
			return false, err
		}
		s.hub.sent.Add(float64(len(page)))
	}
	s.cursor = last
	s.position.Store(last.Position)
	return more, nil
}

// writeMessages writes each event as a message
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
func writeMessages(to io.Writer, events []store.StreamEvent) error {
	for _, event := range events {
		if _, err := fmt.Fprintf(to, "id: %s\nevent: %s\n", event.EventID, event.Type); err != nil {
			return err
		}
		for line := range bytes.SplitSeq(event.Body, []byte("\n")) {
			if _, err := fmt.Fprintf(to, "data: %s\n", line); err != nil {
				return err
			}
		}
		if _, err := io.WriteString(to, "\n"); err != nil {
			return err
		}
	}
	return nil
}

// writer writes to the response and flushes it. Each write has its own deadline.
type writer struct {
	response http.ResponseWriter
	control  *http.ResponseController
	timeout  time.Duration
	failed   bool
}

func (w *writer) write(content func(io.Writer) error) error {
	// The error is ignored, because every writer with a network connection supports deadlines.
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
	err := content(w.response)
	if err == nil {
		err = w.control.Flush()
	}
	if err != nil {
		w.failed = true
		return fmt.Errorf("write to event stream: %w", err)
	}
	return nil
}
