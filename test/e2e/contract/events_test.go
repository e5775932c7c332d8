package contract

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const events = "/v1/events"

// streamClient returns the generated client without a time limit. Its responses are not validated,
// because the validation would read a whole response first.
func streamClient(t *testing.T, c *client) *openapi.Client {
	t.Helper()
	api, err := openapi.NewClient(c.base, openapi.WithHTTPClient(&http.Client{Transport: transport("")}),
		openapi.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+c.key)
			return nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// openStream connects a stream. The caller must close the body.
func openStream(t *testing.T, c *client, params openapi.StreamEventsParams) *http.Response {
	t.Helper()
	response, err := streamClient(t, c).StreamEvents(t.Context(), &params)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return response
}

// firstID returns the id in the first comment of a stream.
func firstID(t *testing.T, body io.Reader) uuid.UUID {
	t.Helper()
	for lines := bufio.NewScanner(body); lines.Scan(); {
		if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			return uuid.MustParse(id)
		}
	}
	t.Fatal("the stream ended before its first id")
	return uuid.Nil
}

// readEvents reads the next n events of a stream.
func readEvents(t *testing.T, from *openapi.EventReader, n int) []openapi.StreamedEvent {
	t.Helper()
	var all []openapi.StreamedEvent
	for range n {
		event, err := from.Next()
		if err != nil {
			t.Fatalf("event %d of the stream: %v", len(all)+1, err)
		}
		all = append(all, event)
	}
	return all
}

func streamTypes(all []openapi.StreamedEvent) (types []string) {
	for _, event := range all {
		types = append(types, string(event.Type))
	}
	return types
}

func TestEvents_StreamSendsTheBytesOfTheWebhooks(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	received := w.subscribeAll(t)
	response := openStream(t, w.read, openapi.StreamEventsParams{})
	sharedstack.Equal(t, "status", response.StatusCode, 200)
	sharedstack.Equal(t, "Content-Type", response.Header.Get("Content-Type"), "text/event-stream")
	stream := openapi.NewEventReader(response.Body)
	early := openStream(t, w.read, openapi.StreamEventsParams{})
	start := firstID(t, early.Body)
	_ = early.Body.Close()

	w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1))).text("id"))
	until(t, "the webhooks arrive", func() bool { return len(received()) == 3 })
	streamed := readEvents(t, stream, 3)
	wantTypes := []string{"call.ringing", "call.answered", "call.completed"}
	if got := streamTypes(streamed); !slices.Equal(got, wantTypes) {
		t.Fatalf("types = %v, want %v", got, wantTypes)
	}
	for i, event := range streamed {
		hook := received()[slices.IndexFunc(received(), func(d kit.Delivery) bool { return d.Type == string(event.Type) })]
		sharedstack.Equal(t, "id", event.ID.String(), hook.EventID)
		sharedstack.Equal(t, "data", string(event.Data), string(hook.Body))
		sharedstack.Equal(t, "sequence", hook.Sequence, i+1)
	}

	canceled := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "scheduled_for", ahead())).text("id")
	w.write.want(t, 200, "POST", "/v1/call-requests/"+canceled+"/cancel", nil)
	optIn := readEvents(t, stream, 1)[0]
	sharedstack.Equal(t, "type of the opt-in event", string(optIn.Type), "call_request.canceled")

	for name, params := range map[string]openapi.StreamEventsParams{
		"header": {LastEventID: &streamed[0].ID}, "query": {LastEventIDQuery: &streamed[0].ID},
		"both": {LastEventID: &streamed[0].ID, LastEventIDQuery: &streamed[2].ID},
	} {
		again := readEvents(t, openapi.NewEventReader(openStream(t, w.read, params).Body), 3)
		want := []string{"call.answered", "call.completed", "call_request.canceled"}
		if got := streamTypes(again); !slices.Equal(got, want) {
			t.Errorf("%s: types after the first event = %v, want %v", name, got, want)
		}
	}
	sinceStart := openStream(t, w.read, openapi.StreamEventsParams{LastEventID: &start})
	missed := readEvents(t, openapi.NewEventReader(sinceStart.Body), 4)
	if got, want := streamTypes(missed), append(wantTypes, "call_request.canceled"); !slices.Equal(got, want) {
		t.Errorf("types after the id before the first event = %v, want %v", got, want)
	}
	filtered := openapi.StreamEventsParams{
		LastEventID: &streamed[0].ID,
		Types:       pointer("call_request.canceled,call.completed"),
	}
	found := readEvents(t, openapi.NewEventReader(openStream(t, w.read, filtered).Body), 2)
	if got, want := streamTypes(found), []string{"call.completed", "call_request.canceled"}; !slices.Equal(got, want) {
		t.Errorf("types with a filter = %v, want %v", got, want)
	}
}

