package eventstream

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

const (
	// commentInterval is the time between two comment lines.
	commentInterval = 15 * time.Second
	// writeTimeout is how long one write may take. A client that reads more slowly is
	// disconnected.
	writeTimeout = 10 * time.Second
	// pageSize is the maximum number of events of one read. A body can have 300 KiB, and each
	// stream keeps one page in memory.
	pageSize = 16
)

// Stream is one open event stream.
type Stream struct {
	hub         *Hub
	id          uuid.UUID
	workspaceID uuid.UUID
	types       []string
	// cursor is the position of the last event that was read.
	cursor store.StreamCursor
	wake   chan struct{}
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
	if err := s.hub.store.CloseStream(ctx, s.id); err != nil { // the lease ends soon
		slog.WarnContext(ctx, "event stream not removed", "error", err)
	}
}

// Send writes the events after the cursor, and then each new event, until ctx ends, the channel
// closing is closed, or a write fails. The response must have no other content.
func (s *Stream) Send(ctx context.Context, w http.ResponseWriter, closing <-chan struct{}) {
	out := &writer{response: w, control: http.NewResponseController(w), timeout: s.hub.writeTimeout}
	if out.write([]byte(": open\n\n")) != nil {
		return
	}
	comments := time.NewTicker(s.hub.commentInterval)
	defer comments.Stop()
	wake(s.wake) // the first read
	for {
		var retry <-chan time.Time
		select {
		case <-ctx.Done():
			return
		case <-closing:
			return
		case <-s.ended:
			return
		case <-comments.C:
			if out.write([]byte(": keep-alive\n\n")) != nil {
				return
			}
			continue
		case <-s.wake:
		}
		for more := true; more; {
			var err error
			if more, err = s.sendPage(ctx, out); err != nil {
				if out.failed || ctx.Err() != nil {
					return
				}
				slog.WarnContext(ctx, "event stream not read", "workspace_id", s.workspaceID, "error", err)
				retry, more = time.After(errorPoll), false
			}
			select {
			case <-closing:
				return
			case <-s.ended:
				return
			default:
			}
		}
		if retry != nil {
			select {
			case <-ctx.Done():
				return
			case <-closing:
				return
			case <-retry:
				wake(s.wake)
			}
		}
	}
}

// sendPage reads one page of events and writes them. more is true if the page was full.
func (s *Stream) sendPage(ctx context.Context, out *writer) (more bool, err error) {
	select {
	case s.hub.reads <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("wait for a read of the event stream: %w", ctx.Err())
	}
	page, err := s.hub.store.StreamEvents(ctx, s.workspaceID, s.cursor, s.types, pageSize)
	<-s.hub.reads
	if err != nil || len(page) == 0 {
		return false, err
	}
	var messages bytes.Buffer
	sent := 0
	for _, event := range page {
		if len(event.Body) == 0 || len(s.types) > 0 && !slices.Contains(s.types, event.Type) {
			continue
		}
		writeMessage(&messages, event)
		sent++
	}
	if sent > 0 {
		if err := out.write(messages.Bytes()); err != nil {
			return false, err
		}
		s.hub.sent.Add(float64(sent))
	}
	s.cursor = page[len(page)-1].StreamCursor
	return len(page) == pageSize, nil
}

// writeMessage appends one message
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
func writeMessage(to *bytes.Buffer, event store.StreamEvent) {
	fmt.Fprintf(to, "id: %s\nevent: %s\n", event.EventID, event.Type)
	for line := range bytes.SplitSeq(event.Body, []byte("\n")) {
		to.WriteString("data: ")
		to.Write(line)
		to.WriteByte('\n')
	}
	to.WriteByte('\n')
}

// writer writes to the response and flushes it. Each write has its own deadline.
type writer struct {
	response http.ResponseWriter
	control  *http.ResponseController
	timeout  time.Duration
	failed   bool
}

func (w *writer) write(text []byte) error {
	// The error is ignored: only a writer without a connection does not support deadlines.
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
	_, err := w.response.Write(text)
	if err == nil {
		err = w.control.Flush()
	}
	if err != nil {
		w.failed = true
		return fmt.Errorf("write to event stream: %w", err)
	}
	return nil
}
