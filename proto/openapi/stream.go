package openapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// StreamedEvent is one message of GET /v1/events. Data is the envelope: the bytes that a webhook
// sends.
type StreamedEvent struct {
	ID   uuid.UUID
	Type EventType
	Data []byte
}

// EventReader reads the messages of one response of GET /v1/events.
type EventReader struct {
	lines  *bufio.Reader
	lastID uuid.UUID
}

// NewEventReader returns a reader of a response body.
func NewEventReader(body io.Reader) *EventReader { return &EventReader{lines: bufio.NewReader(body)} }

// LastID returns the last id that was read from the response, from which a client resumes the
// stream. Comments contain ids too. LastID returns the zero value if no id was read.
func (r *EventReader) LastID() uuid.UUID { return r.lastID }

// Next returns the next message. It returns io.EOF at the end of the response. An incomplete
// message at the end is dropped: the service sends it again after a reconnect.
func (r *EventReader) Next() (event StreamedEvent, err error) {
	var data [][]byte
	for {
		line, err := r.lines.ReadBytes('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				return StreamedEvent{}, io.EOF
			}
			return StreamedEvent{}, fmt.Errorf("read event stream: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if event.ID != uuid.Nil {
				r.lastID = event.ID
			}
			if len(data) == 0 {
				event = StreamedEvent{}
				continue // the message contains no data, so it is a comment
			}
			event.Data = bytes.Join(data, []byte("\n"))
			return event, nil
		}
		name, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			if event.ID, err = uuid.Parse(value); err != nil {
				return StreamedEvent{}, fmt.Errorf("read event id %q: %w", value, err)
			}
		case "event":
			event.Type = EventType(value)
		case "data":
			data = append(data, []byte(value))
		}
	}
}

const (
	minReconnect = 100 * time.Millisecond
	maxReconnect = 5 * time.Second
)

// FollowEvents reads GET /v1/events and calls handle for each event, until ctx ends or handle
// returns an error. If params contain no event id, FollowEvents starts with the next new event of
// the workspace. When a response ends, FollowEvents connects again and resumes where the response
// ended.
//
// It returns the error of handle, and an error for a 4xx response except 429. The HTTP client must
// have no timeout for the whole response.
func FollowEvents(
	ctx context.Context,
	client ClientInterface,
	params StreamEventsParams,
	handle func(StreamedEvent) error,
) error {
	for wait := minReconnect; ; {
		received, pause, err := followOnce(ctx, client, &params, handle)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx is no error
		case err != nil:
			return err
		case received:
			wait = minReconnect
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(wait, pause)):
		}
		wait = min(2*wait, maxReconnect)
	}
}

// followOnce reads one response. pause is the Retry-After of the response. After an error,
// the caller must not connect again.
func followOnce(
	ctx context.Context, client ClientInterface, params *StreamEventsParams, handle func(StreamedEvent) error,
) (received bool, pause time.Duration, err error) {
	response, err := client.StreamEvents(ctx, params)
	if err != nil {
		return false, 0, nil //nolint:nilerr // the service is not reachable at the moment
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return false, retryAfter(response), streamRefusal(response)
	}
	for reader := NewEventReader(response.Body); ; {
		event, err := reader.Next()
		if last := reader.LastID(); err != nil {
			if last != uuid.Nil {
				params.LastEventID, params.LastEventIDQuery = &last, nil
			}
			return received, 0, nil //nolint:nilerr // the response ended or its connection broke
		}
		if err := handle(event); err != nil {
			return received, 0, err
		}
		received = true
	}
}

func retryAfter(response *http.Response) time.Duration {
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // if the header is absent, seconds is 0
	return time.Duration(seconds) * time.Second
}

// streamRefusal returns an error unless the request can succeed later.
func streamRefusal(response *http.Response) error {
	if response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusTooManyRequests {
		return nil
	}
	var body ErrorResponse
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10)) // without a body, the status is the only information
	_ = json.Unmarshal(text, &body)
	return fmt.Errorf("GET /v1/events returned %d %s: %s", response.StatusCode, body.Error.Code, body.Error.Message)
}
