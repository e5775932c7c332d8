// Package ledger defines the four accounts of a workspace and the five kinds of transactions
// between the accounts. The entries of a transaction sum to zero. Package holds computes the price
// of a call.
package ledger

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/page"
)

// Kind is the kind of a transaction.
type Kind string

// A hold transaction moves credit from the wallet account to the held account. A capture or a
// release ends the hold.
const (
	TopUp      Kind = "top_up"
	Adjustment Kind = "adjustment"
	Hold       Kind = "hold"
	Capture    Kind = "capture"
	Release    Kind = "release"
)

// MaxAmount is the largest amount of a top-up or adjustment and the largest balance: a thousand
// million credits. The database columns can store larger amounts.
const MaxAmount = 1_000_000_000 * money.Credit

var (
	// ErrInsufficient means that the wallet account would be below zero.
	ErrInsufficient = errors.New("insufficient credits")
	// ErrTooLarge means that a balance would be above MaxAmount.
	ErrTooLarge = errors.New("balance too large")
)

// Accounts contains one amount for each account: the balances of a workspace, or the entries of a
// transaction.
type Accounts struct {
	// Wallet is the spendable credit.
	Wallet money.Micro `db:"wallet_micro"`
	// Held is the credit that open holds reserve.
	Held money.Micro `db:"held_micro"`
	// Revenue is the credit that was charged for calls.
	Revenue money.Micro `db:"revenue_micro"`
	// Funding is the contra account of top-ups and adjustments.
	Funding money.Micro `db:"funding_micro"`
}

// Sum returns the sum of the accounts. It is 0 for every transaction and every workspace.
func (a Accounts) Sum() money.Micro { return a.Wallet + a.Held + a.Revenue + a.Funding }

// Add adds the amounts of b, account by account.
func (a Accounts) Add(b Accounts) Accounts {
	return Accounts{a.Wallet + b.Wallet, a.Held + b.Held, a.Revenue + b.Revenue, a.Funding + b.Funding}
}

// Balance is the balance that the customer sees. A hold does not change it.
func (a Accounts) Balance() money.Micro { return a.Wallet + a.Held }

// Wallet is the wallet of a workspace.
type Wallet struct {
	WorkspaceID uuid.UUID
	Currency    string
	Accounts
	// LastTransactionAt is the time of the last top-up, adjustment or capture.
	LastTransactionAt *time.Time
	// LowBalanceThreshold is the balance below which the event wallet.low_balance is published. If
	// it is nil, the event is never published. LowBalance is true from the event until the balance
	// reaches the threshold again. LowBalanceEvents is the number of these events so far.
	LowBalanceThreshold *money.Micro `db:"low_balance_threshold_micro"`
	LowBalance          bool
	LowBalanceEvents    int32
}

// IsLow reports whether a balance is below the threshold.
func (w Wallet) IsLow(balance money.Micro) bool {
	return w.LowBalanceThreshold != nil && balance < *w.LowBalanceThreshold
}

// Transaction is one transaction of the ledger.
type Transaction struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	Kind        Kind
	// Top-ups and adjustments set Reference and Operator. The other kinds of transactions set
	// RequestID.
	Reference *string
	Operator  *string
	RequestID *uuid.UUID
	// Inbound is true if RequestID is the id of an inbound call. It is set only if the transaction
	// was read from the store.
	Inbound bool
	Accounts
}

// Paid returns a top-up or an adjustment with the given amount.
func Paid(id, workspaceID uuid.UUID, kind Kind, amount money.Micro, reference, operator string) Transaction {
	return Transaction{
		ID: id, WorkspaceID: workspaceID, Kind: kind, Reference: &reference, Operator: &operator,
		Accounts: Accounts{Wallet: amount, Funding: -amount},
	}
}

// Held returns the transaction that reserves the given amount for a request.
func Held(id, workspaceID, requestID uuid.UUID, amount money.Micro) Transaction {
	return Transaction{
		ID: id, WorkspaceID: workspaceID, Kind: Hold, RequestID: &requestID,
		Accounts: Accounts{Wallet: -amount, Held: amount},
	}
}

// Settled returns the transaction that ends a hold. The charge becomes revenue, and the rest
// becomes spendable again. If the charge is 0, the transaction is a release, otherwise a capture.
func Settled(id, workspaceID, requestID uuid.UUID, held, charge money.Micro) Transaction {
	kind := Capture
	if charge == 0 {
		kind = Release
	}
	return Transaction{
		ID: id, WorkspaceID: workspaceID, Kind: kind, RequestID: &requestID,
		Accounts: Accounts{Wallet: held - charge, Held: -held, Revenue: charge},
	}
}

// Amount returns the amount of the transaction as the API shows it: the amount that was paid in,
// held, charged or released.
func (t Transaction) Amount() money.Micro {
	switch t.Kind {
	case Hold:
		return t.Held
	case Capture:
		return t.Revenue
	default:
		return t.Wallet
	}
}

// SetsLastTransactionAt reports whether the transaction changes last_transaction_at.
func (t Transaction) SetsLastTransactionAt() bool { return t.Kind != Hold && t.Kind != Release }

// CreatedAt returns the creation time, which is part of the id.
func (t Transaction) CreatedAt() time.Time { return page.TimeOf(t.ID) }

// Post returns the balances after a transaction. It returns ErrInsufficient if the wallet would be
// below zero, and ErrTooLarge if a balance would be above MaxAmount.
func (a Accounts) Post(t Transaction) (Accounts, error) {
	next := a.Add(t.Accounts)
	if next.Wallet < 0 {
		return a, ErrInsufficient
	}
	if t.Wallet > 0 && next.Balance() > MaxAmount {
		return a, ErrTooLarge
	}
	return next, nil
}
