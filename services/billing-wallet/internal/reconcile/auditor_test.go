package reconcile_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/billing-wallet/internal/reconcile"
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

const anHourAgo = `UPDATE reconciliations SET checked_at = checked_at - interval '61 minutes', claimed_at = claimed_at - interval '61 minutes'`

func TestAuditor_EveryReplicaShowsAllDifferences(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st, super := store.New(pool), pgtest.Super(t, pool, wallettest.Schema)
	for range 25 { // more wallets than one batch of claims contains
		wallettest.Workspace(t, st, money.Credit)
	}
	broken := createBooks(t, pool, st)
	metrics := []*prometheus.Registry{prometheus.NewRegistry(), prometheus.NewRegistry()}
	var replicas []*reconcile.Auditor
	for _, registry := range metrics {
		replicas = append(replicas, reconcile.NewAuditor(st, time.Hour, registry))
	}
	pass := func(step string, want float64) {
		t.Helper()
		for i, replica := range replicas {
			if err := replica.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := gauge(t, metrics[i], "ringfence_billing_reconciliation_differences"); got != want {
				t.Errorf("%s: replica %d counts %v differences, want %v", step, i, got, want)
			}
			if age := gauge(t, metrics[i], "ringfence_billing_reconciliation_age_seconds"); age < 0 {
				t.Errorf("%s: age = %v, want at least 0", step, age)
			} else if age > 60 {
				t.Errorf("%s: age = %v, want at most 60", step, age)
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
	pass("no second comparison within the hour", 0)
	exec(anHourAgo)
	pass("an hour later", 2)
	exec(`UPDATE wallets SET wallet_micro = wallet_micro - 1, funding_micro = funding_micro + 1 WHERE workspace_id = $1`, broken.workspace)
	exec(anHourAgo)
	pass("repaired", 0)
}

// No comparison is stored. The metric must show the rising age of the last comparison.
func TestAuditor_AgeMetricRisesWithoutASuccessfulReconciliation(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]string{
		"no comparison succeeds":        `ALTER TABLE holds RENAME TO holds_away`,
		"nothing can be claimed":        `REVOKE INSERT ON reconciliations FROM billing_wallet_app`,
		"the result cannot be saved":    `ALTER TABLE reconciliations ADD CHECK (checked_at < now() - interval '30 minutes') NOT VALID`,
		"the wallet was never compared": `DELETE FROM reconciliations; UPDATE wallets SET created_at = now() - interval '61 minutes'; ALTER TABLE holds RENAME TO holds_away`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := wallettest.Pool(t)
			st, super, metrics := store.New(pool), pgtest.Super(t, pool, wallettest.Schema), prometheus.NewRegistry()
			wallettest.Workspace(t, st, money.Credit)
			auditor := reconcile.NewAuditor(st, time.Hour, metrics)
			if err := auditor.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, sql := range []string{anHourAgo, fault} {
				if _, err := super.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // in the second pass the wallet is already claimed
				err := auditor.Pass(t.Context())
				if age := gauge(t, metrics, "ringfence_billing_reconciliation_age_seconds"); age < 3660 {
					t.Errorf("gauge: age = %v, want at least 3660; err = %v", age, err)
				} else if age > 3720 {
					t.Errorf("gauge: age = %v, want at most 3720; err = %v", age, err)
				}
			}
		})
	}
}

func TestAuditor_IntervalZeroTurnsReconciliationOff(t *testing.T) {
	t.Parallel()
	if err := reconcile.NewAuditor(nil, 0, nil).Run(context.Background()); err != nil {
		t.Error(err)
	}
}
