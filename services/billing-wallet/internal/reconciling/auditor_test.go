package reconciling_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/pgtest"
	"ringfence.dev/services/billing-wallet/internal/reconciling"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

func gauge(t *testing.T, metrics *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// TestAuditor_CountsWhatReplicasFindTogether lets two replicas look at the same books.
func TestAuditor_CountsWhatReplicasFindTogether(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st, super := store.New(pool), pgtest.Super(t, pool, wallettest.Schema)
	for range 25 { // more than one claim
		wallettest.Workspace(t, st, money.Credit)
	}
	broken := keep(t, pool, st)
	metrics := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	var replicas []*reconciling.Auditor
	for _, registry := range metrics {
		replicas = append(replicas, reconciling.NewAuditor(st, time.Hour, registry))
	}
	pass := func(step string, want float64) {
		t.Helper()
		for i, replica := range replicas {
			if err := replica.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := gauge(t, metrics[i], "billing_wallet_book_differences"); got != want {
				t.Errorf("%s: replica %d counts %v differences, want %v", step, i, got, want)
			}
			if age := gauge(t, metrics[i], "billing_wallet_books_age_seconds"); age < 0 || age > 60 {
				t.Errorf("%s: the oldest look was %v s ago", step, age)
			}
		}
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := super.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	pass("the books agree", 0)
	exec(`UPDATE wallets SET wallet_micro = wallet_micro + 1, funding_micro = funding_micro - 1 WHERE workspace_id = $1`, broken.workspace)
	pass("nobody looks again within the hour", 0)
	exec(`UPDATE reconciliations SET checked_at = checked_at - interval '61 minutes'`)
	pass("an hour later", 2)
	exec(`UPDATE wallets SET wallet_micro = wallet_micro - 1, funding_micro = funding_micro + 1 WHERE workspace_id = $1`, broken.workspace)
	exec(`UPDATE reconciliations SET checked_at = checked_at - interval '61 minutes'`)
	pass("repaired", 0)
}

func TestAuditor_ZeroLooksNever(t *testing.T) {
	t.Parallel()
	if err := reconciling.NewAuditor(nil, 0, nil).Run(context.Background()); err != nil {
		t.Error(err)
	}
}
