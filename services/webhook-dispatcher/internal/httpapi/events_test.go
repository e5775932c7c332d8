package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit/pgtest"
)

// A HEAD request must not open a stream that never ends.
func TestEvents_HEADRequestEndsImmediately(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	token, err := h.gateway.SignCaller(
		"webhook-dispatcher",
		serviceauth.Caller{WorkspaceID: ws, RequestID: uuid.New(), Access: serviceauth.Read, Webhooks: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/v1/events", http.NoBody)
	req.Header.Set(serviceauth.CallerHeader, token)
	rec := httptest.NewRecorder()
	h.handler.ServeHTTP(rec, req)
	wantEqual(t, "status", rec.Code, http.StatusOK)
	wantEqual(t, "Content-Type", rec.Header().Get("Content-Type"), "text/event-stream")
	wantEqual(t, "length of the body", rec.Body.Len(), 0)
	var open int
	if err := h.pool.QueryRow(t.Context(), `SELECT count(*) FROM open_streams`).Scan(&open); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "open streams", open, 0)
}

func TestEvents_TypeFilterAcceptsTurnsIfTheClientMayReadThem(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	token, err := h.gateway.SignCaller("webhook-dispatcher", serviceauth.Caller{
		WorkspaceID: uuid.New(), RequestID: uuid.New(), Access: serviceauth.Read, Turns: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/v1/events?types=call.turn", http.NoBody)
	req.Header.Set(serviceauth.CallerHeader, token)
	rec := httptest.NewRecorder()
	h.handler.ServeHTTP(rec, req)
	wantEqual(t, "status", rec.Code, http.StatusOK)
}

// Shortly after a failover, an event can be unknown because the consumer has not stored it again
// yet.
func TestEvents_UnknownIDGives503ShortlyAfterAFailover(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	const another = `
		CREATE OR REPLACE FUNCTION database_timeline() RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'another' $$`
	if _, err := pgtest.Owner(t, h.pool, schema).Exec(t.Context(), another); err != nil {
		t.Fatal(err)
	}
	path := "/v1/events?last_event_id=" + uuid.NewString()
	got := h.customer(ws, http.MethodGet, path, "")
	wantStatus(t, "unknown id", got, http.StatusServiceUnavailable, "unavailable")
	wantEqual(t, "Retry-After", got.header.Get("Retry-After"), "5")
	if _, err := h.pool.Exec(t.Context(), `
		INSERT INTO database_timelines VALUES ('another', now() - interval '1 hour')`); err != nil {
		t.Fatal(err)
	}
	wantStatus(t, "unknown id, later", h.customer(ws, http.MethodGet, path, ""), 422, "validation_error")
}

func TestEvents_InvalidParametersAreRefused(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	for _, query := range []string{
		"last_event_id=x", "last_event_id=" + uuid.NewString(), "last_event_id=", "types=", "types=call.started",
		"types=call.busy&types=call.failed", "types=call.turn",
	} {
		got := h.customer(ws, http.MethodGet, "/v1/events?"+query, "")
		wantEqual(t, "status of "+query, got.status, http.StatusUnprocessableEntity)
		wantEqual(t, "code of "+query, got.code(), "validation_error")
	}
}
