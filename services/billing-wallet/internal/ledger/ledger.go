// Package ledger owns how money moves: the four accounts of a workspace and the five kinds of transaction between
// them, each summing to zero. What a call costs is rate's and hold's to say.
package ledger

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/page"
)

// Kind says what moved.
type Kind string

// The kinds of transaction. A hold moves wallet to held; a capture or a release ends it.
const (
	TopUp      Kind = "top_up"
	Adjustment Kind = "adjustment"
	Hold       Kind = "hold"
	Capture    Kind = "capture"
	Release    Kind = "release"
)

// Largest bounds a top-up, an adjustment and a balance (a thousand million credits), far
// inside what the columns hold.
const Largest = 1_000_000_000 * money.Credit

var (
	// ErrInsufficient says that the wallet account would fall below zero.
	ErrInsufficient = errors.New("insufficient credits")
	// ErrTooLarge says that a balance would pass Largest.
	ErrTooLarge = errors.New("balance too large")
)

// Accounts are amounts by account: balances of a workspace, or the entries of a transaction.
type Accounts struct {
	// Wallet is what may be spent.
	Wallet money.Micro `db:"wallet_micro"`
	// Held is promised to open holds.
	Held money.Micro `db:"held_micro"`
	// Revenue is what calls have cost.
	Revenue money.Micro `db:"revenue_micro"`
	// Funding is the counter account of top-ups and adjustments.
	Funding money.Micro `db:"funding_micro"`
}

// Sum is zero for every transaction and every workspace.
func (a Accounts) Sum() money.Micro { return a.Wallet + a.Held + a.Revenue + a.Funding }

// Add is both together.
func (a Accounts) Add(b Accounts) Accounts {
	return Accounts{a.Wallet + b.Wallet, a.Held + b.Held, a.Revenue + b.Revenue, a.Funding + b.Funding}
}

// Balance is what the customer sees: a hold does not lower it.
func (a Accounts) Balance() money.Micro { return a.Wallet + a.Held }

// Wallet is a workspace's row.
type Wallet struct {
	WorkspaceID uuid.UUID
	Currency    string
	Accounts
	// LastTransactionAt moves with top-ups, adjustments and captures.
	LastTransactionAt *time.Time
}

// Transaction is one row of the journal.
type Transaction struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	Kind        Kind
	// Reference and Operator stand on top-ups and adjustments, RequestID on the others.
	Reference *string
	Operator  *string
	RequestID *uuid.UUID
	Accounts
}

// Paid is a top-up or an adjustment of amount.
func Paid(id, workspaceID uuid.UUID, kind Kind, amount money.Micro, reference, operator string) Transaction {
	return Transaction{
		ID: id, WorkspaceID: workspaceID, Kind: kind, Reference: &reference, Operator: &operator,
		Accounts: Accounts{Wallet: amount, Funding: -amount},
	}
}

// Held sets amount aside for a request.
func Held(id, workspaceID, requestID uuid.UUID, amount money.Micro) Transaction {
	return Transaction{
		ID: id, WorkspaceID: workspaceID, Kind: Hold, RequestID: &requestID,
		Accounts: Accounts{Wallet: -amount, Held: amount},
	}
}

// Settled ends a hold: charge becomes revenue and the rest is spendable again. A charge of zero is a release.
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

// Amount is the one number that names the transaction: what was paid in, held, charged or given back.
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

// Moves says whether the transaction moves last_transaction_at.
func (t Transaction) Moves() bool { return t.Kind != Hold && t.Kind != Release }

// CreatedAt is the instant inside the id.
func (t Transaction) CreatedAt() time.Time { return page.TimeOf(t.ID) }

// Post applies a transaction to balances, or refuses what would take the wallet below zero or a balance past Largest.
func (a Accounts) Post(t Transaction) (Accounts, error) {
	next := a.Add(t.Accounts)
	if next.Wallet < 0 {
		return a, ErrInsufficient
	}
	if t.Wallet > 0 && next.Balance() > Largest {
		return a, ErrTooLarge
	}
	return next, nil
}
