package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// Each event adds a row for every subscription, even if the subscription is paused. So the total
// number of subscriptions is limited.
func TestCreate_PausedSubscriptionsAreLimited(t *testing.T) {
	t.Parallel()
	r, ws := newFixture(t), uuid.New()
	var last uuid.UUID
	for range subscriptions.MaxSubscriptions {
		last = r.subscribe(ws, "call.completed")
		if err := r.setStatus(ws, last, subscriptions.Paused); err != nil {
			t.Fatal(err)
		}
	}
	one := subscriptions.Subscription{ID: uuid.Must(uuid.NewV7()), WorkspaceID: ws, Name: "a", URL: "https://example.com/", Events: []openapi.EventType{"call.completed"}}
	err := r.store.Create(t.Context(), one, "whsec_x")
	var fault *apierr.Error
	if !errors.As(err, &fault) {
		t.Fatalf("Create of one more than %d = %v, want an apierr.Error", subscriptions.MaxSubscriptions, err)
	}
	wantEqual(t, "code", fault.Code, "subscription_limit_reached")
	if err := r.setStatus(ws, last, subscriptions.Active); err != nil {
		t.Errorf("resumption at the limit: %v", err)
	}
	if err := r.store.Delete(t.Context(), ws, last); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Create(t.Context(), one, "whsec_x"); err != nil {
		t.Errorf("Create after a deletion: %v", err)
	}
}