func TestEvents_StreamRefusesInvalidParameters(t *testing.T) {
	w, other := workspace(t), workspace(t)
	w.read.want(t, 200, "GET", events, nil)
	w.read.want(t, 200, "GET", events+"?types=call.completed,webhook_subscription.failed,webhook.test", nil)
	for _, query := range []string{
		"last_event_id=" + uuid.NewString(), "last_event_id=x", "last_event_id=urn:uuid:" + uuid.NewString(),
		"last_event_id=", "types=", "types=call.started", "types=call.completed,", "types=call.busy&types=call.failed",
	} {
		w.read.refused(t, 422, "validation_error", "GET", events+"?"+query, nil)
	}
	both := w.read.want(t, 422, "GET", events+"?last_event_id=x&types=y", nil).body
	for _, name := range []string{"last_event_id", "types must"} {
		if !strings.Contains(both, name) {
			t.Errorf("message = %s, want it to contain %q", both, name)
		}
	}
	if got := w.read.send(t, "GET", events, nil, "Last-Event-ID", uuid.NewString()); got.status != 422 {
		t.Errorf("unknown Last-Event-ID = %d, want 422", got.status)
	}
	w.read.refused(t, 422, "validation_error", "GET", events+"?lastEventId=x", nil, "Prefer", "handling=strict")
	w.write.refused(t, 405, "method_not_allowed", "POST", events, nil)
	customer(t, "").refused(t, 401, "invalid_api_key", "GET", events, nil)
	other.operator.want(t, 200, "PATCH", other.admin, set{"features": set{"webhooks": false}})
	other.read.refused(t, 403, "webhooks_not_enabled", "GET", events, nil)
	other.operator.want(t, 200, "PATCH", other.admin, set{"features": set{"api": false}})
	other.read.refused(t, 403, "api_not_enabled", "GET", events, nil)
}

// The ten streams are open at both replicas of webhook-dispatcher, which share one limit.
func TestEvents_EleventhStreamIsRefused(t *testing.T) {
	w := workspace(t)
	var open []*http.Response
	for range 10 {
		response := openStream(t, w.read, openapi.StreamEventsParams{})
		sharedstack.Equal(t, "status", response.StatusCode, 200)
		open = append(open, response)
	}
	refused := w.read.want(t, 429, "GET", events, nil)
	sharedstack.Equal(t, "code", refused.code(), "rate_limited")
	if refused.header.Get("Retry-After") == "" {
		t.Error("the 429 has no Retry-After")
	}
	_ = open[0].Body.Close()
	until(t, "a stream can be opened after another was closed", func() bool {
		return w.read.send(t, "GET", events, nil).status == 200
	})
}

func TestEvents_StreamEndsWhenTheWorkspaceIsSuspended(t *testing.T) {
	w := workspace(t)
	response := openStream(t, w.read, openapi.StreamEventsParams{})
	w.operator.want(t, 200, "PATCH", w.admin, set{"status": "suspended"})
	ended := make(chan error, 1)
	go func() {
		_, err := openapi.NewEventReader(response.Body).Next()
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, io.EOF) {
			t.Errorf("end of the stream = %v, want io.EOF", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the stream of a suspended workspace did not end")
	}
}
