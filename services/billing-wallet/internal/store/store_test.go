package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/ledger"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

const half = money.Credit / 2

func noEvents(*pgx.Batch, []store.Settlement) error { return nil }

type tester interface {
	Helper()
	Context() context.Context
	Fatal(args ...any)
}

func enqueue(t tester, st *store.Store, in func(func(pgx.Tx) error) error, outcomes ...holds.Outcome) {
	t.Helper()
	err := in(func(tx pgx.Tx) error {
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
}

func TestHold_RepeatedRequestReturnsTheFirstHold(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	workspace := wallettest.Workspace(t, st, 10*money.Credit)
	order := wallettest.Order(workspace)

	again := order
	again.MaxCallSeconds = 6000 // this order differs from the first order
	decisions, err := st.Hold(t.Context(), workspace, []holds.Order{order, again})
	if err != nil {
		t.Fatalf("Hold twice in a batch: error = %v", err)
	}
	if decisions[0].Repeated {
		t.Fatalf("Hold twice in a batch: decisions[0].Repeated = true, want false")
	}
	if !decisions[1].Repeated {
		t.Fatalf("Hold twice in a batch: decisions[1].Repeated = false, want true")
	}
	if decisions[1].Hold.Amount != half {
		t.Fatalf("Hold twice in a batch: decisions[1].Hold.Amount = %v, want %v", decisions[1].Hold.Amount, half)
	}
	decisions, err = st.Hold(t.Context(), workspace, []holds.Order{order})
	if err != nil {
		t.Fatalf("Hold again: error = %v", err)
	}
	if !decisions[0].Repeated {
		t.Fatalf("Hold again: decisions[0].Repeated = false, want true")
	}
	if decisions[0].Hold.Amount != half {
		t.Fatalf("Hold again: decisions[0].Hold.Amount = %v, want %v", decisions[0].Hold.Amount, half)
	}
	if decisions[0].Hold.Currency != "USD" {
		t.Fatalf("Hold again: decisions[0].Hold.Currency = %v, want USD", decisions[0].Hold.Currency)
	}
	wallettest.Balances(t, st, workspace, 10*money.Credit-half, half)

	otherWorkspace := wallettest.Workspace(t, st, money.Credit)
	order.WorkspaceID = otherWorkspace
	decisions, err = st.Hold(t.Context(), otherWorkspace, []holds.Order{order})
	if err != nil {
		t.Errorf("the same id from another workspace: Hold: %v", err)
	} else if !errors.Is(decisions[0].Err, holds.ErrForeign) {
		t.Errorf("the same id from another workspace: Hold = %v, want %v", decisions[0].Err, holds.ErrForeign)
	}
}

func TestHold_IDOfAnEndedRequestIsRefused(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	workspace := wallettest.Workspace(t, st, money.Credit)
	order := wallettest.Order(workspace)
	if _, err := st.Hold(t.Context(), workspace, []holds.Order{order}); err != nil {
		t.Fatal(err)
	}
	in := func(f func(pgx.Tx) error) error { return pg.InTx(t.Context(), pool, f) }
	enqueue(t, st, in, holds.Outcome{WorkspaceID: workspace, RequestID: order.RequestID, Reason: holds.Abandoned})
	if _, err := st.Settle(t.Context(), workspace, 10, noEvents); err != nil {
		t.Fatal(err)
	}
	decisions, err := st.Hold(t.Context(), workspace, []holds.Order{order})
	if err != nil {
		t.Errorf("Hold of an abandoned id: %v", err)
	} else if !errors.Is(decisions[0].Err, holds.ErrEnded) {
		t.Errorf("Hold of an abandoned id: Hold = %v, want %v", decisions[0].Err, holds.ErrEnded)
	}
	wallettest.Balances(t, st, workspace, money.Credit, 0)
}

func TestHold_KeepsTheRateOfTheLongestPrefixUntilItIsSettled(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	workspace := wallettest.Workspace(t, st, 10*money.Credit)
	err := st.ReplaceRates(t.Context(), workspace, []holds.Rate{{Prefix: "+1", PerMinute: 60_000, IncrementSeconds: 1}, {Prefix: "+1555", PerMinute: 120_000, IncrementSeconds: 60}})
	if err != nil {
		t.Fatal(err)
	}
	order := wallettest.Order(workspace)
	decisions, err := st.Hold(t.Context(), workspace, []holds.Order{order})
	if err != nil {
		t.Fatalf("Hold: %v", err)
	}
	if decisions[0].Hold.Amount != 1_200_000 {
		t.Fatalf("Hold: decisions[0].Hold.Amount = %v, want 1_200_000", decisions[0].Hold.Amount)
	}
	if err := st.ReplaceRates(t.Context(), workspace, nil); err != nil {
		t.Fatal(err)
	}
	in := func(f func(pgx.Tx) error) error { return pg.InTx(t.Context(), pool, f) }
	enqueue(t, st, in, holds.Outcome{WorkspaceID: workspace, RequestID: order.RequestID, Reason: holds.Ended,
		BillableSeconds: 61})
	done, err := st.Settle(t.Context(), workspace, 10, noEvents)
	if err != nil {
		t.Fatalf("Settle: error = %v", err)
	}
	if got := len(done); got != 1 {
		t.Fatalf("Settle: length of done = %v, want 1", got)
	}
	if got := done[0].Hold.Charged(); got != 240_000 {
		t.Errorf("Settle: done[0].Hold.Charged() = %v, want 240_000", got)
	}
}

func TestHold_WithoutAWalletIsAnError(t *testing.T) {
	t.Parallel()
	st := store.New(wallettest.Pool(t))
	workspace := wallettest.ID()
	if _, err := st.Hold(t.Context(), workspace, []holds.Order{wallettest.Order(workspace)}); !errors.Is(err, store.ErrNoWallet) {
		t.Errorf("Hold = %v, want ErrNoWallet", err)
	}
}

func TestSettle_OutcomesInAnyOrderSettleTheHoldOnce(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	in := func(f func(pgx.Tx) error) error { return pg.InTx(t.Context(), pool, f) }
	seconds := map[holds.Reason]int32{holds.Ended: 60, holds.Withdrawn: 0, holds.Blocked: 0, holds.Failed: 0, holds.Canceled: 0, holds.Abandoned: 0}
	for first, firstSeconds := range seconds {
		for second, secondSeconds := range seconds {
			for _, together := range []bool{true, false} {
				name := fmt.Sprintf("%s then %s, together %v", first, second, together)
				workspace := wallettest.Workspace(t, st, money.Credit)
				order := wallettest.Order(workspace)
				if _, err := st.Hold(t.Context(), workspace, []holds.Order{order}); err != nil {
					t.Fatal(err)
				}
				one := holds.Outcome{WorkspaceID: workspace, RequestID: order.RequestID, Reason: first, BillableSeconds: firstSeconds}
				two := holds.Outcome{WorkspaceID: workspace, RequestID: order.RequestID, Reason: second, BillableSeconds: secondSeconds}
				enqueue(t, st, in, one)
				var done []store.Settlement
				if !together {
					done = settle(t, st, workspace)
				}
				enqueue(t, st, in, two)
				done = append(done, settle(t, st, workspace)...)
				if got := len(done); got != 2 {
					t.Fatalf("%s: length of done = %v, want 2", name, got)
				}
				if done[0].Late != holds.NotLate {
					t.Errorf("%s: done[0].Late = %v, want %v", name, done[0].Late, holds.NotLate)
				}
				if done[1].Late == holds.NotLate {
					t.Errorf("%s: %+v, want the first to settle and the second late", name, done)
				}
				charged := money.Micro(0)
				if firstSeconds > 0 {
					charged = 50_000
				}
				wallettest.Balances(t, st, workspace, money.Credit-charged, 0)
			}
		}
	}
}

func settle(t testing.TB, st *store.Store, workspace uuid.UUID) []store.Settlement {
	t.Helper()
	done, err := st.Settle(t.Context(), workspace, 100, noEvents)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func TestSettle_UnknownHoldIsReportedAsLate(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	in := func(f func(pgx.Tx) error) error { return pg.InTx(t.Context(), pool, f) }
	workspace := wallettest.Workspace(t, st, money.Credit)
	otherWorkspace := wallettest.Workspace(t, st, money.Credit)
	order := wallettest.Order(otherWorkspace)
	if _, err := st.Hold(t.Context(), otherWorkspace, []holds.Order{order}); err != nil {
		t.Fatal(err)
	}
	nowhere := wallettest.ID()
	enqueue(t, st, in,
		holds.Outcome{WorkspaceID: workspace, RequestID: wallettest.ID(), Reason: holds.Ended, BillableSeconds: 5},
		holds.Outcome{WorkspaceID: workspace, RequestID: order.RequestID, Reason: holds.Canceled},
		holds.Outcome{WorkspaceID: nowhere, RequestID: wallettest.ID(), Reason: holds.Canceled})
	for _, id := range []uuid.UUID{workspace, nowhere} {
		for _, done := range settle(t, st, id) {
			if done.Late != holds.UnknownHold {
				t.Errorf("settled %+v, want an unknown hold", done)
			}
		}
	}
	if left, err := st.Unsettled(t.Context()); err != nil {
		t.Errorf("workspaces left to settle: Unsettled: %v", err)
	} else if len(left) != 0 {
		t.Errorf("workspaces left to settle: left = %v, want none", left)
	}
	wallettest.Balances(t, st, otherWorkspace, half, half)
}

func TestPay_RepeatedReferenceIsPostedOnce(t *testing.T) {
	t.Parallel()
	st := store.New(wallettest.Pool(t))
	workspace := wallettest.Workspace(t, st, 0)
	var all sync.WaitGroup
	ids := make(chan uuid.UUID, 16)
	for range 16 {
		all.Go(func() {
			posted, _, err := st.Pay(t.Context(), ledger.Paid(wallettest.ID(), workspace, ledger.TopUp, money.Credit, "invoice-7", "ops"))
			if err != nil {
				t.Error(err)
			}
			ids <- posted.ID
		})
	}
	all.Wait()
	close(ids)
	first := <-ids
	for id := range ids {
		if id != first {
			t.Errorf("the same reference gave transaction %s and %s", first, id)
		}
	}
	wallettest.Balances(t, st, workspace, money.Credit, 0)

	raceReference(t, st)

	other := wallettest.Workspace(t, st, 0)
	if _, replayed, err := st.Pay(t.Context(), ledger.Paid(wallettest.ID(), other, ledger.TopUp, money.Credit,
		"invoice-7", "ops")); err != nil {
		t.Errorf("another workspace's reference: Pay: %v", err)
	} else if replayed {
		t.Error("another workspace's reference: replayed = true, want false")
	}
	if _, _, err := st.Pay(t.Context(), ledger.Paid(wallettest.ID(), workspace, ledger.Adjustment, -2*money.Credit, "too much", "ops")); !errors.Is(err, ledger.ErrInsufficient) {
		t.Errorf("adjustment below zero = %v, want ErrInsufficient", err)
	}
	// A refused payment must not store its reference, so that a later payment can use the reference.
	if _, replayed, err := st.Pay(t.Context(), ledger.Paid(wallettest.ID(), workspace, ledger.Adjustment,
		-money.Credit, "too much", "ops")); err != nil {
		t.Errorf("smaller adjustment: Pay: %v", err)
	} else if replayed {
		t.Error("smaller adjustment: replayed = true, want false")
	}
}

// raceReference sends concurrent payments with the same reference and different amounts.
func raceReference(t *testing.T, st *store.Store) {
	t.Helper()
	workspace := wallettest.Workspace(t, st, money.Credit)
	var all sync.WaitGroup
	var mu sync.Mutex
	fresh, answers := 0, map[uuid.UUID]money.Micro{}
	for i := range 16 {
		all.Go(func() {
			kind, amount := ledger.TopUp, money.Micro(i+1)
			if i%2 == 0 {
				kind, amount = ledger.Adjustment, -amount
			}
			posted, replayed, err := st.Pay(t.Context(), ledger.Paid(wallettest.ID(), workspace, kind, amount, "invoice-8", "ops"))
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			answers[posted.ID] = posted.Amount()
			if !replayed {
				fresh++
				if got := posted.Amount(); got != amount {
					t.Errorf("posted.Amount() = %v, want %v", got, amount)
				} else if posted.Kind != kind {
					t.Errorf("posted.Kind = %v, want %v", posted.Kind, kind)
				}
			}
		})
	}
	all.Wait()
	if fresh != 1 {
		t.Errorf("fresh = %v, want 1", fresh)
	} else if len(answers) != 1 {
		t.Errorf("length of answers = %d, want 1", len(answers))
	}
	for _, amount := range answers {
		wallettest.Balances(t, st, workspace, money.Credit+amount, 0)
	}
}

func TestTransactions_AreListedNewestFirst(t *testing.T) {
	t.Parallel()
	st := store.New(wallettest.Pool(t))
	workspace := wallettest.Workspace(t, st, money.Credit)
	for i := range 4 {
		if _, _, err := st.Pay(t.Context(), ledger.Paid(wallettest.ID(), workspace, ledger.Adjustment, 1, fmt.Sprint(i), "ops")); err != nil {
			t.Fatal(err)
		}
	}
	var seen []string
	request := page.Request{Limit: 2}
	for {
		rows, err := st.Transactions(t.Context(), workspace, "", request)
		if err != nil {
			t.Fatal(err)
		}
		more := len(rows) > request.Limit
		for _, row := range rows[:min(len(rows), request.Limit)] {
			seen, request.After = append(seen, *row.Reference), row.ID
		}
		if !more {
			break
		}
	}
	if got, want := fmt.Sprint(seen), "[3 2 1 0 opening]"; got != want {
		t.Errorf("transactions = %s, want %s", got, want)
	}
	if rows, err := st.Transactions(t.Context(), workspace, ledger.TopUp, page.Request{Limit: 25}); err != nil {
		t.Errorf("top-ups: Transactions: %v", err)
	} else if len(rows) != 1 {
		t.Errorf("top-ups: length of rows = %d, want 1", len(rows))
	}
	if _, err := st.Transactions(t.Context(), wallettest.Workspace(t, st, 0), "", page.Request{Limit: 2,
		After: request.After}); err == nil {
		t.Error("another workspace's cursor was taken")
	}
}

func TestServiceRole_CannotChangeTheLedger(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	workspace := wallettest.Workspace(t, st, money.Credit)
	settled, order := wallettest.Order(workspace), wallettest.Order(workspace)
	if _, err := st.Hold(t.Context(), workspace, []holds.Order{settled, order}); err != nil {
		t.Fatal(err)
	}
	in := func(f func(pgx.Tx) error) error { return pg.InTx(t.Context(), pool, f) }
	enqueue(t, st, in, holds.Outcome{WorkspaceID: workspace, RequestID: settled.RequestID, Reason: holds.Ended,
		BillableSeconds: 60})
	settle(t, st, workspace)
	const denied, check, readOnly, unique, final = "42501", "23514", "55000", "23505", "23001"
	for statement, want := range map[string]string{
		`UPDATE transactions SET wallet_micro = 0`:                    denied,
		`UPDATE transactions SET reference = 'x'`:                     denied,
		`DELETE FROM transactions`:                                    denied,
		`TRUNCATE transactions`:                                       denied,
		`ALTER TABLE transactions DROP CONSTRAINT transactions_shape`: denied,
		`ALTER TABLE transactions DISABLE TRIGGER ALL`:                denied,
		`DROP TABLE transactions`:                                     denied,
		`SET session_replication_role = replica`:                      denied,
		`SET ROLE billing_wallet_owner`:                               denied,
		`INSERT INTO transactions SELECT * FROM transactions ON CONFLICT (id) DO UPDATE SET kind = 'x'`: denied,
		`UPDATE ledger_entries SET amount_micro = 0`:                                                    readOnly,
		`DELETE FROM ledger_entries`:                                                                    readOnly,
		`UPDATE holds SET amount_micro = 1`:                                                             denied,
		`UPDATE holds SET per_minute_micro = 1`:                                                         denied,
		`UPDATE holds SET increment_seconds = 1`:                                                        denied,
		`UPDATE holds SET workspace_id = gen_random_uuid()`:                                             denied,
		`DELETE FROM holds`:                                                                             denied,
		`TRUNCATE holds`:                                                                                denied,
		`UPDATE holds SET state = 'held', captured_micro = NULL, settled_at = NULL WHERE state = 'captured'`: final,
		`UPDATE holds SET captured_micro = 1 WHERE state = 'captured'`:                                       final,
		`UPDATE wallets SET wallet_micro = -1, funding_micro = -1`:                                           check,
		`UPDATE wallets SET wallet_micro = wallet_micro + 1`:                                                 check,
		`UPDATE wallets SET workspace_id = gen_random_uuid()`:                                                denied,
		`DELETE FROM wallets`: denied,
		`TRUNCATE wallets`:    denied,
		`UPDATE holds SET state = 'captured', captured_micro = 500001, settled_at = now() WHERE state = 'held'`: check,
		`INSERT INTO transactions (id, workspace_id, kind, reference, operator, wallet_micro, held_micro, revenue_micro, funding_micro)
		 SELECT gen_random_uuid(), workspace_id, 'top_up', 'x', 'x', 5, 0, 0, -4 FROM wallets`: check,
		`INSERT INTO transactions (id, workspace_id, kind, reference, operator, wallet_micro, held_micro, revenue_micro, funding_micro)
		 SELECT gen_random_uuid(), workspace_id, 'top_up', 'opening', 'x', 5, 0, 0, -5 FROM wallets`: unique,
		`INSERT INTO transactions (id, workspace_id, kind, request_id, wallet_micro, held_micro, revenue_micro, funding_micro)
		 SELECT gen_random_uuid(), workspace_id, 'capture', gen_random_uuid(), 5, -4, -1, 0 FROM wallets`: check,
		`INSERT INTO transactions (id, workspace_id, kind, request_id, wallet_micro, held_micro, revenue_micro, funding_micro)
		 SELECT gen_random_uuid(), workspace_id, 'release', request_id, 5, -5, 0, 0 FROM transactions WHERE kind = 'capture'`: unique,
	} {
		_, err := pool.Exec(t.Context(), statement)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) {
			t.Errorf("%s: Exec = %v, want a %T", statement, err, refused)
		} else if refused.Code != want {
			t.Errorf("%s: refused.Code = %v, want %v", statement, refused.Code, want)
		}
	}
	wallettest.Balances(t, st, workspace, 450_000, half)
}
