package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// readSubscription handles GET /v1/webhook-subscriptions/{id}. The response also contains the cause
// of the last failure and, if the status is failed, the reason for this status.
func (a *API) readSubscription(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionResource)
	if err != nil {
		return err
	}
	sub, err := a.store.Subscription(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id)
	if err != nil {
		return notFound(err, subscriptionResource)
	}
	short := viewSubscription(sub)
	return httpserver.WriteJSON(w, http.StatusOK, openapi.WebhookSubscriptionDetail{
		ID:                  short.ID,
		Name:                short.Name,
		URL:                 short.URL,
		Events:              short.Events,
		Status:              short.Status,
		SigningSecret:       short.SigningSecret,
		ConsecutiveFailures: short.ConsecutiveFailures,
		LastSuccessAt:       short.LastSuccessAt,
		LastFailureAt:       short.LastFailureAt,
		CreatedAt:           short.CreatedAt,
		FailureReason:       sub.FailedReason,
		LastError:           sub.LastFailure(),
	})
}

func viewForCustomer(d store.Delivery, attempts []store.Attempt) openapi.WebhookDelivery {
	view := openapi.WebhookDelivery{
		ID: d.ID, EventID: d.EventID, EventType: openapi.EventType(d.EventType), CallID: d.CallID,
		Status: openapi.WebhookDeliveryStatus(d.Status), Attempts: make([]openapi.WebhookAttempt, len(attempts)),
	}
	if d.Status == deliveries.Queued {
		view.NextAttemptAt = openapi.TimestampOrNull(d.NextAttemptAt)
	}
	for i, t := range attempts {
		view.Attempts[i] = openapi.WebhookAttempt{
			At: openapi.TimestampOf(t.At), StatusCode: statusCode(t), Error: t.CauseText(), DurationMs: int32(t.Ms),
		}
	}
	return view
}

func statusCode(t store.Attempt) *int32 {
	if t.Code == nil {
		return nil
	}
	return new(int32(*t.Code))
}

// listForCustomer handles GET /v1/webhook-subscriptions/{id}/deliveries.
func (a *API) listForCustomer(w http.ResponseWriter, r *http.Request) error {
	rows, pageReq, err := a.findDeliveries(r, nil)
	if err != nil {
		return err
	}
	// one row more than the page may have been found; the attempts of that row are read but not
	// used
	attempts, err := a.store.NewestAttempts(r.Context(), false, rows...)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(pageReq, rows, func(d store.Delivery) openapi.WebhookDelivery {
		return viewForCustomer(d, attempts[d.ID])
	}))
}

// readForCustomer handles GET /v1/webhook-deliveries/{id}.
func (a *API) readForCustomer(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", deliveryResource)
	if err != nil {
		return err
	}
	row, err := a.store.DeliveryOf(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id)
	if err != nil {
		return notFound(err, deliveryResource)
	}
	attempts, err := a.store.NewestAttempts(r.Context(), true, row)
	if err != nil {
		return err
	}
	body, err := a.store.Body(r.Context(), row)
	if err != nil {
		return err
	}
	short := viewForCustomer(row, attempts[id])
	view := openapi.WebhookDeliveryDetail{
		ID: short.ID, EventID: short.EventID, EventType: short.EventType, CallID: short.CallID, Status: short.Status,
		NextAttemptAt: short.NextAttemptAt, Attempts: make([]openapi.WebhookAttemptDetail, len(short.Attempts)),
	}
	if json.Valid(body) { // the body is empty if it was erased
		view.Event = body
	}
	for i, t := range attempts[id] {
		shown := short.Attempts[i]
		view.Attempts[i] = openapi.WebhookAttemptDetail{
			At:           shown.At,
			StatusCode:   shown.StatusCode,
			Error:        shown.Error,
			DurationMs:   shown.DurationMs,
			ResponseBody: t.Excerpt,
		}
		if t.Sent() {
			view.Attempts[i].RequestHeaders = new(deliveries.MaskedHeaders(row.EventID, id, t.No, t.At))
		}
	}
	return httpserver.WriteJSON(w, http.StatusOK, view)
}

