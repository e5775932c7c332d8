package app

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit/pgtest"
)

// newKeys returns the keys of a service that trusts other services.
func newKeys(t *testing.T, name string, trusted ...string) *serviceauth.Keys {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, name)
	keys, err := serviceauth.New(name, serviceauth.Config{SigningKey: base64.StdEncoding.EncodeToString(seed),
		TrustedKeys: trusted})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestParkedRecords_AreForOperatorsOnly(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "billing_wallet", outbox.Migrations, inbox.Migrations)
	gateway := newKeys(t, serviceauth.Gateway)
	rt := &Runtime{Pool: pool, Keys: newKeys(t, "billing-wallet", "gateway="+gateway.Public()), name: "billing-wallet"}
	handler := rt.serveParked(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	ask := func(method, path, body, operator string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		token, err := gateway.SignCaller("billing-wallet", serviceauth.Caller{RequestID: uuid.New(),
			Access: serviceauth.Write, Operator: operator})
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(serviceauth.CallerHeader, token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	id := uuid.Must(uuid.NewV7()).String()
	replay := parkedPath + "/" + id + "/replay"
	if got := ask("GET", parkedPath, "", "ann").Code; got != http.StatusNotFound {
		t.Errorf("GET before the consumer was made = %d, want 404", got)
	}
	rt.inbox = inbox.NewConsumer("billing-wallet", rt.config.Kafka, pool, inbox.Handlers{}, nil, nil)
	if _, err := pool.Exec(t.Context(), `INSERT INTO dead_letters (consumer, topic, event_id, key, error)
		VALUES ('billing-wallet', 't', $1, 'k', 'newer'), ('calls', 't', $1, 'k', 'of another service')`, id); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{parkedPath, replay} {
		method := map[bool]string{true: "GET", false: "POST"}[path == parkedPath]
		if got := ask(method, path, `{"topic":"t"}`, "").Code; got != http.StatusUnauthorized {
			t.Errorf("%s %s without an operator = %d, want 401", method, path, got)
		}
	}
	w := ask("GET", parkedPath, "", "ann")
	var listed struct {
		Data []struct{ Topic, Key, Error, EventID string }
	}
	if err := json.NewDecoder(w.Body).Decode(&listed); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	if len(listed.Data) != 1 {
		t.Fatalf("parked records = %v, want one", listed.Data)
	}
	if got := listed.Data[0].Error; got != "newer" {
		t.Errorf("error = %s, want newer", got)
	}
	for name, path := range map[string]string{"another id": parkedPath + "/" + uuid.NewString() + "/replay",
		"no id": parkedPath + "/x/replay", "another path": parkedPath + "/x"} {
		if got := ask("POST", path, `{"topic":"t"}`, "ann").Code; got != http.StatusNotFound {
			t.Errorf("POST of %s = %d, want 404", name, got)
		}
	}
	for name, body := range map[string]string{"no body": "", "no topic": `{}`, "Topic": `{"Topic":"t"}`} {
		if got := ask("POST", replay, body, "ann").Code; got != http.StatusUnprocessableEntity {
			t.Errorf("replay with %s = %d, want 422", name, got)
		}
	}
	if got := ask("GET", parkedPath+"x", "", "ann").Code; got != http.StatusTeapot {
		t.Errorf("GET of another route = %d, want the handler of the service", got)
	}
}
