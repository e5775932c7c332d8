package auth_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/gateway/internal/auth"
	"ringfence.dev/services/gateway/internal/secrets"
	"ringfence.dev/services/gateway/internal/store"
)

const goodToken = "a-token-of-ada-0001"

func newAuthenticator(t *testing.T) (*auth.Authenticator, secrets.Pepper, *pgxpool.Pool) {
	t.Helper()
	pool := pgtest.New(t, store.Schema, outbox.Migrations, pg.Migrations{Name: store.Schema, FS: store.Migrations})
	st := store.New(pool, nil)
	pepper, err := secrets.NewPepper("pepper-of-the-test-0001")
	if err != nil {
		t.Fatal(err)
	}
	hash := pepper.Hash(goodToken)
	if err := st.SeedOperators(t.Context(), []store.Operator{{Name: "ada", Hash: hash[:]}}); err != nil {
		t.Fatal(err)
	}
	return auth.New(st, pepper, nil), pepper, pool
}

func requestFrom(address, bearer string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = address + ":40000"
	r.Header.Set("Authorization", "Bearer "+bearer)
	return r
}

// setRate sets the theoretical arrival time (TAT) of the counter whose key has the given prefix. A
// TAT in the future means that requests are refused until that time. So the result does not depend
// on the duration of the test.
func setRate(t *testing.T, pool *pgxpool.Pool, prefix, tat string) {
	t.Helper()
	tag, err := pool.Exec(t.Context(),
		`UPDATE rate_limits SET tat = clock_timestamp() + $2::interval WHERE starts_with(key, $1)`, prefix, tat)
	if err != nil {
		t.Fatal(err)
	}
	if tag.RowsAffected() != 1 {
		t.Fatalf("counters of %q = %d, want 1", prefix, tag.RowsAffected())
	}
}

func statusOf(err error) int {
	var refused *apierr.Error
	if errors.As(err, &refused) {
		return refused.Status
	}
	return 0
}

func TestOperator_AddressWithTooManyWrongTokensIsRefused(t *testing.T) {
	t.Parallel()
	authenticator, _, pool := newAuthenticator(t)
	const attacker = "203.0.113.7"
	var unauthorized, limited int
	for i := range 5000 {
		_, err := authenticator.Operator(requestFrom(attacker, fmt.Sprintf("a-wrong-token-%05d", i)))
		switch statusOf(err) {
		case http.StatusUnauthorized:
			unauthorized++
		case http.StatusTooManyRequests:
			limited++
		default:
			t.Fatalf("wrong token %d: %v, want 401 or 429", i, err)
		}
		if limited == 1 {
			setRate(t, pool, "wrong token ", "1 hour") // refuses requests for longer than the test runs
			limited++
		}
	}
	if unauthorized < 600 {
		t.Errorf("wrong tokens answered with 401 = %d, want at least the 600 of the limit", unauthorized)
	}
	name, err := authenticator.Operator(requestFrom(attacker, goodToken))
	if got := statusOf(err); got != http.StatusTooManyRequests {
		t.Errorf("the correct token above the limit = %q, %v, want 429", name, err)
	}
	if name, err = authenticator.Operator(requestFrom("203.0.113.8", goodToken)); err != nil {
		t.Errorf("the correct token from another address: %v", err)
	}
	if name != "ada" {
		t.Errorf("operator = %q, want ada", name)
	}
}

func TestOperator_CorrectTokenIsAcceptedAfterAWrongOne(t *testing.T) {
	t.Parallel()
	authenticator, _, _ := newAuthenticator(t)
	const address = "203.0.113.7"
	if _, err := authenticator.Operator(requestFrom(address, "mistyped")); statusOf(err) != http.StatusUnauthorized {
		t.Fatalf("a wrong token: %v, want 401", err)
	}
	name, err := authenticator.Operator(requestFrom(address, goodToken))
	if err != nil {
		t.Errorf("the correct token after one wrong token: %v", err)
	}
	if name != "ada" {
		t.Errorf("operator = %q, want ada", name)
	}
}

// A valid key is accepted whether or not this replica has the key in its cache.
func TestAuthenticate_ValidKeyIsAcceptedDuringAFlood(t *testing.T) {
	t.Parallel()
	authenticator, pepper, pool := newAuthenticator(t)
	const address = "203.0.113.7"
	used, unused := addKey(t, pool, pepper), addKey(t, pool, pepper)
	if _, _, err := authenticator.Authenticate(requestFrom(address, used)); err != nil {
		t.Fatalf("a good key: %v", err)
	}
	invented, _ := secrets.GenerateAPIKey(false)
	if _, _, err := authenticator.Authenticate(requestFrom(address, invented)); statusOf(err) != http.StatusUnauthorized {
		t.Fatalf("an unknown key: %v, want 401", err)
	}
	setRate(t, pool, "address ", "1 hour")

	another, _ := secrets.GenerateAPIKey(false)
	_, status, err := authenticator.Authenticate(requestFrom(address, another))
	if got := statusOf(err); got != http.StatusTooManyRequests {
		t.Errorf("an unknown key above the limit: %v, want 429", err)
	}
	if status.Policy != 600 {
		t.Errorf("policy = %d, want the 600 of an address", status.Policy)
	}
	if _, _, err = authenticator.Authenticate(requestFrom(address, used)); err != nil {
		t.Errorf("a key in use behind the same address: %v, want no error", err)
	}
	if _, _, err = authenticator.Authenticate(requestFrom(address, unused)); err != nil {
		t.Errorf("a key in its first use behind the same address: %v, want no error", err)
	}
}

func addKey(t *testing.T, pool *pgxpool.Pool, pepper secrets.Pepper) string {
	t.Helper()
	secret, prefix := secrets.GenerateAPIKey(false)
	hash, workspace := pepper.Hash(secret), uuid.Must(uuid.NewV7())
	_, err := pool.Exec(t.Context(), `INSERT INTO workspaces (id, name, plan, currency, status, max_live_calls,
		calls_per_second, version)
		VALUES ($1, 'Acme', 'growth', 'USD', 'active', 1, 1, 1)`, workspace)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pool.Exec(t.Context(),
		`INSERT INTO api_keys (id, workspace_id, name, access, prefix, hash) VALUES ($1, $2, 'test', 'read', $3, $4)`,
		uuid.Must(uuid.NewV7()), workspace, prefix, hash[:])
	if err != nil {
		t.Fatal(err)
	}
	return secret
}
