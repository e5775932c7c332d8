package ledger

import (
	"fmt"

	"github.com/google/uuid"
)

// Disagreement is a way in which books may be wrong.
type Disagreement string

// What a reconciliation looks for. Kept is what the row says, Found what the other side says.
const (
	// MissingWallet has entries or holds and no row with balances.
	MissingWallet Disagreement = "missing_wallet"
	// WrongBalance is an account whose balance is not the sum of its entries.
	WrongBalance Disagreement = "wrong_balance"
	// UnbalancedWallet has balances that do not sum to zero.
	UnbalancedWallet Disagreement = "unbalanced_wallet"
	// NegativeBalance is a wallet, held or revenue account below zero.
	NegativeBalance Disagreement = "negative_balance"
	// HeldIsNotHolds is a held account that is not the sum of the open holds.
	HeldIsNotHolds Disagreement = "held_is_not_holds"
	// UnbalancedTransaction does not sum to zero.
	UnbalancedTransaction Disagreement = "unbalanced_transaction"
	// MisshapenTransaction moves what its kind does not move, or lacks its cause.
	MisshapenTransaction Disagreement = "misshapen_transaction"
	// ReferenceTwice was paid in more than once.
	ReferenceTwice Disagreement = "reference_twice"
	// TransactionWithoutHold names a request that this workspace holds nothing for.
	TransactionWithoutHold Disagreement = "transaction_without_hold"
	// HoldWithoutTransaction was never taken off the wallet.
	HoldWithoutTransaction Disagreement = "hold_without_transaction"
	// HeldTwice was taken off the wallet more than once.
	HeldTwice Disagreement = "held_twice"
	// WrongHold is a hold of another amount than its transaction.
	WrongHold Disagreement = "wrong_hold"
	// SettledWithoutTransaction is captured or released, and the journal has neither.
	SettledWithoutTransaction Disagreement = "settled_without_transaction"
	// OpenButSettled is an open hold that the journal has captured or released.
	OpenButSettled Disagreement = "open_but_settled"
	// SettledTwice has more than one capture or release.
	SettledTwice Disagreement = "settled_twice"
	// WrongSettlement is captured where the journal released, or the other way round.
	WrongSettlement Disagreement = "wrong_settlement"
	// WrongRelease gave back or charged another amount than was held.
	WrongRelease Disagreement = "wrong_release"
	// WrongCharge is a capture of another amount than the journal's.
	WrongCharge Disagreement = "wrong_charge"
	// ChargeAboveHold captured more than was held.
	ChargeAboveHold Disagreement = "charge_above_hold"
	// WrongCurrency is a hold in another currency than its wallet.
	WrongCurrency Disagreement = "wrong_currency"
)

// Disagreements lists them.
func Disagreements() []Disagreement {
	return []Disagreement{
		MissingWallet, WrongBalance, UnbalancedWallet, NegativeBalance, HeldIsNotHolds, UnbalancedTransaction, MisshapenTransaction,
		ReferenceTwice, TransactionWithoutHold, HoldWithoutTransaction, HeldTwice, WrongHold, SettledWithoutTransaction, OpenButSettled,
		SettledTwice, WrongSettlement, WrongRelease, WrongCharge, ChargeAboveHold, WrongCurrency,
	}
}

// Difference is one place where two sides of a workspace's books tell different things.
type Difference struct {
	WorkspaceID uuid.UUID    `json:"workspace_id"`
	Kind        Disagreement `json:"kind"`
	// Subject is an account, a transaction's id, a request's id or a reference.
	Subject string `json:"subject"`
	// Kept and Found are amounts in credits, counts or words.
	Kept  string `json:"kept"`
	Found string `json:"found"`
}

func (d Difference) String() string {
	return fmt.Sprintf("workspace %s: %s: %s: kept %s, found %s", d.WorkspaceID, d.Kind, d.Subject, d.Kept, d.Found)
}
