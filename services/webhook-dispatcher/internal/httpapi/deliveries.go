package httpapi

import (
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// operatorView is a subscription in the operator API. It contains the fields that the customer sees
// and also the health.
type operatorView struct {
	openapi.WebhookSubscription
	Description string             `json:"description"`
	WarnedAt    *openapi.Timestamp `json:"warned_at"`
	LastError   *string            `json:"last_error"`
	LastCause   *string            `json:"last_cause"`
	Flag        *flagView          `json:"flag"`
}

// flagView is present only if the status of the subscription is failed.
type flagView struct {
	FailedAt openapi.Timestamp `json:"failed_at"`
	Reason   string            `json:"reason"`
}

func viewForOperator(s subscriptions.Subscription) operatorView {
	view := operatorView{
		WebhookSubscription: viewSubscription(s), Description: s.Description, WarnedAt: openapi.TimestampOrNull(s.WarnedAt),
		LastError: s.LastError, LastCause: s.LastFailure(),
	}
	if s.FailedAt != nil && s.FailedReason != nil {
		view.Flag = &flagView{FailedAt: openapi.TimestampOf(*s.FailedAt), Reason: *s.FailedReason}
	}
	return view
}

func (a *API) listFlagged(w http.ResponseWriter, r *http.Request) error {
	pageReq, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	subs, err := a.store.Subscriptions(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, pageReq)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(pageReq, subs, viewForOperator))
}

func (a *API) readFlagged(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionResource)
	if err != nil {
		return err
	}
	sub, err := a.store.Subscription(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id)
	if err != nil {
		return notFound(err, subscriptionResource)
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewForOperator(sub))
}

type deliveryView struct {
	ID            uuid.UUID          `json:"id"`
	EventID       uuid.UUID          `json:"event_id"`
	EventType     string             `json:"event_type"`
	CallID        *uuid.UUID         `json:"call_id"`
	Sequence      int32              `json:"sequence"`
	Status        deliveries.Status  `json:"status"`
	Attempts      int                `json:"attempts"`
	Replays       int                `json:"replays"`
	LastCode      *int               `json:"last_code"`
	LastError     *string            `json:"last_error"`
	NextAttemptAt *openapi.Timestamp `json:"next_attempt_at"`
	DoneAt        *openapi.Timestamp `json:"done_at"`
	ErasedAt      *openapi.Timestamp `json:"erased_at"`
	CreatedAt     openapi.Timestamp  `json:"created_at"`
}

func viewDelivery(d store.Delivery) deliveryView {
	return deliveryView{
		ID: d.ID, EventID: d.EventID, EventType: d.EventType, CallID: d.CallID, Sequence: d.Sequence, Status: d.Status,
		Attempts: d.Attempts, Replays: d.Replays, LastCode: d.LastCode, LastError: d.LastError,
		NextAttemptAt: openapi.TimestampOrNull(d.NextAttemptAt),
		DoneAt:        openapi.TimestampOrNull(d.DoneAt), ErasedAt: openapi.TimestampOrNull(d.ErasedAt),
		CreatedAt: openapi.TimestampOf(d.CreatedAt),
	}
}

type attemptView struct {
	Replay     int               `json:"replay"`
	Attempt    int               `json:"attempt"`
	At         openapi.Timestamp `json:"at"`
	DurationMs int               `json:"duration_ms"`
	Code       *int              `json:"code"`
	Error      *string           `json:"error"`
	Cause      *string           `json:"cause"`
	Excerpt    *string           `json:"excerpt"`
}

func viewAttempt(t store.Attempt) attemptView {
	return attemptView{Replay: t.Replay, Attempt: t.No, At: openapi.TimestampOf(t.At), DurationMs: t.Ms, Code: t.Code,
		Error: t.Error, Cause: t.CauseText(), Excerpt: t.Excerpt}
}

// listDeliveries lists the deliveries of a subscription for operators. It has the filters of the
// customer's list and also the filter object_id: the id of a call, a call request or a
// subscription.
func (a *API) listDeliveries(w http.ResponseWriter, r *http.Request) error {
	object, err := httpserver.QueryUUID(r.URL.Query(), "object_id")
	if err != nil {
		return err
	}
	rows, pageReq, err := a.findDeliveries(r, object)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(pageReq, rows, viewDelivery))
}

// findDeliveries returns the deliveries of the subscription in the path that match the query. If
// object is not nil, it returns only the deliveries of events of this object.
func (a *API) findDeliveries(
	r *http.Request, object *uuid.UUID,
) (rows []store.Delivery, pageReq page.Request, err error) {
	id, err := httpserver.PathID(r, "id", subscriptionResource)
	if err != nil {
		return nil, pageReq, err
	}
	if pageReq, err = page.Parse(r.URL.Query()); err != nil {
		return nil, pageReq, err
	}
	filter, err := filterOf(r.URL.Query())
	if err != nil {
		return nil, pageReq, err
	}
	filter.ObjectID = object
	rows, err = a.store.Deliveries(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id, filter, pageReq)
	return rows, pageReq, notFound(err, subscriptionResource)
}

func filterOf(q url.Values) (filter store.Filter, err error) {
	status, err := httpserver.QueryEnum(q, "status", deliveries.Statuses()...)
	if err != nil {
		return filter, err
	}
	filter.Status = deliveries.Status(status)
	if filter.EventType, err = httpserver.QueryEnum(q, "event_type", subscriptions.Events()...); err != nil {
		return filter, err
	}
	filter.CallID, err = httpserver.QueryUUID(q, "call_id")
	return filter, err
}

func (a *API) readDelivery(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionResource)
	if err != nil {
		return err
	}
	deliveryID, err := httpserver.PathID(r, "delivery_id", deliveryResource)
	if err != nil {
		return err
	}
	row, err := a.store.Delivery(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id, deliveryID)
	if err != nil {
		return notFound(err, deliveryResource)
	}
	attempts, err := a.store.Attempts(r.Context(), deliveryID)
	if err != nil {
		return err
	}
	view := struct {
		deliveryView
		History []attemptView `json:"history"`
	}{viewDelivery(row), make([]attemptView, 0, len(attempts))}
	for _, attempt := range attempts {
		view.History = append(view.History, viewAttempt(attempt))
	}
	return httpserver.WriteJSON(w, http.StatusOK, view)
}
