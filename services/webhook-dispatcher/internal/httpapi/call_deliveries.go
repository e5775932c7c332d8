package httpapi

import (
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

type callDeliveryView struct {
	ID             uuid.UUID          `json:"id"`
	SubscriptionID uuid.UUID          `json:"subscription_id"`
	EventID        uuid.UUID          `json:"event_id"`
	EventType      string             `json:"event_type"`
	Status         string             `json:"status"`
	CreatedAt      openapi.Timestamp  `json:"created_at"`
	NextAttemptAt  *openapi.Timestamp `json:"next_attempt_at"`
	Attempts       []callAttemptView  `json:"attempts"`
}

type callAttemptView struct {
	At         openapi.Timestamp `json:"at"`
	StatusCode *int              `json:"status_code"`
	Error      *string           `json:"error"`
	DurationMs int               `json:"duration_ms"`
}

// listCallDeliveries handles GET /internal/v1/calls/{call_id}/deliveries. It returns the deliveries
// of all events of a call or a call request with their attempts, for the gateway's timeline. The
// list is empty for an unknown id.
func (a *API) listCallDeliveries(w http.ResponseWriter, r *http.Request) error {
	call, err := httpserver.PathID(r, "call_id", "call")
	if err != nil {
		return err
	}
	found, err := a.store.DeliveriesOfCall(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, call)
	if err != nil {
		return err
	}
	views := make([]callDeliveryView, len(found))
	for i, d := range found {
		views[i] = viewCallDelivery(d)
	}
	return httpserver.WriteJSON(w, http.StatusOK, map[string]any{"data": views})
}

func viewCallDelivery(d store.CallDelivery) callDeliveryView {
	view := callDeliveryView{
		ID: d.ID, SubscriptionID: d.SubscriptionID, EventID: d.EventID, EventType: d.EventType, Status: d.Status,
		CreatedAt: openapi.TimestampOf(d.CreatedAt), Attempts: []callAttemptView{},
	}
	if d.Status == string(deliveries.Queued) { // the next attempt of a held delivery is unknown
		view.NextAttemptAt = openapi.TimestampOrNull(d.NextAttemptAt)
	}
	for _, t := range d.Attempts {
		view.Attempts = append(view.Attempts, callAttemptView{
			At: openapi.TimestampOf(t.At), StatusCode: t.Code, Error: t.CauseText(), DurationMs: t.Ms,
		})
	}
	return view
}
