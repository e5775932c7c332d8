package store_test

import (
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/billing-wallet/internal/hold"
	"ringfence.dev/services/billing-wallet/internal/ledger"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

// TestLedger_AddsUpAfterAnySequence runs random operations beside a plain model.
func TestLedger_AddsUpAfterAnySequence(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	in := func(f func(pgx.Tx) error) error { return pg.InTx(t.Context(), pool, f) }
	rapid.Check(t, func(r *rapid.T) {
		workspace := wallettest.Workspace(t, st, 3*money.Credit)
		spendable, held := 3*money.Credit, money.Micro(0)
		var known []hold.Order
		open := map[uuid.UUID]money.Micro{}
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			switch rapid.SampledFrom([]string{"pay", "hold", "hold", "settle", "settle"}).Draw(r, "step") {
			case "pay":
				amount := money.Micro(rapid.Int64Range(-2_000_000, 2_000_000).Filter(func(n int64) bool { return n != 0 }).Draw(r, "amount"))
				_, _, err := st.Pay(t.Context(), ledger.Paid(wallettest.ID(), workspace, ledger.Adjustment, amount, wallettest.ID().String(), "ops"))
				if (err != nil) != (spendable+amount < 0) {
					r.Fatalf("pay %s with %s spendable = %v", amount, spendable, err)
				}
				if err == nil {
					spendable += amount
				}
			case "hold":
				order := wallettest.Order(workspace)
				order.MaxCallSeconds = rapid.Int32Range(1, 3600).Draw(r, "seconds")
				if len(known) > 0 && rapid.Bool().Draw(r, "again") {
					order = rapid.SampledFrom(known).Draw(r, "known")
				}
				decisions, err := st.Hold(t.Context(), workspace, []hold.Order{order})
				if err != nil {
					r.Fatal(err)
				}
				if d := decisions[0]; d.Err == nil && !d.Repeated {
					known = append(known, order)
					open[order.RequestID] = d.Hold.Amount
					spendable, held = spendable-d.Hold.Amount, held+d.Hold.Amount
				}
			case "settle":
				if len(known) == 0 {
					continue
				}
				v := hold.Verdict{WorkspaceID: workspace, RequestID: rapid.SampledFrom(known).Draw(r, "which").RequestID, Reason: hold.Ended,
					BillableSeconds: rapid.Int32Range(0, 5000).Draw(r, "talk")}
				note(t, st, in, v, v)
				done := settle(t, st, workspace)
				amount, isOpen := open[v.RequestID]
				if (done[0].Late == hold.NotLate) != isOpen || done[1].Late == hold.NotLate {
					r.Fatalf("settle %+v = %+v, open %v", v, done, isOpen)
				}
				if isOpen {
					delete(open, v.RequestID)
					charged := done[0].Hold.Charged()
					if charged > amount {
						r.Fatalf("charged %s of a hold of %s", charged, amount)
					}
					spendable, held = spendable+amount-charged, held-amount
				}
			}
		}
		books, err := st.Books(t.Context(), workspace)
		if err != nil || !books.Agree() || books.Kept.Wallet != spendable || books.Kept.Held != held {
			r.Fatalf("books %+v, %v, want %s spendable and %s held", books, err, spendable, held)
		}
	})
}

// TestLedger_ManyAtOnceNeverDeadlocks lets holds, settlements, payments and confirmations of a few
// workspaces run into each other.
func TestLedger_ManyAtOnceNeverDeadlocks(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	workspaces := make([]uuid.UUID, 3)
	for i := range workspaces {
		workspaces[i] = wallettest.Workspace(t, st, 1000*money.Credit)
	}
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for round := range 12 {
				if err := turn(t, pool, st, workspaces, worker, round); err != nil {
					t.Errorf("worker %d, round %d: %v", worker, round, err)
				}
			}
		})
	}
	all.Wait()
	for _, id := range workspaces {
		settle(t, st, id)
		books, err := st.Books(t.Context(), id)
		if err != nil || !books.Agree() || books.Kept.Held != 0 {
			t.Errorf("books %+v, %v, want them to agree and nothing held", books, err)
		}
	}
}

// turn holds in one workspace, then ends and confirms what it holds in every order of workspaces in one batch of records.
func turn(t *testing.T, pool *pgxpool.Pool, st *store.Store, workspaces []uuid.UUID, worker, round int) error {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for i := range workspaces {
		id := workspaces[(i+worker)%len(workspaces)] // every worker another order
		order := wallettest.Order(id)
		if _, err := st.Hold(t.Context(), id, []hold.Order{order}); err != nil {
			return err
		}
		if err := st.Confirm(t.Context(), tx, id, order.RequestID, nil); err != nil {
			return err
		}
		v := hold.Verdict{WorkspaceID: id, RequestID: order.RequestID, Reason: hold.Ended, BillableSeconds: int32(round)}
		if err := st.Note(t.Context(), tx, v); err != nil {
			return err
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		return err
	}
	_, err = st.Settle(t.Context(), workspaces[(worker+round)%len(workspaces)], 5, hush)
	return err
}
