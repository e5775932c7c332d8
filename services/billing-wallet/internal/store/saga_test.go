package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/ledger"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

// The tests whose names begin with TestHoldLifecycle follow one hold through several steps. Events
// of the hold are lost, repeated or out of order.

func TestHoldLifecycle_HoldIsCapturedFromAnEmptyWallet(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	in := func(f func(pgx.Tx) error) error { return pg.InTx(t.Context(), pool, f) }
	workspace := wallettest.Workspace(t, st, money.Credit)
	order := wallettest.Order(workspace)
	decideHold(t, st, order)
	take := func(amount money.Micro, reference string) error {
		_, _, err := st.Pay(t.Context(), ledger.Paid(wallettest.ID(), workspace, ledger.Adjustment, -amount, reference, "ops"))
		return err
	}
	if err := take(half, "all there is"); err != nil {
		t.Fatal(err)
	}
	if err := take(1, "more"); !errors.Is(err, ledger.ErrInsufficient) {
		t.Errorf("an adjustment of held credit = %v, want ErrInsufficient", err)
	}
	var insufficient *holds.Insufficient
	if d := decideHold(t, st, wallettest.Order(workspace)); !errors.As(d.Err, &insufficient) {
		t.Errorf("Hold of an empty wallet: error = %v, want a %T", d.Err, insufficient)
	} else if insufficient.Available != 0 {
		t.Errorf("Hold of an empty wallet: insufficient.Available = %v, want 0", insufficient.Available)
	}
	if d := decideHold(t, st, order); d.Err != nil {
		t.Errorf("the open hold again: d.Err = %v, want nil", d.Err)
	} else if !d.Repeated {
		t.Error("the open hold again: d.Repeated = false, want true")
	}
	enqueue(t, st, in, holds.Outcome{WorkspaceID: workspace, RequestID: order.RequestID, Reason: holds.Ended,
		BillableSeconds: 10_000})
	if done := settle(t, st, workspace); done[0].Hold.Charged() != half {
		t.Errorf("captured %+v, want the whole hold", done)
	}
	wallettest.Balances(t, st, workspace, 0, 0)
}

func TestHoldLifecycle_LateCaptureHasThePriceOfTheHold(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st, super := store.New(pool), pgtest.Super(t, pool, wallettest.Schema)
	in := func(f func(pgx.Tx) error) error { return pg.InTx(t.Context(), pool, f) }
	workspace := wallettest.Workspace(t, st, money.Credit)
	order := wallettest.Order(workspace)
	decideHold(t, st, order)
	for range 3 { // the hold is reported three times without a response
		_, err := super.Exec(t.Context(), `UPDATE holds SET created_at = created_at - interval '1 year', confirm_requested_at = confirm_requested_at - interval '1 year'`)
		if err != nil {
			t.Fatal(err)
		}
		reported, err := st.EnqueueUnconfirmed(t.Context(), 2*time.Minute, 10, func(u store.Request) outbox.Event {
			return outbox.Event{Topic: kafka.WalletEvents, Key: u.RequestID.String(), WorkspaceID: u.WorkspaceID, Message: &eventv1.WalletEvent{CallRequestId: u.RequestID.String()}}
		})
		if err != nil {
			t.Fatalf("AskUnconfirmed: %v", err)
		}
		if len(reported) != 1 {
			t.Fatalf("length of reported = %d, want 1", len(reported))
		}
	}
	wallettest.Balances(t, st, workspace, half, half)
	if err := st.ReplaceRates(t.Context(), workspace,
		[]holds.Rate{{Prefix: "+1", PerMinute: holds.MaxPerMinute, IncrementSeconds: 60}}); err != nil {
		t.Fatal(err)
	}
	enqueue(t, st, in, holds.Outcome{WorkspaceID: workspace, RequestID: order.RequestID, Reason: holds.Ended,
		BillableSeconds: 61})
	if done := settle(t, st, workspace); done[0].Late != holds.NotLate {
		t.Errorf("settle: done[0].Late = %v, want %v", done[0].Late, holds.NotLate)
	} else if got := done[0].Hold.Charged(); got != 50_834 {
		t.Errorf("settle: done[0].Hold.Charged() = %v, want 50_834", got)
	}
	wallettest.Balances(t, st, workspace, money.Credit-50_834, 0)
}

