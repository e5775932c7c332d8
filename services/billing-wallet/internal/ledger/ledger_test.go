package ledger_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/libs/money"
	"ringfence.dev/services/billing-wallet/internal/ledger"
)

func TestTransactions_SumToZeroAndHaveTheGivenAmount(t *testing.T) {
	t.Parallel()
	id, workspace, request := uuid.Must(uuid.NewV7()), uuid.New(), uuid.New()
	rapid.Check(t, func(t *rapid.T) {
		held := money.Micro(rapid.Int64Range(0, int64(ledger.MaxAmount)).Draw(t, "held"))
		charge := money.Micro(rapid.Int64Range(0, int64(held)).Draw(t, "charge"))
		tests := []struct {
			posted ledger.Transaction
			kind   ledger.Kind
			amount money.Micro
		}{
			{ledger.Paid(id, workspace, ledger.TopUp, held, "r", "op"), ledger.TopUp, held},
			{ledger.Paid(id, workspace, ledger.Adjustment, -held, "r", "op"), ledger.Adjustment, -held},
			{ledger.Held(id, workspace, request, held), ledger.Hold, held},
			{ledger.Settled(id, workspace, request, held, 0), ledger.Release, held},
		}
		if charge > 0 {
			tests = append(tests, struct {
				posted ledger.Transaction
				kind   ledger.Kind
				amount money.Micro
			}{ledger.Settled(id, workspace, request, held, charge), ledger.Capture, charge})
		}
		for _, tt := range tests {
			if got := tt.posted.Sum(); got != 0 {
				t.Fatalf("%s: tt.posted.Sum() = %v, want 0", tt.kind, got)
			}
			if tt.posted.Kind != tt.kind {
				t.Fatalf("%s: tt.posted.Kind = %v, want %v", tt.kind, tt.posted.Kind, tt.kind)
			}
			if got := tt.posted.Amount(); got != tt.amount {
				t.Fatalf("%s: tt.posted.Amount() = %v, want %v", tt.kind, got, tt.amount)
			}
		}
	})
}

func TestPost_RefusesBalancesOutOfRange(t *testing.T) {
	t.Parallel()
	id, workspace := uuid.Must(uuid.NewV7()), uuid.New()
	tests := []struct {
		name    string
		before  ledger.Accounts
		posted  ledger.Transaction
		wantErr error
	}{
		{"all spendable credit can be taken",
			ledger.Accounts{Wallet: 5, Funding: -5}, ledger.Paid(id, workspace, ledger.Adjustment, -5, "r", "op"), nil},
		{"more than the spendable credit is refused",
			ledger.Accounts{Wallet: 5, Funding: -5}, ledger.Paid(id, workspace, ledger.Adjustment, -6, "r", "op"),
			ledger.ErrInsufficient},
		{"held credit cannot be taken", ledger.Accounts{Wallet: 5, Held: 5, Funding: -10}, ledger.Paid(id, workspace, ledger.Adjustment, -6, "r", "op"), ledger.ErrInsufficient},
		{"a balance of MaxAmount is allowed", ledger.Accounts{}, ledger.Paid(id, workspace, ledger.TopUp, ledger.MaxAmount,
			"r", "op"), nil},
		{"a balance above MaxAmount is refused",
			ledger.Accounts{Held: 1, Funding: -1}, ledger.Paid(id, workspace, ledger.TopUp, ledger.MaxAmount,
				"r", "op"), ledger.ErrTooLarge},
	}
	for _, tt := range tests {
		after, err := tt.before.Post(tt.posted)
		if !errors.Is(err, tt.wantErr) {
			t.Errorf("%s: Post = %v, want %v", tt.name, err, tt.wantErr)
		} else if got := after.Sum(); got != 0 {
			t.Errorf("%s: after.Sum() = %v, want 0", tt.name, got)
		}
		if err != nil && after != tt.before {
			t.Errorf("%s: a refused transaction changed the balances to %+v", tt.name, after)
		}
	}
}
