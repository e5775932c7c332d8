package httpapi_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

// The stored times are whole seconds. An encoder that omits trailing zeros would write these times
// without decimals.
func TestTimestamps_HaveThreeDecimals(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	id, _ := h.create(ws)
	if got := h.customer(ws, http.MethodPost, collection+"/"+id+"/test", ""); got.status != http.StatusAccepted {
		t.Fatalf("POST test = %d %v", got.status, got.body)
	}
	if _, err := h.pool.Exec(t.Context(),
		`UPDATE subscription_health SET last_success_at = '2026-06-04 09:00:00+00'`); err != nil {
		t.Fatal(err)
	}
	list := h.customer(ws, http.MethodGet, collection, "")
	deliveries := h.admin(ws, "/webhook-subscriptions/"+id+"/deliveries")
	for name, body := range map[string]map[string]any{"subscriptions": list.body, "deliveries": deliveries.body} {
		document, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if got := testkit.CheckTimestamps(t, document); got < 2 {
			t.Errorf("%s: %d timestamps in %s, want at least 2", name, got, document)
		}
	}
}

func TestNewTest_TimestampHasThreeDecimals(t *testing.T) {
	t.Parallel()
	event, err := deliveries.NewTest(uuid.New(), uuid.New(), uuid.New(), time.Date(2026, 6, 4, 9, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	if got := testkit.CheckTimestamps(t, event.Body); got != 1 {
		t.Errorf("webhook.test has %d timestamps in %s, want 1", got, event.Body)
	}
}