func TestHoldLifecycle_RepeatedAbandonedEventReleasesALaterHold(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	in := func(f func(pgx.Tx) error) error { return pg.InTx(t.Context(), pool, f) }
	workspace := wallettest.Workspace(t, st, money.Credit)
	order := wallettest.Order(workspace)
	abandoned := holds.Outcome{WorkspaceID: workspace, RequestID: order.RequestID, Reason: holds.Abandoned}
	enqueue(t, st, in, abandoned)
	if done := settle(t, st, workspace); len(done) != 1 {
		t.Fatalf("settle: length of done = %d, want 1", len(done))
	} else if done[0].Late != holds.UnknownHold {
		t.Fatalf("settle: done[0].Late = %v, want %v", done[0].Late, holds.UnknownHold)
	}
	if d := decideHold(t, st, order); d.Err != nil {
		t.Fatal(d.Err)
	}
	wallettest.Balances(t, st, workspace, half, half)
	enqueue(t, st, in, abandoned) // the service `calls` publishes `abandoned` for an unknown request
	done := settle(t, st, workspace)
	if got := len(done); got != 1 {
		t.Fatalf("length of done = %v, want 1", got)
	}
	if done[0].Late != holds.NotLate {
		t.Fatalf("done[0].Late = %v, want %v", done[0].Late, holds.NotLate)
	}
	if done[0].Hold.State != holds.Released {
		t.Fatalf("done[0].Hold.State = %v, want %v", done[0].Hold.State, holds.Released)
	}
	if d := decideHold(t, st, order); !errors.Is(d.Err, holds.ErrEnded) {
		t.Errorf("Hold of a slow POST = %+v, want ErrEnded", d)
	}
	wallettest.Balances(t, st, workspace, money.Credit, 0)
}

func TestHoldLifecycle_LateEventsChangeNothing(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	in := func(f func(pgx.Tx) error) error { return pg.InTx(t.Context(), pool, f) }
	for _, row := range []struct {
		name          string
		first, second int32
		late          holds.Late
		charged       money.Micro
	}{
		{"a second capture with the same duration", 60, 60, holds.SecondCapture, 50_000},
		{"a second capture with a longer duration", 60, 600, holds.SecondCapture, 50_000},
		{"a second capture with a shorter duration", 600, 1, holds.SecondCapture, half},
		{"a capture after the release", 0, 60, holds.CaptureAfterRelease, 0},
		{"a release after the capture", 60, 0, holds.ReleaseAfterCapture, 50_000},
		{"a second release", 0, 0, holds.SecondRelease, 0},
	} {
		workspace := wallettest.Workspace(t, st, money.Credit)
		order := wallettest.Order(workspace)
		decideHold(t, st, order)
		published := holds.Outcome{WorkspaceID: workspace, RequestID: order.RequestID, Reason: holds.Ended,
			BillableSeconds: row.first}
		enqueue(t, st, in, published)
		settle(t, st, workspace)
		before, err := st.Books(t.Context(), workspace)
		if err != nil {
			t.Fatal(err)
		}
		published.BillableSeconds = row.second
		enqueue(t, st, in, published, published)
		for _, done := range settle(t, st, workspace) {
			if done.Late != row.late {
				t.Errorf("%s: done.Late = %v, want %v", row.name, done.Late, row.late)
			}
			if got := done.Hold.Charged(); got != row.charged {
				t.Errorf("%s: done.Hold.Charged() = %v, want %v", row.name, got, row.charged)
			}
			if done.TransactionID != [16]byte{} {
				t.Errorf("%s: done.TransactionID = %v, want %v", row.name, done.TransactionID, [16]byte{})
			}
		}
		after, err := st.Books(t.Context(), workspace)
		if err != nil {
			t.Fatalf("%s: error = %v", row.name, err)
		}
		if !after.Agree() {
			t.Errorf("%s: after.Agree() = false, want true", row.name)
		}
		if after.Kept.Accounts != before.Kept.Accounts {
			t.Errorf("%s: after.Kept.Accounts = %v, want %v", row.name, after.Kept.Accounts, before.Kept.Accounts)
		}
		if !after.Kept.LastTransactionAt.Equal(*before.Kept.LastTransactionAt) {
			t.Errorf("%s: the wallet was %+v and is %+v, %v", row.name, before.Kept, after.Kept, err)
		}
	}
}

func decideHold(t *testing.T, st *store.Store, order holds.Order) holds.Decision {
	t.Helper()
	decisions, err := st.Hold(t.Context(), order.WorkspaceID, []holds.Order{order})
	if err != nil {
		t.Fatal(err)
	}
	return decisions[0]
}
