package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/ledger"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

const (
	contenders = 64
	rounds     = 12
)

type contention struct {
	*testing.T
	pool       *pgxpool.Pool
	st         *store.Store
	workspaces []uuid.UUID

	mu   sync.Mutex
	open []holds.Order
}

// The code retries a transaction after a deadlock, so a deadlock causes no error. Therefore the
// test reads the number of deadlocks from the statistics of the server.
func TestLedger_ConcurrentWorkNeverDeadlocks(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	c := &contention{T: t, pool: pool, st: store.New(pool)}
	for range 3 {
		c.workspaces = append(c.workspaces, wallettest.Workspace(t, c.st, 20*money.Credit))
	}
	var all sync.WaitGroup
	for range contenders {
		all.Go(func() {
			for range rounds {
				if err := c.turn(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for _, order := range c.open {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			return c.st.EnqueueOutcome(t.Context(), tx, holds.Outcome{WorkspaceID: order.WorkspaceID, RequestID: order.RequestID, Reason: holds.Canceled})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range c.workspaces {
		for len(settle(t, c.st, id)) > 0 {
		}
		books, err := c.st.Books(t.Context(), id)
		if err != nil {
			t.Fatalf("error = %v", err)
		}
		if !books.Agree() {
			t.Errorf("books.Agree() = false, want true")
		}
		if books.Kept.Held != 0 {
			t.Errorf("books.Kept.Held = %v, want 0", books.Kept.Held)
		}
	}
	c.checkDeadlocks()
}

func (c *contention) turn() error {
	id := c.workspaces[rand.IntN(len(c.workspaces))]
	switch rand.IntN(8) {
	case 0, 1:
		return c.hold(id)
	case 2, 3:
		return c.applyRecords()
	case 4:
		_, err := c.st.Settle(c.Context(), id, 1+rand.IntN(10), noEvents)
		return err
	case 5:
		amount := money.Micro(rand.Int64N(3_000_000) - 1_000_000)
		kind := ledger.Adjustment
		if amount == 0 {
			amount = 1
		}
		if amount > 0 && rand.IntN(2) == 0 {
			kind = ledger.TopUp
		}
		reference := fmt.Sprint("r", rand.IntN(100)) // most of the hundred references are used several times
		_, _, err := c.st.Pay(c.Context(), ledger.Paid(wallettest.ID(), id, kind, amount, reference, "ops"))
		if errors.Is(err, ledger.ErrInsufficient) {
			return nil
		}
		return err
	case 6:
		rates := []holds.Rate{{Prefix: "+1", PerMinute: money.Micro(rand.Int64N(100_000)), IncrementSeconds: 1 + rand.Int32N(60)}, {Prefix: "+1555", PerMinute: 40_000, IncrementSeconds: 1}}
		return errors.Join(c.st.ReplaceRates(c.Context(), id, rates[:rand.IntN(3)]),
			c.st.ApplyCurrency(c.Context(), id, "USD"))
	default:
		_, err := c.st.EnqueueUnconfirmed(c.Context(), time.Microsecond, 50, func(u store.Request) outbox.Event {
			return outbox.Event{Topic: kafka.WalletEvents, Key: u.RequestID.String(), WorkspaceID: u.WorkspaceID, Message: &eventv1.WalletEvent{}}
		})
		if err != nil {
			return err
		}
		books, err := c.st.Books(c.Context(), id)
		if err == nil && !books.Agree() {
			err = fmt.Errorf("the books do not agree in the middle of it: %+v", books)
		}
		return err
	}
}

func (c *contention) hold(id uuid.UUID) error {
	orders := make([]holds.Order, 1+rand.IntN(4))
	for i := range orders {
		orders[i] = wallettest.Order(id)
	}
	decisions, err := c.st.Hold(c.Context(), id, orders)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, d := range decisions {
		if d.Err == nil {
			c.open = append(c.open, orders[i])
		}
	}
	return err
}

// applyRecords applies a batch of events, as the consumer does: it confirms and ends holds of
// several workspaces in one transaction and in any order. Two batches can contain the same request.
func (c *contention) applyRecords() error {
	c.mu.Lock()
	published := make([]holds.Order, 0, 10)
	for range min(len(c.open), cap(published)) {
		published = append(published, c.open[rand.IntN(len(c.open))])
	}
	c.mu.Unlock()
	return pgx.BeginFunc(c.Context(), c.pool, func(tx pgx.Tx) error {
		for _, order := range published {
			if _, err := c.st.Confirm(c.Context(), tx, store.Request{WorkspaceID: order.WorkspaceID,
				RequestID: order.RequestID}); err != nil {
				return err
			}
			v := holds.Outcome{WorkspaceID: order.WorkspaceID, RequestID: order.RequestID, Reason: holds.Ended, BillableSeconds: max(rand.Int32N(900)-300, 0)}
			if rand.IntN(2) == 0 {
				continue
			}
			if err := c.st.EnqueueOutcome(c.Context(), tx, v); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkDeadlocks closes all connections before it reads the number of deadlocks. The number is
// complete only after every connection has reported its statistics.
func (c *contention) checkDeadlocks() {
	c.Helper()
	super := pgtest.Super(c.T, c.pool, wallettest.Schema)
	c.pool.Close()
	for {
		var others, deadlocks int
		err := super.QueryRow(c.Context(), `SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'billing_wallet_app'), deadlocks
			FROM pg_stat_database WHERE datname = current_database()`).Scan(&others, &deadlocks)
		if err != nil {
			c.Fatal(err)
		}
		if others > 0 {
			continue
		}
		if deadlocks != 0 {
			c.Errorf("%d deadlocks", deadlocks)
		}
		return
	}
}
