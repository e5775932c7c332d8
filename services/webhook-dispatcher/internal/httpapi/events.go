package httpapi

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/webhook-dispatcher/internal/eventstream"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// refillRetry is the Retry-After of the 503 response for an unknown event shortly after a failover.
// The consumer may still have to store this event again.
const refillRetry = 5 * time.Second

// streamEvents handles GET /v1/events. The response ends when the client disconnects, when the
// client reads too slowly, or when the process stops.
func (a *API) streamEvents(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	caller := serviceauth.CallerFrom(r.Context())
	filter, err := streamFilter(query, caller.Turns)
	after, afterErr := lastEventID(r.Header, query)
	if err := apierr.Join(err, afterErr); err != nil {
		return err
	}
	cursor, err := a.streamCursor(r, caller.WorkspaceID, after)
	if err != nil {
		return err
	}
	stream, err := a.streams.Open(r.Context(), caller.WorkspaceID, cursor, filter)
	if err != nil {
		return err
	}
	defer stream.Close(r.Context())
	ctx, stop := httpserver.Untimed(r.Context())
	defer stop()
	// Without this call, net/http treats the end of its ReadTimeout as a disconnect of the client.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	telemetry.Stream(ctx)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx must not buffer the response
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	stream.Send(ctx, w, httpserver.Closing(ctx))
	return nil
}

func (a *API) streamCursor(r *http.Request, workspaceID uuid.UUID, after *uuid.UUID) (store.StreamCursor, error) {
	if after == nil {
		return a.store.StreamHead(r.Context(), workspaceID)
	}
	cursor, err := a.store.StreamCursor(r.Context(), workspaceID, *after)
	switch {
	case errors.Is(err, pg.ErrNotFound):
		return cursor, apierr.Validation(
			"last_event_id",
			"names no stored event: it is unknown or has expired. Connect without it.",
		)
	case errors.Is(err, store.ErrEventsMissing):
		unavailable := apierr.Unavailable("The event with this last_event_id")
		unavailable.RetryAfter = refillRetry
		return cursor, unavailable
	}
	return cursor, err
}

// lastEventID returns the id in the header Last-Event-ID. If the header is absent, it returns the
// id in the parameter last_event_id. When an EventSource reconnects, it repeats its first URL, so
// the header has the newer id.
func lastEventID(header http.Header, query url.Values) (*uuid.UUID, error) {
	if text := header.Get("Last-Event-ID"); text != "" {
		query = url.Values{"last_event_id": {text}}
	}
	return httpserver.QueryUUID(query, "last_event_id")
}

// streamFilter returns the filter in the parameter types. turns is true if the caller may read the
// turns of calls in progress. A stream sends turns only if types contains call.turn, because turns
// have no id.
func streamFilter(query url.Values, turns bool) (filter eventstream.Filter, err error) {
	if !query.Has("types") {
		return filter, nil
	}
	if len(query["types"]) > 1 {
		return filter, apierr.Validation("types", "must stand once in the query.")
	}
	// The query parameter can contain webhook.test, which has no effect.
	known := subscriptions.Events()
	if turns {
		known = append(known, eventstream.TurnType)
	}
	for event := range strings.SplitSeq(query.Get("types"), ",") {
		if event = strings.TrimSpace(event); !slices.Contains(known, event) {
			return filter, apierr.Validation(
				"types",
				"must be a comma-separated list of these types: %s.",
				strings.Join(known, ", "),
			)
		}
		filter.Types = append(filter.Types, event)
	}
	filter.Turns = slices.Contains(filter.Types, eventstream.TurnType)
	return filter, nil
}
