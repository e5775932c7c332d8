package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

func TestHold_PriceIsReadFromTheIndexAlone(t *testing.T) {
	t.Parallel()
	pool := wallettest.Pool(t)
	st, owner := store.New(pool), pgtest.Owner(t, pool, wallettest.Schema)
	reading, watched := pgtest.Watch(t, pool)
	many := make([]holds.Rate, 20_000)
	for i := range many {
		many[i] = holds.Rate{Prefix: fmt.Sprint("+1", 555_000_000+i), PerMinute: money.Micro(i + 1), IncrementSeconds: 1}
	}
	crowded, other, sparse := wallettest.Workspace(t, st, 0), wallettest.Workspace(t, st, 0), wallettest.Workspace(t, st, 0)
	few := []holds.Rate{many[100], {Prefix: "+1", PerMinute: 7, IncrementSeconds: 1}, {Prefix: "+1555000", PerMinute: 8, IncrementSeconds: 1}}
	for workspace, rates := range map[[16]byte][]holds.Rate{crowded: append(few[1:], many...), other: many, sparse: few} {
		if err := st.ReplaceRates(t.Context(), workspace, rates); err != nil {
			t.Fatal(err)
		}
	}
	// Most workspaces have few rates. Postgres makes the generic plan for such a workspace.
	_, err := owner.Exec(t.Context(), `INSERT INTO rates (workspace_id, prefix, per_minute_micro, increment_seconds)
		SELECT workspace_id, '+' || n, 1, 1 FROM (SELECT gen_random_uuid() AS workspace_id FROM generate_series(1, 5000)) AS w CROSS JOIN generate_series(1, 3) AS n`)
	if err != nil {
		t.Fatal(err)
	}
	// An index-only scan needs the visibility map. While another session has an old snapshot,
	// VACUUM does not update this map.
	for visible := false; !visible; {
		if _, err := owner.Exec(t.Context(), "VACUUM ANALYZE rates"); err != nil {
			t.Fatal(err)
		}
		if err := owner.QueryRow(t.Context(), "SELECT relallvisible = relpages FROM pg_class WHERE oid = 'rates'::regclass").Scan(&visible); err != nil {
			t.Fatal(err)
		}
	}
	pages := map[string]int{}
	for _, row := range []struct {
		name      string
		workspace [16]byte
	}{{"few", sparse}, {"many", crowded}} {
		for _, mode := range []string{pgtest.GenericPlan, pgtest.CustomPlan} {
			order := wallettest.Order(row.workspace)
			order.To = many[100].Prefix + "99"
			decisions, err := store.New(reading).Hold(t.Context(), row.workspace, []holds.Order{order})
			var insufficient *holds.Insufficient
			if err != nil {
				t.Fatalf("%s prefixes: error = %v", row.name, err)
			}
			if !errors.As(decisions[0].Err, &insufficient) {
				t.Fatalf("%s prefixes: %+v, %v, want a price at the longest prefix", row.name, decisions, err)
			}
			if insufficient.Needed != money.Price(101, 600, 1) {
				t.Fatalf("%s prefixes: insufficient.Needed = %v, want %v", row.name, insufficient.Needed, money.Price(101, 600, 1))
			}
			n, plans := watched.Pages(t, mode)
			watched.Forget()
			pages[row.name] = max(pages[row.name], n)
			lookup, _, _ := strings.Cut(plans[strings.Index(plans, "FROM rates"):], "FROM wallets")
			if !strings.Contains(lookup, `"Index Only Scan"`) {
				t.Errorf("%s prefixes, %s: %s does not contain %q", row.name, mode, lookup, `"Index Only Scan"`)
			}
			if strings.Contains(lookup, `"Filter"`) {
				t.Errorf("%s prefixes, %s: %s contains %q", row.name, mode, lookup, `"Filter"`)
			}
			if !strings.Contains(lookup, `"Heap Fetches": 0`) {
				t.Errorf("%s prefixes, %s: %s does not contain %q", row.name, mode, lookup, `"Heap Fetches": 0`)
			}
		}
	}
	t.Logf("pages touched: %v", pages)
	if pages["many"] > pages["few"]+30 {
		t.Errorf("pages touched = %v: a lookup grows with the prefixes", pages)
	}
}

// If the rates are replaced while a hold is placed, the hold must have either the old price or the
// new price.
func TestReplaceRates_OpenHoldsKeepTheirPrices(t *testing.T) {
	t.Parallel()
	st := store.New(wallettest.Pool(t))
	workspace := wallettest.Workspace(t, st, 1000*money.Credit)
	lists := [][]holds.Rate{
		{{Prefix: "+1", PerMinute: 60_000, IncrementSeconds: 1}, {Prefix: "+1555", PerMinute: 120_000, IncrementSeconds: 60}},
		{{Prefix: "+1", PerMinute: 600_000, IncrementSeconds: 60}},
		nil,
	}
	// Each key is the price of a hold of 600 s. Its value is the index of the list of rates that
	// has this price.
	prices := map[money.Micro]int{1_200_000: 0, 6_000_000: 1, 500_000: 2}
	order := wallettest.Order(workspace)
	var holding sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		holding.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				order := wallettest.Order(workspace)
				decisions, err := st.Hold(t.Context(), workspace, []holds.Order{order})
				var insufficient *holds.Insufficient
				if err != nil {
					t.Errorf("Hold: %v", err)
					return
				}
				if decisions[0].Err != nil && !errors.As(decisions[0].Err, &insufficient) {
					t.Errorf("Hold = %v, want a %T", decisions[0].Err, insufficient)
					return
				}
				d := decisions[0]
				if insufficient != nil {
					d.Hold.Amount = insufficient.Needed
				}
				if list, known := prices[d.Hold.Amount]; !known {
					t.Error("known = false, want true")
				} else if insufficient == nil && list == 0 && d.Hold.IncrementSeconds != 60 {
					t.Errorf("d.Hold.IncrementSeconds = %v, want 60", d.Hold.IncrementSeconds)
				}
			}
		})
	}
	if d := decideHold(t, st, order); d.Hold.Amount != half {
		t.Fatalf("Hold = %+v, want the default rate", d)
	}
	for i := range 30 {
		list := i % len(lists)
		if err := st.ReplaceRates(t.Context(), workspace, lists[list]); err != nil {
			t.Fatal(err)
		}
		d := decideHold(t, st, wallettest.Order(workspace))
		var insufficient *holds.Insufficient
		if errors.As(d.Err, &insufficient) {
			d.Hold.Amount = insufficient.Needed
		}
		if prices[d.Hold.Amount] != list {
			t.Errorf("Hold after the answer = %+v, want a price of list %d", d, list)
		}
		d = decideHold(t, st, order)
		if !d.Repeated {
			t.Errorf("the open hold: d.Repeated = false, want true")
		}
		if d.Hold.Amount != half {
			t.Errorf("the open hold: d.Hold.Amount = %v, want %v", d.Hold.Amount, half)
		}
		if d.Hold.PerMinute != 50_000 {
			t.Errorf("the open hold: d.Hold.PerMinute = %v, want 50_000", d.Hold.PerMinute)
		}
	}
	close(stop)
	holding.Wait()
}
