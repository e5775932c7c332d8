package ledger

import (
	"fmt"

	"github.com/google/uuid"
)

// DifferenceKind is a kind of inconsistency between the balances, transactions and holds of a
// workspace.
type DifferenceKind string

// These are the kinds of differences. In a Difference, Kept is the stored value, and Found is the
// value that was computed from other rows.
const (
	// MissingWallet means that the workspace has transactions or holds, but no wallet.
	MissingWallet DifferenceKind = "missing_wallet"
	// WrongBalance means that the balance of an account is not the sum of its entries.
	WrongBalance DifferenceKind = "wrong_balance"
	// UnbalancedWallet means that the balances of the wallet do not sum to zero.
	UnbalancedWallet DifferenceKind = "unbalanced_wallet"
	// NegativeBalance means that the wallet, held or revenue account is below zero.
	NegativeBalance DifferenceKind = "negative_balance"
	// HeldIsNotHolds means that the held account is not the sum of the open holds.
	HeldIsNotHolds DifferenceKind = "held_is_not_holds"
	// UnbalancedTransaction means that the entries of the transaction do not sum to zero.
	UnbalancedTransaction DifferenceKind = "unbalanced_transaction"
	// MisshapenTransaction means that the entries do not match the kind of the transaction, or the
	// transaction lacks the reference, the operator or the request id that its kind requires.
	MisshapenTransaction DifferenceKind = "misshapen_transaction"
	// ReferenceTwice means that several payments have the same reference.
	ReferenceTwice DifferenceKind = "reference_twice"
	// TransactionWithoutHold means that the transaction names a request without a hold in this
	// workspace.
	TransactionWithoutHold DifferenceKind = "transaction_without_hold"
	// HoldWithoutTransaction means that the hold has no transaction that reserved its credit.
	HoldWithoutTransaction DifferenceKind = "hold_without_transaction"
	// HeldTwice means that the hold has several transactions that reserved its credit.
	HeldTwice DifferenceKind = "held_twice"
	// WrongHold means that the amount of the hold differs from the amount of the transaction that
	// reserved it.
	WrongHold DifferenceKind = "wrong_hold"
	// SettledWithoutTransaction means that the hold is captured or released, but has no capture or
	// release transaction.
	SettledWithoutTransaction DifferenceKind = "settled_without_transaction"
	// OpenButSettled means that the hold is open, but has a capture or release transaction.
	OpenButSettled DifferenceKind = "open_but_settled"
	// SettledTwice means that the hold has several capture or release transactions.
	SettledTwice DifferenceKind = "settled_twice"
	// WrongSettlement means that the hold is captured but has a release transaction, or the hold is
	// released but has a capture transaction.
	WrongSettlement DifferenceKind = "wrong_settlement"
	// WrongRelease means that the release does not return the amount of the hold.
	WrongRelease DifferenceKind = "wrong_release"
	// WrongCharge means that the captured amount of the hold differs from the amount of the capture
	// transaction.
	WrongCharge DifferenceKind = "wrong_charge"
	// ChargeAboveHold means that the captured amount is above the amount of the hold.
	ChargeAboveHold DifferenceKind = "charge_above_hold"
	// WrongCurrency means that the currency of the hold differs from the currency of the wallet.
	WrongCurrency DifferenceKind = "wrong_currency"
)

// DifferenceKinds returns all kinds.
func DifferenceKinds() []DifferenceKind {
	return []DifferenceKind{
		MissingWallet, WrongBalance, UnbalancedWallet, NegativeBalance, HeldIsNotHolds, UnbalancedTransaction, MisshapenTransaction,
		ReferenceTwice, TransactionWithoutHold, HoldWithoutTransaction, HeldTwice, WrongHold, SettledWithoutTransaction, OpenButSettled,
		SettledTwice, WrongSettlement, WrongRelease, WrongCharge, ChargeAboveHold, WrongCurrency,
	}
}

// Difference is one inconsistency.
type Difference struct {
	WorkspaceID uuid.UUID      `json:"workspace_id"`
	Kind        DifferenceKind `json:"kind"`
	// Subject identifies the row with the difference. It is the name of an account, the id of a
	// transaction or request, or a reference.
	Subject string `json:"subject"`
	// Kept and Found are the two values that differ: amounts in credits, counts or states.
	Kept  string `json:"kept"`
	Found string `json:"found"`
}

func (d Difference) String() string {
	return fmt.Sprintf("workspace %s: %s: %s: kept %s, found %s", d.WorkspaceID, d.Kind, d.Subject, d.Kept, d.Found)
}
