package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// subscriptionView is exactly spec 2.6.
type subscriptionView struct {
	ID                  uuid.UUID           `json:"id"`
	Name                string              `json:"name"`
	URL                 string              `json:"url"`
	Events              []string            `json:"events"`
	Status              subscription.Status `json:"status"`
	SigningSecret       string              `json:"signing_secret"`
	ConsecutiveFailures int                 `json:"consecutive_failures"`
	LastSuccessAt       *string             `json:"last_success_at"`
	LastFailureAt       *string             `json:"last_failure_at"`
	CreatedAt           string              `json:"created_at"`
}

func viewSubscription(s subscription.Subscription) subscriptionView {
	return subscriptionView{
		ID: s.ID, Name: s.Name, URL: s.URL, Events: s.Events, Status: s.Status, SigningSecret: s.MaskedSecret(),
		ConsecutiveFailures: s.ConsecutiveFailures, LastSuccessAt: stampOrNull(s.LastSuccessAt),
		LastFailureAt: stampOrNull(s.LastFailureAt), CreatedAt: stamp(s.CreatedAt()),
	}
}

const storeThis = "Store this secret now: it signs your webhooks and is shown only once."

func (a *API) listSubscriptions(w http.ResponseWriter, r *http.Request) error {
	asked, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	subs, err := a.store.Subscriptions(r.Context(), trust.CallerFrom(r.Context()).WorkspaceID, asked)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(asked, subs, viewSubscription))
}

type createBody struct {
	Name        *string `json:"name"`
	URL         *string `json:"url"`
	Events      []event `json:"events"`
	Description *string `json:"description"`
}

// event is one event type; unlike a string it may not be null.
type event string

// UnmarshalJSON takes strings only.
func (e *event) UnmarshalJSON(raw []byte) error {
	var text *string
	if json.Unmarshal(raw, &text) != nil || text == nil {
		return apierr.Validation("events", "must be an array of event types, each a string.")
	}
	*e = event(*text)
	return nil
}

func types(events []event) []string {
	list := make([]string, len(events))
	for i, e := range events {
		list[i] = string(e)
	}
	return list
}

// subscription checks the fields in the order of contract.md §1: what is missing first, then url, then events.
func (b createBody) subscription(a *API) (sub subscription.Subscription, err error) {
	if b.Name == nil {
		return sub, apierr.Validation("name", "is required: say what this subscription is for.")
	}
	if b.URL == nil {
		return sub, apierr.Validation("url", "is required: the https address that receives the events.")
	}
	sub.Name, sub.URL = *b.Name, *b.URL
	if b.Description != nil {
		sub.Description = *b.Description
	}
	if err := subscription.CheckName(sub.Name); err != nil {
		return sub, err
	}
	if err := subscription.CheckDescription(sub.Description); err != nil {
		return sub, err
	}
	if sub.URL, err = subscription.CheckURL(sub.URL, a.reachable); err != nil {
		return sub, err
	}
	sub.Events, err = subscription.CheckEvents(types(b.Events))
	return sub, err
}

func (a *API) createSubscription(w http.ResponseWriter, r *http.Request) error {
	var body createBody
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	sub, err := body.subscription(a)
	if err != nil {
		return err
	}
	sub.WorkspaceID = trust.CallerFrom(r.Context()).WorkspaceID
	if sub.ID, err = uuid.NewV7(); err != nil {
		return fmt.Errorf("draw subscription id: %w", err)
	}
	secret, err := subscription.NewSecret()
	if err != nil {
		return err
	}
	if err := a.store.Create(r.Context(), sub, secret); err != nil {
		return err
	}
	noStore(w)
	return httpserver.WriteJSON(w, http.StatusCreated, struct {
		ID            uuid.UUID `json:"id"`
		SigningSecret string    `json:"signing_secret"`
		StoreThis     string    `json:"store_this"`
	}{sub.ID, secret, storeThis})
}

type changeBody struct {
	URL    *string  `json:"url"`
	Events *[]event `json:"events"`
	Status *string  `json:"status"`
}

// change checks what a PATCH brings; a field that is absent or null stays as it is.
func (b changeBody) change(a *API) (change store.Change, err error) {
	if b.URL != nil {
		url, err := subscription.CheckURL(*b.URL, a.reachable)
		if err != nil {
			return change, err
		}
		change.URL = &url
	}
	if b.Events != nil {
		if change.Events, err = subscription.CheckEvents(types(*b.Events)); err != nil {
			return change, err
		}
	}
	if b.Status != nil {
		status, err := subscription.CheckStatus(*b.Status)
		if err != nil {
			return change, err
		}
		change.Status = &status
	}
	return change, nil
}

func (a *API) changeSubscription(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionThing)
	if err != nil {
		return err
	}
	workspaceID := trust.CallerFrom(r.Context()).WorkspaceID
	if _, err := a.store.Subscription(r.Context(), workspaceID, id); err != nil {
		return found(err, subscriptionThing) // 404 before the body's own faults
	}
	var body changeBody
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	change, err := body.change(a)
	if err != nil {
		return err
	}
	sub, err := a.store.Change(r.Context(), workspaceID, id, change)
	if err != nil {
		return found(err, subscriptionThing)
	}
	a.queued()
	return httpserver.WriteJSON(w, http.StatusOK, viewSubscription(sub))
}

func (a *API) deleteSubscription(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionThing)
	if err != nil {
		return err
	}
	if err := a.store.Delete(r.Context(), trust.CallerFrom(r.Context()).WorkspaceID, id); err != nil {
		return found(err, subscriptionThing)
	}
	a.deleted()
	return httpserver.WriteJSON(w, http.StatusOK, struct {
		Deleted bool      `json:"deleted"`
		ID      uuid.UUID `json:"id"`
	}{true, id})
}

func (a *API) rotateSecret(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionThing)
	if err != nil {
		return err
	}
	secret, err := subscription.NewSecret()
	if err != nil {
		return err
	}
	if err := a.store.Rotate(r.Context(), trust.CallerFrom(r.Context()).WorkspaceID, id, secret); err != nil {
		return found(err, subscriptionThing)
	}
	noStore(w)
	return httpserver.WriteJSON(w, http.StatusOK, struct {
		SigningSecret string `json:"signing_secret"`
		StoreThis     string `json:"store_this"`
	}{secret, storeThis})
}

func (a *API) testSubscription(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionThing)
	if err != nil {
		return err
	}
	eventID, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("draw event id: %w", err)
	}
	ev, err := delivery.NewTest(eventID, trust.CallerFrom(r.Context()).WorkspaceID, id, httpserver.Version, time.Now())
	if err != nil {
		return err
	}
	ev.Traceparent = telemetry.Carrier(r.Context())
	if err := a.store.EnqueueTest(r.Context(), id, ev); err != nil {
		return found(err, subscriptionThing)
	}
	a.queued()
	return httpserver.WriteJSON(w, http.StatusAccepted, struct {
		Queued     bool      `json:"queued"`
		DeliveryID uuid.UUID `json:"delivery_id"`
		EventID    uuid.UUID `json:"event_id"`
	}{true, delivery.ID(id, eventID), eventID})
}

// noStore keeps a secret out of every cache on its way.
func noStore(w http.ResponseWriter) { w.Header().Set("Cache-Control", "no-store") }
