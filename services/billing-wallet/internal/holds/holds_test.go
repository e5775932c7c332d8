package holds_test

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/libs/money"
	"ringfence.dev/services/billing-wallet/internal/holds"
)

func TestDecide_HoldCoversACallOfMaximumDuration(t *testing.T) {
	t.Parallel()
	view := &holds.WalletView{Spendable: money.Credit, Currency: "USD", Known: map[uuid.UUID]holds.Hold{},
		Rates: []holds.Rate{{Prefix: "+44", PerMinute: 100_000, IncrementSeconds: 60}}}
	workspace := uuid.New()
	british := view.Decide(holds.Order{RequestID: uuid.New(), WorkspaceID: workspace, To: "+442079460000",
		MaxCallSeconds: 61})
	if british.Err != nil {
		t.Errorf("Decide: british.Err = %v, want nil", british.Err)
	}
	if british.Hold.Amount != 200_000 {
		t.Errorf("Decide: british.Hold.Amount = %v, want 200_000", british.Hold.Amount)
	}
	if british.Hold.IncrementSeconds != 60 {
		t.Errorf("Decide: british.Hold.IncrementSeconds = %v, want 60", british.Hold.IncrementSeconds)
	}
	if british.Hold.PerMinute != 100_000 {
		t.Errorf("Decide: british.Hold.PerMinute = %v, want 100_000", british.Hold.PerMinute)
	}
	other := view.Decide(holds.Order{RequestID: uuid.New(), WorkspaceID: workspace, To: "+15550100123",
		MaxCallSeconds: 600})
	if other.Err != nil {
		t.Errorf("Decide: other.Err = %v, want nil", other.Err)
	} else if other.Hold.Amount != 500_000 {
		t.Errorf("Decide: other.Hold.Amount = %v, want 500_000", other.Hold.Amount)
	}
	if view.Spendable != 300_000 {
		t.Errorf("spendable = %s, want 0.3", view.Spendable)
	}
}

func TestDecide_InboundHoldHasTheGivenRate(t *testing.T) {
	t.Parallel()
	view := &holds.WalletView{Spendable: money.Credit, Currency: "USD", Known: map[uuid.UUID]holds.Hold{},
		Rates: []holds.Rate{{Prefix: "+1", PerMinute: 100_000, IncrementSeconds: 60}}}
	order := holds.Order{RequestID: uuid.New(), WorkspaceID: uuid.New(), MaxCallSeconds: 600,
		Inbound: &holds.Rate{PerMinute: 30_000, IncrementSeconds: 6}}
	first := view.Decide(order)
	if first.Err != nil {
		t.Fatalf("Decide: %v", first.Err)
	}
	want := holds.Hold{RequestID: order.RequestID, Inbound: true, WorkspaceID: order.WorkspaceID, Amount: 300_000,
		Currency: "USD", PerMinute: 30_000, IncrementSeconds: 6, MaxCallSeconds: 600, State: holds.Held}
	if diff := cmp.Diff(want, first.Hold); diff != "" {
		t.Errorf("hold (-want +got):\n%s", diff)
	}
	order.Inbound = &holds.Rate{PerMinute: 900_000, IncrementSeconds: 60}
	again := view.Decide(order)
	if !again.Repeated {
		t.Error("the repeated order made another hold")
	}
	if again.Hold.Amount != 300_000 {
		t.Errorf("amount of the repeated order = %s, want 0.3", again.Hold.Amount)
	}
}

func TestDecide_ErrorNamesNeededAndAvailableCredit(t *testing.T) {
	t.Parallel()
	view := &holds.WalletView{Spendable: 499_999, Currency: "EUR", Known: map[uuid.UUID]holds.Hold{}}
	got := view.Decide(holds.Order{RequestID: uuid.New(), WorkspaceID: uuid.New(), To: "+15550100123",
		MaxCallSeconds: 600})
	var insufficient *holds.Insufficient
	if !errors.As(got.Err, &insufficient) {
		t.Fatalf("Decide = %+v, want Insufficient", got)
	}
	if text := insufficient.Error(); !strings.Contains(text, "0.5 EUR") {
		t.Errorf(`Error: text = %q, want it to contain "0.5 EUR"`, text)
	} else if !strings.Contains(text, "0.499999 EUR") {
		t.Errorf(`Error: text = %q, want it to contain "0.499999 EUR"`, text)
	}
	if view.Spendable != 499_999 {
		t.Errorf("spendable credit after a refusal = %s, want 0.499999", view.Spendable)
	}
}

