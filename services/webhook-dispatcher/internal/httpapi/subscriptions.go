package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/instant"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// viewSubscription is exactly spec 2.6.
func viewSubscription(s subscription.Subscription) openapi.WebhookSubscription {
	return openapi.WebhookSubscription{
		ID: s.ID, Name: s.Name, URL: s.URL, Events: s.Events, Status: openapi.WebhookSubscriptionStatus(s.Status),
		SigningSecret: s.MaskedSecret(), ConsecutiveFailures: s.ConsecutiveFailures, LastSuccessAt: instant.ShownOrNull(s.LastSuccessAt),
		LastFailureAt: instant.ShownOrNull(s.LastFailureAt), CreatedAt: s.CreatedAt(),
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

// body is a request body, and what of its text the generated type does not keep: whether a url was given at all.
type body[Fields any] struct {
	fields  Fields
	members map[string]json.RawMessage
}

// UnmarshalJSON also refuses what is no string among the events: null would read as one.
func (b *body[Fields]) UnmarshalJSON(raw []byte) error {
	var events []json.RawMessage
	if json.Unmarshal(raw, &b.members) == nil && json.Unmarshal(b.members["events"], &events) == nil &&
		slices.ContainsFunc(events, func(e json.RawMessage) bool { return e[0] != '"' }) {
		return apierr.Validation("events", "must be an array of event types, each a string.")
	}
	return json.Unmarshal(raw, &b.fields) //nolint:wrapcheck // DecodeJSON looks at it
}

// newSubscription checks the fields in the order of contract.md §1: what is missing first, then url, then events.
func (a *API) newSubscription(b body[openapi.CreateWebhookSubscription]) (sub subscription.Subscription, err error) {
	sub.Name = b.fields.Name
	if b.fields.Description != nil {
		sub.Description = *b.fields.Description
	}
	if err := subscription.CheckName(sub.Name); err != nil {
		return sub, err
	}
	if raw, given := b.members["url"]; !given || string(raw) == "null" {
		return sub, apierr.Validation("url", "is required: the https address that receives the events.")
	}
	if err := subscription.CheckDescription(sub.Description); err != nil {
		return sub, err
	}
	if sub.URL, err = subscription.CheckURL(b.fields.URL, a.reachable); err != nil {
		return sub, err
	}
	sub.Events, err = subscription.CheckEvents(b.fields.Events)
	return sub, err
}

func (a *API) createSubscription(w http.ResponseWriter, r *http.Request) error {
	var asked body[openapi.CreateWebhookSubscription]
	if err := httpserver.DecodeJSON(r, &asked); err != nil {
		return err
	}
	sub, err := a.newSubscription(asked)
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
	return httpserver.WriteJSON(w, http.StatusCreated, openapi.WebhookSubscriptionCreated{ID: sub.ID, SigningSecret: secret, StoreThis: storeThis})
}

// change checks what a PATCH brings; a field that is absent or null stays as it is.
func (a *API) change(b openapi.UpdateWebhookSubscription) (change store.Change, err error) {
	if b.URL != nil {
		url, err := subscription.CheckURL(*b.URL, a.reachable)
		if err != nil {
			return change, err
		}
		change.URL = &url
	}
	if b.Events != nil {
		if change.Events, err = subscription.CheckEvents(*b.Events); err != nil {
			return change, err
		}
	}
	if b.Status != nil {
		status, err := subscription.ParseStatus([]byte(strconv.Quote(*b.Status)))
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
	var asked body[openapi.UpdateWebhookSubscription]
	if err := httpserver.DecodeJSON(r, &asked); err != nil {
		return err
	}
	change, err := a.change(asked.fields)
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
	return httpserver.WriteJSON(w, http.StatusOK, openapi.WebhookSubscriptionDeleted{Deleted: true, ID: id})
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
	return httpserver.WriteJSON(w, http.StatusOK, openapi.WebhookSecret{SigningSecret: secret, StoreThis: storeThis})
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
	ev, err := delivery.NewTest(eventID, trust.CallerFrom(r.Context()).WorkspaceID, id, time.Now())
	if err != nil {
		return err
	}
	ev.Traceparent = telemetry.Carrier(r.Context())
	if err := a.store.EnqueueTest(r.Context(), id, ev); err != nil {
		return found(err, subscriptionThing)
	}
	a.queued()
	return httpserver.WriteJSON(w, http.StatusAccepted, openapi.WebhookTestQueued{
		Queued: true, DeliveryID: delivery.ID(id, eventID), EventID: eventID,
	})
}

// noStore keeps a secret out of every cache on its way.
func noStore(w http.ResponseWriter) { w.Header().Set("Cache-Control", "no-store") }
