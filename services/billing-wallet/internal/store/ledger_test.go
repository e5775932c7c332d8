package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/pg"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/ledger"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

// history applies random operations to a wallet and to a model of the wallet. The model computes
// amounts independently of the code under test.
type history struct {
	*rapid.T
	st        *store.Store
	pool      *pgxpool.Pool
	workspace uuid.UUID

	balances ledger.Accounts
	rates    []holds.Rate
	paid     map[string]money.Micro
	orders   []holds.Order
	holds    map[uuid.UUID]*modelHold
	pending  []holds.Outcome // oldest first
}

type modelHold struct {
	amount, perMinute int64
	increment         int32
	ended             bool
}

// Orders of holds are repeated. The ends of requests are late, repeated, in any order, or of
// unknown requests.
func TestLedger_MatchesTheModelAfterRandomOperations(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st := store.New(pool)
	rapid.Check(t, func(r *rapid.T) {
		h := &history{T: r, st: st, pool: pool, workspace: wallettest.Workspace(t, st, 3*money.Credit),
			balances: ledger.Accounts{Wallet: 3 * money.Credit, Funding: -3 * money.Credit},
			paid:     map[string]money.Micro{"opening": 3 * money.Credit}, holds: map[uuid.UUID]*modelHold{}}
		steps := []func(){h.pay, h.price, h.order, h.order, h.endRequests, h.endRequests,
			func() { h.settle(rapid.IntRange(1, 4).Draw(r, "most")) }}
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			steps[rapid.IntRange(0, len(steps)-1).Draw(r, "step")]()
			h.check()
		}
		h.settle(100)
		h.check()
	})
}

func (h *history) pay() {
	amount := money.Micro(rapid.Int64Range(-2_000_000, 2_000_000).Filter(func(n int64) bool { return n != 0 }).Draw(h.T, "amount"))
	reference := fmt.Sprint("r", rapid.IntRange(0, 5).Draw(h.T, "reference"))
	posted, replayed, err := h.st.Pay(h.Context(), ledger.Paid(wallettest.ID(), h.workspace, ledger.Adjustment, amount, reference, "ops"))
	first, seen := h.paid[reference]
	switch {
	case seen:
		if err != nil {
			h.Fatalf("%s of %s, paid before with %s: error = %v", reference, amount, first, err)
		}
		if !replayed {
			h.Fatalf("%s of %s, paid before with %s: replayed = false, want true", reference, amount, first)
		}
		if got := posted.Amount(); got != first {
			h.Fatalf("%s of %s, paid before with %s: posted.Amount() = %v, want %v", reference, amount, first, got, first)
		}
	case h.balances.Wallet+amount < 0:
		if err == nil {
			h.Fatalf("%s was taken from %s", amount, h.balances.Wallet)
		}
	default:
		if err != nil {
			h.Fatalf("pay %s: error = %v, want nil", amount, err)
		}
		if replayed {
			h.Fatalf("pay %s: replayed = true, want false", amount)
		}
		h.paid[reference] = amount
		h.balances.Wallet += amount
		h.balances.Funding -= amount
	}
}

func (h *history) price() {
	h.rates = nil
	for _, prefix := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"+1", "+155", "+1555010", "+15550100123", "+44"}), rapid.ID[string]).Draw(h.T, "prefixes") {
		h.rates = append(h.rates, holds.Rate{Prefix: prefix, PerMinute: money.Micro(rapid.Int64Range(0, 200_000).Draw(h.T, "per minute")),
			IncrementSeconds: rapid.Int32Range(1, 90).Draw(h.T, "increment")})
	}
	if err := h.st.ReplaceRates(h.Context(), h.workspace, h.rates); err != nil {
		h.Fatal(err)
	}
}

// order places one to four holds. Some of the orders repeat earlier orders.
func (h *history) order() {
	var orders []holds.Order
	for range rapid.IntRange(1, 4).Draw(h.T, "orders") {
		order := wallettest.Order(h.workspace)
		order.MaxCallSeconds = rapid.Int32Range(1, 3600).Draw(h.T, "longest")
		if len(h.orders) > 0 && rapid.Bool().Draw(h.T, "again") {
			order.RequestID = rapid.SampledFrom(h.orders).Draw(h.T, "known").RequestID
		}
		orders, h.orders = append(orders, order), append(h.orders, order)
	}
	decisions, err := h.st.Hold(h.Context(), h.workspace, orders)
	if err != nil {
		h.Fatal(err)
	}
	for i, order := range orders {
		d, known := decisions[i], h.holds[order.RequestID]
		if known != nil {
			if refused := d.Err != nil; refused != known.ended {
				h.Fatalf("the id again is refused: %v, want %v", refused, known.ended)
			}
			if known.ended {
				continue
			}
			if !d.Repeated {
				h.Fatal("the id again: Repeated = false, want true")
			}
			if got := int64(d.Hold.Amount); got != known.amount {
				h.Fatalf("the id again holds %d, want %d", got, known.amount)
			}
			continue
		}
		m := h.model(order)
		if (d.Err == nil) != (m.amount <= int64(h.balances.Wallet)) {
			h.Fatalf("d.Err is absent = %v, want %v", d.Err == nil, m.amount <= int64(h.balances.Wallet))
		}
		if d.Err == nil && int64(d.Hold.Amount) != m.amount {
			h.Fatalf("int64(d.Hold.Amount) = %v, want %v", int64(d.Hold.Amount), m.amount)
		}
		if d.Err == nil {
			h.holds[order.RequestID] = &m
			h.balances.Wallet -= money.Micro(m.amount)
			h.balances.Held += money.Micro(m.amount)
		}
	}
}

