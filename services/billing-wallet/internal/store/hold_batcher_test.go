package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"ringfence.dev/libs/money"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

func TestHold_ConcurrentHoldsUseTheWholeCreditButNotMore(t *testing.T) {
	t.Parallel()
	st := store.New(wallettest.Pool(t))
	const covered = 64
	workspace := wallettest.Workspace(t, st, covered*money.Credit/2)
	batchers := []*store.HoldBatcher{store.NewHoldBatcher(st, nil), store.NewHoldBatcher(st, nil)}
	var all sync.WaitGroup
	var mu sync.Mutex
	held, refused := 0, 0
	for client := range 64 {
		all.Go(func() {
			for range 3 { // the orders together need three times the available credit
				decision, err := batchers[client%2].Hold(t.Context(), wallettest.Order(workspace))
				var insufficient *holds.Insufficient
				mu.Lock()
				switch {
				case err != nil:
					t.Error(err)
				case decision.Err == nil:
					held++
				case errors.As(decision.Err, &insufficient):
					refused++
				default:
					t.Error(decision.Err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if held != covered {
		t.Errorf("held = %v, want %v", held, covered)
	} else if refused != 2*covered {
		t.Errorf("refused = %v, want %v", refused, 2*covered)
	}
	wallettest.Balances(t, st, workspace, 0, covered*money.Credit/2)
}

func TestHold_ConcurrentRequestsWithOneIDCreateOneHold(t *testing.T) {
	t.Parallel()
	st := store.New(wallettest.Pool(t))
	workspace := wallettest.Workspace(t, st, 10*money.Credit)
	batchers := []*store.HoldBatcher{store.NewHoldBatcher(st, nil), store.NewHoldBatcher(st, nil)}
	order := wallettest.Order(workspace)
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			decision, err := batchers[i%2].Hold(t.Context(), order)
			if err != nil {
				t.Errorf("Hold: error = %v", err)
				return
			}
			if decision.Err != nil {
				t.Errorf("Hold: decision.Err = %v, want nil", decision.Err)
			}
			if decision.Hold.Amount != money.Credit/2 {
				t.Errorf("Hold: decision.Hold.Amount = %v, want %v", decision.Hold.Amount, money.Credit/2)
			}
		})
	}
	all.Wait()
	wallettest.Balances(t, st, workspace, 10*money.Credit-money.Credit/2, money.Credit/2)
}

func TestHold_CommitsIfTheCallerDisconnects(t *testing.T) {
	t.Parallel()
	st := store.New(wallettest.Pool(t))
	workspace := wallettest.Workspace(t, st, money.Credit)
	batcher := store.NewHoldBatcher(st, nil)
	order := wallettest.Order(workspace)
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := batcher.Hold(gone, order); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatalf("Hold with an ended context = %v", err)
	}
	decision, err := batcher.Hold(t.Context(), order)
	if err != nil {
		t.Fatalf("Hold again: error = %v", err)
	}
	if decision.Err != nil {
		t.Errorf("Hold again: decision.Err = %v, want nil", decision.Err)
	}
	if !decision.Repeated {
		t.Errorf("Hold again: decision.Repeated = false, want true")
	}
	wallettest.Balances(t, st, workspace, money.Credit/2, money.Credit/2)
}

func TestHold_DoesNotWaitForOtherWorkspaces(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	slow, quick := wallettest.Workspace(t, st, money.Credit), wallettest.Workspace(t, st, money.Credit)
	batcher := store.NewHoldBatcher(st, nil)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM wallets WHERE workspace_id = $1 FOR UPDATE`, slow); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 40 { // more orders than the pool has connections
		all.Go(func() {
			if _, err := batcher.Hold(t.Context(), wallettest.Order(slow)); err != nil {
				t.Error(err)
			}
		})
	}
	if decision, err := batcher.Hold(t.Context(), wallettest.Order(quick)); err != nil {
		t.Errorf("Hold beside a locked wallet: %v", err)
	} else if decision.Err != nil {
		t.Errorf("Hold beside a locked wallet: decision.Err = %v, want nil", decision.Err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	wallettest.Balances(t, st, slow, 0, money.Credit)
}
