package httpapi

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// replayBatch is the maximum number of deliveries that one request replays.
const replayBatch = 1000

// replayView is the response to a replay. HasMore is true if another request would queue more
// deliveries.
type replayView struct {
	Replayed int  `json:"replayed"`
	HasMore  bool `json:"has_more"`
}

// replayOne replays one delivery. The request body is optional.
func (a *API) replayOne(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionResource)
	if err != nil {
		return err
	}
	deliveryID, err := httpserver.PathID(r, "delivery_id", deliveryResource)
	if err != nil {
		return err
	}
	workspaceID := serviceauth.CallerFrom(r.Context()).WorkspaceID
	if _, err := a.store.Delivery(r.Context(), workspaceID, id, deliveryID); err != nil {
		return notFound(err, deliveryResource)
	}
	selection := store.Replay{DeliveryID: deliveryID}
	var body *struct {
		Before *string `json:"before"`
	}
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	if body != nil {
		if selection.Before, err = timeOrZero("before", body.Before); err != nil {
			return err
		}
	}
	done, err := a.replay(r, id, selection)
	if err != nil {
		return err
	}
	if done.Replayed == 0 {
		row, err := a.store.Delivery(r.Context(), workspaceID, id, deliveryID)
		if err != nil {
			return notFound(err, deliveryResource)
		}
		if row.DoneAt != nil && (selection.Before.IsZero() || row.DoneAt.Before(selection.Before)) {
			return apierr.NotFound("event of this delivery") // the body of the event was deleted or erased
		}
	}
	return httpserver.WriteJSON(w, http.StatusAccepted, done)
}

// replayMany replays the deliveries of a call, or the deliveries that failed or were skipped since
// a time.
func (a *API) replayMany(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionResource)
	if err != nil {
		return err
	}
	if _, err := a.store.Subscription(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id); err != nil {
		// an unknown subscription gives 404 before the body is checked
		return notFound(err, subscriptionResource)
	}
	var body replayBody
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	selection, err := body.replay()
	if err != nil {
		return err
	}
	done, err := a.replay(r, id, selection)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusAccepted, done)
}

func (a *API) replay(r *http.Request, subscriptionID uuid.UUID, selection store.Replay) (replayView, error) {
	selection.Limit, selection.Traceparent = replayBatch, telemetry.Carrier(r.Context())
	done, err := a.store.Replay(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, subscriptionID, selection)
	if err != nil {
		return replayView{}, notFound(err, subscriptionResource)
	}
	if done.Count > 0 {
		a.wakeDispatcher()
	}
	return replayView{Replayed: done.Count, HasMore: done.More}, nil
}

// replayBody is the request body of replayMany. It contains either a call_id, or a status and a
// time.
type replayBody struct {
	CallID *string `json:"call_id"`
	Status *string `json:"status"`
	Since  *string `json:"since"`
	Before *string `json:"before"`
}

func (b replayBody) replay() (selection store.Replay, err error) {
	if b.CallID != nil {
		if b.Status != nil || b.Since != nil {
			return selection, apierr.Validation("call_id", "stands alone or with before: status and since choose among all calls.")
		}
		selection.CallID, err = uuid.Parse(*b.CallID)
		if err != nil || len(*b.CallID) != len(selection.CallID.String()) || selection.CallID == uuid.Nil {
			return selection, apierr.Validation("call_id", "must be a call's UUID.")
		}
		selection.Before, err = timeOrZero("before", b.Before)
		return selection, err
	}
	if b.Status == nil {
		return selection, apierr.Validation("status", "is required without call_id: failed or skipped.")
	}
	selection.Status = deliveries.Status(*b.Status)
	if selection.Status != deliveries.Failed && selection.Status != deliveries.Skipped {
		return selection, apierr.Validation("status", "must be failed or skipped.")
	}
	if b.Since == nil {
		return selection, apierr.Validation("since", "is required with status: the time from which deliveries ended.")
	}
	if selection.Since, err = timeOrZero("since", b.Since); err != nil {
		return selection, err
	}
	selection.Before, err = timeOrZero("before", b.Before)
	return selection, err
}

func timeOrZero(field string, text *string) (time.Time, error) {
	if text == nil {
		return time.Time{}, nil
	}
	at, err := httpserver.ParseTime(*text)
	if err != nil {
		return time.Time{}, apierr.Validation(field, "must be a date-time like 2026-06-04T09:00:00Z, with an offset.")
	}
	return at, nil
}