func (h *history) model(order holds.Order) modelHold {
	m, longest := modelHold{perMinute: 50_000, increment: 1}, ""
	for _, r := range h.rates {
		if len(r.Prefix) <= len(order.To) && order.To[:len(r.Prefix)] == r.Prefix && len(r.Prefix) > len(longest) {
			m.perMinute, m.increment, longest = int64(r.PerMinute), r.IncrementSeconds, r.Prefix
		}
	}
	m.amount = m.price(order.MaxCallSeconds)
	return m
}

func (m modelHold) price(seconds int32) int64 {
	billed := int64(seconds)
	for billed%int64(m.increment) != 0 {
		billed++
	}
	return (m.perMinute*billed + 59) / 60
}

// endRequests enqueues ends of requests. The requests have an open hold, a settled hold or no hold.
// Some requests end twice.
func (h *history) endRequests() {
	var pending []holds.Outcome
	for range rapid.IntRange(1, 4).Draw(h.T, "pending") {
		v := holds.Outcome{WorkspaceID: h.workspace, RequestID: wallettest.ID(), Reason: holds.Ended, BillableSeconds: rapid.Int32Range(0, 5000).Draw(h.T, "talk")}
		if len(h.orders) > 0 && rapid.IntRange(0, 9).Draw(h.T, "unknown request if 0") > 0 {
			v.RequestID = rapid.SampledFrom(h.orders).Draw(h.T, "which").RequestID
		}
		pending = append(pending, v)
		if rapid.Bool().Draw(h.T, "twice") {
			pending = append(pending, v)
		}
	}
	pending = rapid.Permutation(pending).Draw(h.T, "order of pending")
	enqueue(h, h.st, func(f func(pgx.Tx) error) error { return pg.InTx(h.Context(), h.pool, f) }, pending...)
	h.pending = append(h.pending, pending...)
}

func (h *history) settle(most int) {
	done, err := h.st.Settle(h.Context(), h.workspace, most, noEvents)
	if err != nil {
		h.Fatalf("Settle: %v", err)
	}
	if len(done) != min(most, len(h.pending)) {
		h.Fatalf("length of done = %d, want %d", len(done), min(most, len(h.pending)))
	}
	for i, v := range h.pending[:len(done)] {
		m := h.holds[v.RequestID]
		if open := m != nil && !m.ended; open != (done[i].Late == holds.NotLate) {
			h.Fatalf("open = %v, want %v", open, done[i].Late == holds.NotLate)
		} else if done[i].Outcome.RequestID != v.RequestID {
			h.Fatalf("done[i].Verdict.RequestID = %v, want %v", done[i].Outcome.RequestID, v.RequestID)
		}
		if done[i].Late != holds.NotLate {
			continue
		}
		charge := money.Micro(min(m.price(v.BillableSeconds), m.amount))
		if done[i].Hold.Charged() != charge {
			h.Fatalf("charged %s, want %s", done[i].Hold.Charged(), charge)
		}
		m.ended = true
		h.balances.Held -= money.Micro(m.amount)
		h.balances.Wallet += money.Micro(m.amount) - charge
		h.balances.Revenue += charge
	}
	h.pending = slices.Delete(h.pending, 0, len(done))
}

func (h *history) check() {
	books, err := h.st.Books(h.Context(), h.workspace)
	if err != nil {
		h.Fatalf("error = %v", err)
	}
	if !books.Agree() {
		h.Fatalf("books.Agree() = false, want true")
	}
	if books.Kept.Accounts != h.balances {
		h.Fatalf("books.Kept.Accounts = %v, want %v", books.Kept.Accounts, h.balances)
	}
	if books.Summed != h.balances {
		h.Fatalf("books.Summed = %v, want %v", books.Summed, h.balances)
	}
	if got := h.balances.Sum(); got != 0 {
		h.Fatalf("h.balances.Sum() = %v, want 0", got)
	}
}