// resend handles POST /v1/webhook-deliveries/{id}/resend. The request has no body.
func (a *API) resend(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", deliveryResource)
	if err != nil {
		return err
	}
	queued, err := a.resendDelivery(r, id)
	if err != nil {
		return err
	}
	attempts, err := a.store.NewestAttempts(r.Context(), false, queued)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusAccepted, viewForCustomer(queued, attempts[id]))
}

// resendForOperator handles the resend of a delivery in the operator API. It has the same effect as
// resend.
func (a *API) resendForOperator(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionResource)
	if err != nil {
		return err
	}
	deliveryID, err := httpserver.PathID(r, "delivery_id", deliveryResource)
	if err != nil {
		return err
	}
	if _, err := a.store.Delivery(
		r.Context(),
		serviceauth.CallerFrom(r.Context()).WorkspaceID,
		id,
		deliveryID,
	); err != nil {
		return notFound(err, deliveryResource)
	}
	queued, err := a.resendDelivery(r, deliveryID)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusAccepted, viewDelivery(queued))
}

func (a *API) resendDelivery(r *http.Request, id uuid.UUID) (store.Delivery, error) {
	queued, err := a.store.Resend(
		r.Context(),
		serviceauth.CallerFrom(r.Context()).WorkspaceID,
		id,
		telemetry.Carrier(r.Context()),
	)
	if errors.Is(err, store.ErrErased) {
		return queued, apierr.Conflict(
			"invalid_state",
			"The event of this delivery was erased or has expired, so it cannot be sent again.",
		)
	}
	if errors.Is(err, store.ErrInProgress) {
		return queued, apierr.Conflict(
			"invalid_state",
			"A retry of this delivery is in progress. Read the delivery for its result, and send the request again if needed.",
		)
	}
	if err != nil {
		return queued, notFound(err, deliveryResource)
	}
	a.wakeDispatcher()
	return queued, nil
}

// periodBody is the request body of replayPeriod.
type periodBody struct {
	Since      *string `json:"since"`
	Until      *string `json:"until"`
	OnlyFailed *bool   `json:"only_failed"`
}

// period returns the period of the request. If until is absent, the period ends now.
func (b periodBody) period(now time.Time) (period store.Period, err error) {
	if b.Since == nil {
		return period, apierr.Validation("since", "is required: the time from which events were created.")
	}
	if period.Since, err = timeOrZero("since", b.Since); err != nil {
		return period, err
	}
	if period.Until, err = timeOrZero("until", b.Until); err != nil {
		return period, err
	}
	if b.Until == nil {
		period.Until = now
	} else if !period.Since.Before(period.Until) {
		return period, apierr.Validation("until", "must be later than since.")
	}
	period.OnlyFailed = b.OnlyFailed != nil && *b.OnlyFailed
	return period, nil
}

// replayPeriod handles POST /v1/webhook-subscriptions/{id}/replay.
func (a *API) replayPeriod(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionResource)
	if err != nil {
		return err
	}
	workspaceID := serviceauth.CallerFrom(r.Context()).WorkspaceID
	if _, err := a.store.Subscription(r.Context(), workspaceID, id); err != nil {
		// an unknown subscription gives 404 before the body is checked
		return notFound(err, subscriptionResource)
	}
	var body periodBody
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	period, err := body.period(time.Now())
	if err != nil {
		return err
	}
	period.Traceparent = telemetry.Carrier(r.Context())
	count, err := a.store.ReplayPeriod(r.Context(), workspaceID, id, period)
	if errors.Is(err, store.ErrTooMany) {
		return apierr.Validation("since", "and until select more than %d deliveries: use shorter periods.", store.MaxReplay)
	}
	if err != nil {
		return notFound(err, subscriptionResource)
	}
	if count > 0 {
		a.wakeDispatcher()
	}
	return httpserver.WriteJSON(w, http.StatusAccepted, openapi.WebhookReplayQueued{Deliveries: int32(count)})
}
