package store_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/ledger"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

type walletRig struct {
	*testing.T
	pool      *pgxpool.Pool
	st        *store.Store
	workspace uuid.UUID
	paid      int
}

func newWalletRig(t *testing.T, credit money.Micro, threshold *money.Micro) *walletRig {
	t.Helper()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	r := &walletRig{T: t, pool: pool, st: st, workspace: wallettest.Workspace(t, st, credit)}
	if threshold != nil {
		r.setThreshold(threshold)
	}
	return r
}

func (r *walletRig) setThreshold(threshold *money.Micro) {
	r.Helper()
	if _, err := r.st.SetLowBalanceThreshold(r.Context(), r.workspace, threshold); err != nil {
		r.Fatal(err)
	}
}

func (r *walletRig) pay(amount money.Micro) {
	r.Helper()
	r.paid++
	t := ledger.Paid(wallettest.ID(), r.workspace, ledger.Adjustment, amount, fmt.Sprint("r-", r.paid), "ops")
	if _, _, err := r.st.Pay(r.Context(), t); err != nil {
		r.Fatal(err)
	}
}

// call places a hold of 0.50 credits and settles it. A call of 60 seconds costs 0.05 credits.
func (r *walletRig) call(seconds int32) {
	r.Helper()
	order := wallettest.Order(r.workspace)
	if _, err := r.st.Hold(r.Context(), r.workspace, []holds.Order{order}); err != nil {
		r.Fatal(err)
	}
	r.end(order, seconds)
	if _, err := r.st.Settle(r.Context(), r.workspace, 10, noEvents); err != nil {
		r.Fatal(err)
	}
}

func (r *walletRig) end(order holds.Order, seconds int32) {
	r.Helper()
	in := func(f func(pgx.Tx) error) error { return pg.InTx(r.Context(), r.pool, f) }
	id := wallettest.ID()
	enqueue(r, r.st, in, holds.Outcome{
		WorkspaceID: r.workspace, RequestID: order.RequestID, Reason: holds.Ended, BillableSeconds: seconds, CallID: &id,
	})
}

// events returns the sequence and the balance of each event in the outbox.
func (r *walletRig) events() (events []string) {
	r.Helper()
	payloads, err := pg.Values[[]byte](r.Context(), r.pool, "SELECT payload FROM outbox ORDER BY id", nil)
	if err != nil {
		r.Fatal(err)
	}
	for _, payload := range payloads {
		var event eventv1.WalletEvent
		if err := proto.Unmarshal(payload, &event); err != nil {
			r.Fatal(err)
		}
		low := event.GetLowBalance()
		if event.GetWorkspaceId() != r.workspace.String() {
			r.Errorf("workspace of the event = %s, want %s", event.GetWorkspaceId(), r.workspace)
		}
		events = append(events, fmt.Sprintf("%d: %s below %s %s", low.GetSequence(), money.Micro(low.GetBalanceMicro()),
			money.Micro(low.GetThresholdMicro()), low.GetCurrency()))
	}
	return events
}

func (r *walletRig) want(what string, events ...string) {
	r.Helper()
	if diff := cmp.Diff(events, r.events()); diff != "" {
		r.Errorf("events %s (-want +got):\n%s", what, diff)
	}
}

func threshold(credits money.Micro) *money.Micro {
	amount := credits * money.Credit
	return &amount
}

func TestLowBalance_EachFallBelowTheThresholdSendsOneEvent(t *testing.T) {
	t.Parallel()
	r := newWalletRig(t, 10*money.Credit+money.Credit/10, threshold(10))
	r.call(60)
	r.call(0)
	r.want("above the threshold")
	r.call(60)
	r.want("at the threshold")
	r.call(60)
	r.want("below the threshold", "1: 9.95 below 10 USD")
	for range 3 {
		r.call(60)
	}
	r.pay(money.Credit / 10)
	r.want("while the balance stays below", "1: 9.95 below 10 USD")
	r.pay(money.Credit)
	r.call(60)
	r.want("after a top-up", "1: 9.95 below 10 USD")
	r.pay(-2 * money.Credit)
	r.want("after the second crossing", "1: 9.95 below 10 USD", "2: 8.85 below 10 USD")
}

