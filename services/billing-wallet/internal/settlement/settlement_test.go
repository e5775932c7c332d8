package settlement_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/settlement"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

// The balance of one wallet is corrupted, so the capture in that wallet fails. The metric of the
// oldest pending settlement must rise.
func TestSettler_OneFailingWorkspaceDoesNotStopOthers(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st, super := store.New(pool), pgtest.Super(t, pool, wallettest.Schema)
	bus, err := kafka.NewClient(kafka.Config{Brokers: []string{"127.0.0.1:1"}}, "test", prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bus.Close)
	metrics := prometheus.NewRegistry()
	settler := settlement.NewSettler(st, outbox.NewRelay(pool, bus, prometheus.NewRegistry(), outbox.Config{}), metrics)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := super.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	var outcomes []holds.Outcome
	for range 3 {
		workspace := wallettest.Workspace(t, st, money.Credit)
		order := wallettest.Order(workspace)
		if decisions, err := st.Hold(t.Context(), workspace, []holds.Order{order}); err != nil {
			t.Fatalf("Hold: %v", err)
		} else if decisions[0].Err != nil {
			t.Fatalf("Hold: decisions[0].Err = %v, want nil", decisions[0].Err)
		}
		outcomes = append(outcomes, holds.Outcome{WorkspaceID: workspace, RequestID: order.RequestID, Reason: holds.Ended,
			BillableSeconds: 60})
	}
	err = pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		for _, v := range outcomes {
			if err := st.EnqueueOutcome(t.Context(), tx, v); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	broken := outcomes[1].WorkspaceID
	exec(`UPDATE wallets SET held_micro = 0, wallet_micro = 1000000 WHERE workspace_id = $1`, broken)
	exec(`UPDATE pending_settlements SET created_at = now() - interval '1 minute' WHERE workspace_id = $1`, broken)
	for range 2 {
		if _, err := settler.Pass(t.Context()); err == nil {
			t.Error("Pass over a broken wallet gives no error")
		}
		if waited := gauge(t, metrics); waited < 60 {
			t.Errorf("gauge: waited = %v, want at least 60", waited)
		} else if waited > 120 {
			t.Errorf("gauge: waited = %v, want at most 120", waited)
		}
	}
	wallettest.Balances(t, st, outcomes[0].WorkspaceID, 950_000, 0)
	wallettest.Balances(t, st, outcomes[2].WorkspaceID, 950_000, 0)
	exec(`UPDATE wallets SET held_micro = 500000, wallet_micro = 500000 WHERE workspace_id = $1`, broken)
	if n, err := settler.Pass(t.Context()); err != nil {
		t.Errorf("Pass: %v", err)
	} else if n != 1 {
		t.Errorf("Pass: n = %v, want 1", n)
	}
	wallettest.Balances(t, st, broken, 950_000, 0)
	if _, err := settler.Pass(t.Context()); err != nil {
		t.Errorf("Pass: %v", err)
	} else if got := gauge(t, metrics); got != 0 {
		t.Errorf("Pass: gauge(t, metrics) = %v, want 0", got)
	}
}

func gauge(t *testing.T, metrics *prometheus.Registry) float64 {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "ringfence_billing_oldest_pending_settlement_seconds" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("the metric is not there")
	return 0
}
