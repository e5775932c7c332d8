package httpapi

import (
	"fmt"
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
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

func viewSubscription(s subscriptions.Subscription) openapi.WebhookSubscription { return s.View() }

const storeSecretNotice = "Store this secret now: it signs your webhooks and is shown only once."

func (a *API) listSubscriptions(w http.ResponseWriter, r *http.Request) error {
	pageReq, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	subs, err := a.store.Subscriptions(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, pageReq)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(pageReq, subs, viewSubscription))
}

// newSubscription reads the body of a POST. One validation_error names all missing and malformed
// fields. If there is none, newSubscription checks the url (invalid_url) and then the events.
func (a *API) newSubscription(f *bodyReader) (sub subscriptions.Subscription, err error) {
	if name := f.readText("name"); name != nil {
		sub.Name = *name
		f.recordError(subscriptions.CheckName(sub.Name))
	} else if !f.given("name") {
		f.recordError(subscriptions.CheckName(""))
	}
	url := f.readText("url")
	if !f.given("url") {
		f.recordError(apierr.Validation("url", "is required: the https address that receives the events."))
	}
	if description := f.readText("description"); description != nil {
		sub.Description = *description
		f.recordError(subscriptions.CheckDescription(sub.Description))
	}
	events := f.readEvents()
	if err := f.validationError(); err != nil {
		return sub, err
	}
	if sub.URL, err = subscriptions.CheckURL(*url, a.reachable); err != nil {
		return sub, err
	}
	sub.Events, err = subscriptions.CheckEvents(events)
	return sub, err
}

func (a *API) createSubscription(w http.ResponseWriter, r *http.Request) error {
	body, err := decodeFields(r)
	if err != nil {
		return err
	}
	sub, err := a.newSubscription(body)
	if err != nil {
		return err
	}
	sub.WorkspaceID = serviceauth.CallerFrom(r.Context()).WorkspaceID
	if sub.ID, err = uuid.NewV7(); err != nil {
		return fmt.Errorf("generate subscription id: %w", err)
	}
	secret, err := subscriptions.NewSecret()
	if err != nil {
		return err
	}
	if err := a.store.Create(r.Context(), sub, secret); err != nil {
		return err
	}
	setNoStore(w)
	return httpserver.WriteJSON(w, http.StatusCreated, openapi.WebhookSubscriptionCreated{ID: sub.ID, SigningSecret: secret, StoreThis: storeSecretNotice})
}

// readChange reads the body of a PATCH. If url or events is absent or null, it is not changed. One
// validation_error names all malformed fields. Other errors are returned only if there is no
// validation_error.
func (a *API) readChange(f *bodyReader) (change store.Change, err error) {
	url, events := f.readText("url"), f.readEvents()
	if err := f.validationError(); err != nil {
		return change, err
	}
	if url != nil {
		checked, err := subscriptions.CheckURL(*url, a.reachable)
		if err != nil {
			return change, err
		}
		change.URL = &checked
	}
	if f.given("events") {
		if change.Events, err = subscriptions.CheckEvents(events); err != nil {
			return change, err
		}
	}
	// an absent status is not changed, but the value null is invalid
	if raw, given := f.members["status"]; given {
		status, err := subscriptions.ParseStatus(raw)
		if err != nil {
			return change, err
		}
		change.Status = &status
	}
	return change, nil
}

// changeSubscription handles PATCH in the customer API.
func (a *API) changeSubscription(w http.ResponseWriter, r *http.Request) error {
	sub, err := a.applyChange(r, a.readChange)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewSubscription(sub))
}

// applyChange reads the request body with read, stores the change, and returns the changed
// subscription. An unknown subscription gives 404 before the body is checked.
func (a *API) applyChange(
	r *http.Request, read func(*bodyReader) (store.Change, error),
) (subscriptions.Subscription, error) {
	id, err := httpserver.PathID(r, "id", subscriptionResource)
	if err != nil {
		return subscriptions.Subscription{}, err
	}
	workspaceID := serviceauth.CallerFrom(r.Context()).WorkspaceID
	if _, err := a.store.Subscription(r.Context(), workspaceID, id); err != nil {
		return subscriptions.Subscription{}, notFound(err, subscriptionResource)
	}
	body, err := decodeFields(r)
	if err != nil {
		return subscriptions.Subscription{}, err
	}
	change, err := read(body)
	if err != nil {
		return subscriptions.Subscription{}, err
	}
	sub, err := a.store.Change(r.Context(), workspaceID, id, change)
	if err != nil {
		return subscriptions.Subscription{}, notFound(err, subscriptionResource)
	}
	a.wakeDispatcher()
	return sub, nil
}

func (a *API) deleteSubscription(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionResource)
	if err != nil {
		return err
	}
	if err := a.store.Delete(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id); err != nil {
		return notFound(err, subscriptionResource)
	}
	a.wakeRetention()
	return httpserver.WriteJSON(w, http.StatusOK, openapi.WebhookSubscriptionDeleted{Deleted: true, ID: id})
}

func (a *API) rotateSecret(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionResource)
	if err != nil {
		return err
	}
	secret, err := subscriptions.NewSecret()
	if err != nil {
		return err
	}
	if err := a.store.Rotate(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, id, secret); err != nil {
		return notFound(err, subscriptionResource)
	}
	setNoStore(w)
	return httpserver.WriteJSON(w, http.StatusOK, openapi.WebhookSecret{SigningSecret: secret, StoreThis: storeSecretNotice})
}

func (a *API) testSubscription(w http.ResponseWriter, r *http.Request) error {
	id, err := httpserver.PathID(r, "id", subscriptionResource)
	if err != nil {
		return err
	}
	eventID, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("generate event id: %w", err)
	}
	ev, err := deliveries.NewTest(eventID, serviceauth.CallerFrom(r.Context()).WorkspaceID, id, time.Now())
	if err != nil {
		return err
	}
	ev.Traceparent = telemetry.Carrier(r.Context())
	if err := a.store.EnqueueTest(r.Context(), id, ev); err != nil {
		return notFound(err, subscriptionResource)
	}
	a.wakeDispatcher()
	return httpserver.WriteJSON(w, http.StatusAccepted, openapi.WebhookTestQueued{
		Queued: true, DeliveryID: deliveries.ID(id, eventID, ev.CreatedAt), EventID: eventID,
	})
}

// setNoStore forbids caches to store the response, because it contains a secret.
func setNoStore(w http.ResponseWriter) { w.Header().Set("Cache-Control", "no-store") }