func TestSettle_OnlyTheFirstOutcomeChangesTheHold(t *testing.T) {
	t.Parallel()
	const capture, release = int32(60), int32(0)
	tests := []struct {
		name    string
		first   int32
		second  int32
		state   holds.State
		charged money.Micro
		late    holds.Late
	}{
		{"a second capture changes nothing", capture, 2 * capture, holds.Captured, 50_000, holds.SecondCapture},
		{"a release after the capture changes nothing", capture, release, holds.Captured, 50_000, holds.ReleaseAfterCapture},
		{"a capture after the release changes nothing", release, capture, holds.Released, 0, holds.CaptureAfterRelease},
		{"a second release changes nothing", release, release, holds.Released, 0, holds.SecondRelease},
	}
	for _, tt := range tests {
		h := holds.Hold{Amount: 500_000, PerMinute: 50_000, IncrementSeconds: 1, State: holds.Held}
		h, late := h.Settle(holds.Outcome{BillableSeconds: tt.first})
		if late != holds.NotLate {
			t.Errorf("%s: the first is late: %s", tt.name, late)
		}
		h, late = h.Settle(holds.Outcome{BillableSeconds: tt.second})
		if late != tt.late {
			t.Errorf("%s: late = %v, want %v", tt.name, late, tt.late)
		}
		if h.State != tt.state {
			t.Errorf("%s: h.State = %v, want %v", tt.name, h.State, tt.state)
		}
		if got := h.Charged(); got != tt.charged {
			t.Errorf("%s: h.Charged() = %v, want %v", tt.name, got, tt.charged)
		}
	}
}

func TestCharge_RoundsUpAndIsAtMostTheHold(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		increment int32
		seconds   int32
		want      money.Micro
	}{
		{"one second is rounded up to a micro-credit", 1, 1, 834},
		{"a started increment is charged completely", 60, 1, 50_000},
		{"a call of the held length costs the whole hold", 1, 600, 500_000},
		{"a longer call costs at most the hold", 1, 601, 500_000},
		{"an increment longer than the held length costs at most the hold", 3600, 1, 500_000},
		{"no talk time costs nothing", 60, 0, 0},
	}
	for _, tt := range tests {
		h := holds.Hold{Amount: 500_000, PerMinute: 50_000, IncrementSeconds: tt.increment, State: holds.Held}
		if got := h.Charge(tt.seconds); got != tt.want {
			t.Errorf("%s: Charge(%d) = %s, want %s", tt.name, tt.seconds, got, tt.want)
		}
	}
}

func TestSettle_FreeCallIsReleased(t *testing.T) {
	t.Parallel()
	h, late := holds.Hold{State: holds.Held}.Settle(holds.Outcome{BillableSeconds: 60})
	if late != holds.NotLate {
		t.Errorf("Settle: late = %v, want %v", late, holds.NotLate)
	}
	if h.State != holds.Released {
		t.Errorf("Settle: h.State = %v, want %v", h.State, holds.Released)
	}
	if h.Captured != nil {
		t.Errorf("Settle: h.Captured = %v, want nil", h.Captured)
	}
}

// The test computes the expected price with exact fractions.
func TestCharge_IsTheExactPriceOfStartedIncrements(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		agreed := holds.Rate{Prefix: "+1", PerMinute: money.Micro(rapid.Int64Range(0, int64(holds.MaxPerMinute)).Draw(r,
			"per minute")),
			IncrementSeconds: rapid.Int32Range(1, holds.MaxIncrementSeconds).Draw(r, "increment")}
		longest := rapid.Int32Range(1, 86_400).Draw(r, "longest")
		view := &holds.WalletView{Spendable: 1 << 60, Currency: "USD", Rates: []holds.Rate{agreed},
			Known: map[uuid.UUID]holds.Hold{}}
		h := view.Decide(holds.Order{RequestID: uuid.New(), To: "+15550100123", MaxCallSeconds: longest}).Hold
		talk := rapid.Int32Range(0, 2*longest).Draw(r, "talk")
		charge := h.Charge(talk)

		increments := int64(talk) / int64(agreed.IncrementSeconds)
		if increments*int64(agreed.IncrementSeconds) < int64(talk) {
			increments++
		}
		exact := new(big.Rat).SetFrac64(int64(agreed.PerMinute), 60)
		exact.Mul(exact, new(big.Rat).SetInt64(increments*int64(agreed.IncrementSeconds)))
		above := new(big.Rat).Sub(new(big.Rat).SetInt64(int64(charge)), exact)
		switch {
		case charge < 0 || charge > h.Amount:
			r.Fatalf("charged %s of a hold of %s", charge, h.Amount)
		case talk <= longest && (above.Sign() < 0 || above.Cmp(big.NewRat(1, 1)) >= 0):
			r.Fatalf("%d s cost %d micro-credits, exactly %s: want the next whole one", talk, charge, exact.FloatString(3))
		case talk >= longest && charge != h.Amount:
			r.Fatalf("%d s of at most %d cost %s, want the whole hold of %s", talk, longest, charge, h.Amount)
		case talk == 0 && charge != 0:
			r.Fatalf("no talk costs %s", charge)
		case talk > 0 && h.Charge(talk-1) > charge:
			r.Fatalf("a second less costs more: %s, then %s", h.Charge(talk-1), charge)
		case talk > 0 && h.Charge((talk-1)/agreed.IncrementSeconds*agreed.IncrementSeconds+1) != charge:
			r.Fatalf("the first second of an increment does not cost what the last one does")
		}
		settled, late := h.Settle(holds.Outcome{BillableSeconds: talk})
		if late != holds.NotLate {
			r.Fatalf("Settle: late = %v, want %v", late, holds.NotLate)
		}
		if got := settled.Charged(); got != charge {
			r.Fatalf("Settle: settled.Charged() = %v, want %v", got, charge)
		}
		if got, want := settled.State == holds.Captured, charge > 0; got != want {
			r.Fatalf("Settle: captured = %v, want %v", got, want)
		}
	})
}
