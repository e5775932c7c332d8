package store_test

import (
	"io/fs"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

// TestMigrations_WhileHoldsAreMade brings the first release's schema up to date, twice, while credit is held and captured on it.
func TestMigrations_WhileHoldsAreMade(t *testing.T) {
	t.Parallel()
	first, err := fs.ReadFile(store.Migrations, "0001_ledger.sql")
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.New(t, wallettest.Schema, outbox.Migrations, inbox.Migrations,
		pg.Migrations{Name: wallettest.Schema, FS: fstest.MapFS{"0001_ledger.sql": {Data: first}}})
	st := store.New(pool)
	var workspaces []uuid.UUID
	for range 4 {
		workspaces = append(workspaces, wallettest.Workspace(t, st, 1_000_000*money.Credit))
	}
	made, stop := make(chan struct{}), make(chan struct{})
	var working sync.WaitGroup
	for _, workspace := range workspaces {
		working.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				order := wallettest.Order(workspace)
				if decisions, err := st.Hold(t.Context(), workspace, []holds.Order{order}); err != nil {
					t.Errorf("Hold: %v", err)
					return
				} else if decisions[0].Err != nil {
					t.Errorf("Hold: decisions[0].Err = %v, want nil", decisions[0].Err)
					return
				}
				err := pg.InTx(t.Context(), pool, func(tx pgx.Tx) error {
					return st.EnqueueOutcome(t.Context(), tx, holds.Outcome{WorkspaceID: workspace, RequestID: order.RequestID, Reason: holds.Ended, BillableSeconds: 60})
				})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := st.Settle(t.Context(), workspace, 10, func(*pgx.Batch, []store.Settlement) error { return nil }); err != nil {
					t.Error(err)
					return
				}
				select {
				case made <- struct{}{}:
				default:
				}
			}
		})
	}
	after := func(n int) {
		t.Helper()
		for range n {
			select {
			case <-made:
			case <-time.After(testkit.Timeout):
				t.Fatal("no more holds are made")
			}
		}
	}
	after(40)
	owner := pgtest.Owner(t, pool, wallettest.Schema).Config().ConnString()
	for range 2 {
		if err := pg.Migrate(t.Context(), owner, wallettest.Schema, pg.Migrations{Name: wallettest.Schema, FS: store.Migrations}); err != nil {
			t.Error(err)
		}
		after(40)
	}
	close(stop)
	working.Wait()
	for _, workspace := range workspaces {
		if found, err := st.Differences(t.Context(), workspace); err != nil {
			t.Errorf("Differences: %v", err)
		} else if len(found) > 0 {
			t.Errorf("Differences: found = %v, want none", found)
		}
	}
	if left, err := st.Unsettled(t.Context()); err != nil {
		t.Errorf("Unsettled: %v", err)
	} else if len(left) > 0 {
		t.Errorf("Unsettled: left = %v, want none", left)
	}
}
