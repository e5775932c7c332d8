package openapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
)

func message(id uuid.UUID, data string) string {
	return fmt.Sprintf("id: %s\nevent: call.completed\ndata: %s\n\n", id, data)
}

func TestEventReader_ReadsMessagesAndDropsAnIncompleteOne(t *testing.T) {
	t.Parallel()
	first, second := uuid.New(), uuid.New()
	start := uuid.New()
	text := ": open\nid: " + start.String() + "\n\n" + message(first, "{}") + ": keep-alive\n\nid:" + second.String() +
		"\r\nevent:call.busy\r\ndata:{\r\ndata: }\r\n\r\n" + strings.TrimSuffix(message(uuid.New(), "{}"), "\n")
	reader := NewEventReader(strings.NewReader(text))
	for _, want := range []StreamedEvent{
		{ID: first, Type: EventTypeCallCompleted, Data: []byte("{}")},
		{ID: second, Type: EventTypeCallBusy, Data: []byte("{\n}")},
	} {
		got, err := reader.Next()
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		if got.ID != want.ID {
			t.Errorf("ID = %s, want %s", got.ID, want.ID)
		}
		if got.Type != want.Type {
			t.Errorf("Type = %s, want %s", got.Type, want.Type)
		}
		if string(got.Data) != string(want.Data) {
			t.Errorf("Data = %q, want %q", got.Data, want.Data)
		}
	}
	if _, err := reader.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("Next at the end = %v, want io.EOF", err)
	}
	if got := reader.LastID(); got != second {
		t.Errorf("LastID = %s, want the id of the last complete message, %s", got, second)
	}
}

// A comment can contain the id of an event that the client does not receive. The client must resume
// after this id.
func TestFollowEvents_ResumesAfterTheIDOfAComment(t *testing.T) {
	t.Parallel()
	start, event, skipped := uuid.New(), uuid.New(), uuid.New()
	responses := []string{
		": open\nid: " + start.String() + "\n\n",
		": open\nid: " + start.String() + "\n\n" + message(event, "{}") + ": keep-alive\nid: " + skipped.String() + "\n\n",
		message(uuid.New(), "{}"),
	}
	var resumed []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resumed = append(resumed, r.Header.Get("Last-Event-ID"))
		_, _ = io.WriteString(w, responses[min(len(resumed), len(responses))-1])
	}))
	defer server.Close()
	client, err := NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	received := 0
	err = FollowEvents(ctx, client, StreamEventsParams{}, func(got StreamedEvent) error {
		if received++; received == 2 {
			stop()
		} else if got.ID != event {
			t.Errorf("ID of the first event = %s, want %s", got.ID, event)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("FollowEvents: %v", err)
	}
	if want := []string{"", start.String(), skipped.String()}; !slices.Equal(resumed, want) {
		t.Errorf("Last-Event-ID of the requests = %q, want %q", resumed, want)
	}
}

// The server ends each response after one event and a part of the next event. It responds to every
// second request with status 503.
func TestFollowEvents_ResumesAfterTheLastEvent(t *testing.T) {
	t.Parallel()
	ids := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	var requests int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests++; requests%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		next := 0
		if last := r.Header.Get("Last-Event-ID"); last != "" {
			next = slices.Index(ids, uuid.MustParse(last)) + 1
		}
		if next < len(ids) {
			_, _ = io.WriteString(w, message(ids[next], "{}")+"id: "+uuid.NewString()+"\ndata: {}\n")
		}
	}))
	defer server.Close()
	client, err := NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var got []uuid.UUID
	err = FollowEvents(ctx, client, StreamEventsParams{}, func(event StreamedEvent) error {
		if got = append(got, event.ID); len(got) == len(ids) {
			stop()
		}
		return nil
	})
	if err != nil {
		t.Fatalf("FollowEvents: %v", err)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("events = %v, want %v", got, ids)
	}
}

func TestFollowEvents_ReturnsTheErrorOfA4xxResponse(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"error":{"code":"validation_error","message":"last_event_id is unknown."}}`)
	}))
	defer server.Close()
	client, err := NewClient(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	err = FollowEvents(t.Context(), client, StreamEventsParams{}, func(StreamedEvent) error { return nil })
	if err == nil {
		t.Fatal("FollowEvents = nil, want an error")
	}
	if want := "GET /v1/events returned 422 validation_error: last_event_id is unknown."; err.Error() != want {
		t.Errorf("FollowEvents = %q, want %q", err, want)
	}
}