// The threshold is compared with the balance, which holds do not reduce. A hold must not cause the
// event wallet.low_balance, and the settlement of many holds must not repeat the event.
func TestLowBalance_AHoldSendsNoEvent(t *testing.T) {
	t.Parallel()
	r := newWalletRig(t, 10*money.Credit, threshold(10))
	orders := make([]holds.Order, 10)
	for i := range orders {
		orders[i] = wallettest.Order(r.workspace)
	}
	if _, err := r.st.Hold(t.Context(), r.workspace, orders); err != nil {
		t.Fatal(err)
	}
	r.want("after the holds")
	for _, order := range orders {
		r.end(order, 0)
	}
	if _, err := r.st.Settle(t.Context(), r.workspace, 100, noEvents); err != nil {
		t.Fatal(err)
	}
	r.want("after the releases")
}

func TestLowBalance_ThresholdAboveTheBalanceSendsAnEvent(t *testing.T) {
	t.Parallel()
	r := newWalletRig(t, 7*money.Credit, nil)
	r.pay(-money.Credit)
	r.want("without a threshold")
	r.setThreshold(threshold(10))
	r.setThreshold(threshold(10))
	r.want("after a threshold above the balance", "1: 6 below 10 USD")
	r.setThreshold(threshold(5))
	r.want("after a threshold below the balance", "1: 6 below 10 USD")
	r.pay(-2 * money.Credit)
	r.want("after the next crossing", "1: 6 below 10 USD", "2: 4 below 5 USD")
	r.setThreshold(nil)
	r.pay(-money.Credit)
	r.setThreshold(threshold(1))
	r.setThreshold(threshold(4))
	r.want("after the threshold was removed and set again", "1: 6 below 10 USD", "2: 4 below 5 USD", "3: 3 below 4 USD")
	if _, err := r.st.SetLowBalanceThreshold(t.Context(), wallettest.ID(), nil); !errors.Is(err, store.ErrNoWallet) {
		t.Errorf("SetLowBalanceThreshold without a wallet = %v, want ErrNoWallet", err)
	}
}

// Several replicas settle holds and post transactions at the same time.
func TestLowBalance_ConcurrentChangesSendOneEvent(t *testing.T) {
	t.Parallel()
	r := newWalletRig(t, 20*money.Credit, threshold(10))
	done := make(chan error)
	const changes = 19
	for n := range changes {
		go func() {
			_, _, err := r.st.Pay(t.Context(), ledger.Paid(wallettest.ID(), r.workspace, ledger.Adjustment, -money.Credit,
				fmt.Sprint("c-", n), "ops"))
			done <- err
		}()
	}
	for range changes {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	r.want("after the changes", "1: 9 below 10 USD")
}

// A process dies before its commit, so that neither the charge nor the event is stored. The next
// process must store both.
func TestLowBalance_EventCommitsWithTheCharge(t *testing.T) {
	t.Parallel()
	r := newWalletRig(t, 10*money.Credit, threshold(10))
	order := wallettest.Order(r.workspace)
	if _, err := r.st.Hold(t.Context(), r.workspace, []holds.Order{order}); err != nil {
		t.Fatal(err)
	}
	r.end(order, 60)
	killed := errors.New("the process was killed")
	_, err := r.st.Settle(t.Context(), r.workspace, 10, func(*pgx.Batch, []store.Settlement) error { return killed })
	if !errors.Is(err, killed) {
		t.Fatalf("Settle = %v, want the error", err)
	}
	r.want("after the kill")
	for range 2 {
		if _, err := r.st.Settle(t.Context(), r.workspace, 10, noEvents); err != nil {
			t.Fatal(err)
		}
	}
	r.want("after the next settlement", "1: 9.95 below 10 USD")
}

// An earlier version, which does not publish wallet.low_balance, left a wallet below its threshold.
// The next change of the balance must publish the event.
func TestLowBalance_EventIsPublishedAfterAnUpgrade(t *testing.T) {
	t.Parallel()
	r := newWalletRig(t, 20*money.Credit, threshold(10))
	if _, err := r.pool.Exec(
		t.Context(),
		"UPDATE wallets SET wallet_micro = 9000000, funding_micro = -9000000",
	); err != nil {
		t.Fatal(err)
	}
	r.call(60)
	r.want("after the next charge", "1: 8.95 below 10 USD")
}
