package store_test

import (
	"testing"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/gateway/internal/store"
)

func TestSeedOperators_OnlyListedOperatorsAreValid(t *testing.T) {
	t.Parallel()
	st := store.New(pgtest.New(t, store.Schema, outbox.Migrations, pg.Migrations{Name: store.Schema, FS: store.Migrations}), nil)
	hash := func(b byte) []byte {
		h := make([]byte, 32)
		h[0] = b
		return h
	}
	names := func() string {
		t.Helper()
		found, err := st.Operators(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var all string
		for _, o := range found {
			all += o.Name + string('0'+o.Hash[0])
		}
		return all
	}
	seed := func(operators ...store.Operator) {
		t.Helper()
		for range 2 { // the second call must change nothing
			if err := st.SeedOperators(t.Context(), operators); err != nil {
				t.Fatal(err)
			}
		}
	}
	ada, bob := store.Operator{Name: "ada", Hash: hash(1)}, store.Operator{Name: "bob", Hash: hash(2)}
	seed(ada, bob)
	if got := names(); got != "ada1bob2" && got != "bob2ada1" {
		t.Errorf("operators = %s", got)
	}
	seed(store.Operator{Name: "ada", Hash: hash(3)})
	if got := names(); got != "ada3" {
		t.Errorf("operators = %s, want ada's new token and no bob", got)
	}
	seed(ada, bob)
	if got := names(); got != "ada1bob2" && got != "bob2ada1" {
		t.Errorf("operators = %s, want both back", got)
	}
}
