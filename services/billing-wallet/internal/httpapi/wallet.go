package httpapi

import (
	"encoding/json"
	"net/http"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/billing-wallet/internal/ledger"
)

// getWallet handles GET /v1/wallet.
func (a *API) getWallet(w http.ResponseWriter, r *http.Request) error {
	found, err := a.store.Wallet(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID)
	if err != nil {
		return clientError(err)
	}
	return httpserver.WriteJSON(w, http.StatusOK, openapi.Wallet{
		Balance: json.Number(found.Balance().String()), Currency: found.Currency,
		LastTransactionAt: openapi.TimestampOrNull(found.LastTransactionAt),
	})
}

// The balance is the sum of the spendable and the held credit.
type accountsView struct {
	Balance           money.Micro        `json:"balance"`
	Held              money.Micro        `json:"held"`
	Spendable         money.Micro        `json:"spendable"`
	Currency          string             `json:"currency"`
	LastTransactionAt *openapi.Timestamp `json:"last_transaction_at"`
}

// getAccounts handles GET /admin/v1/workspaces/{id}/wallet.
func (a *API) getAccounts(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := pathWorkspaceID(r)
	if err != nil {
		return err
	}
	found, err := a.store.Wallet(r.Context(), workspaceID)
	if err != nil {
		return clientError(err)
	}
	return httpserver.WriteJSON(w, http.StatusOK, accountsView{
		found.Balance(), found.Held, found.Wallet, found.Currency, openapi.TimestampOrNull(found.LastTransactionAt),
	})
}

type accountView struct {
	Spendable money.Micro `json:"spendable"`
	Held      money.Micro `json:"held"`
	Revenue   money.Micro `json:"revenue"`
	Funding   money.Micro `json:"funding"`
}

func accountsOf(sums ledger.Accounts) accountView {
	return accountView{sums.Wallet, sums.Held, sums.Revenue, sums.Funding}
}

// maxDifferences limits the number of differences in a response. The command reconcile prints all
// differences.
const maxDifferences = 100

type reconcileView struct {
	OK bool `json:"ok"`
	// Kept contains the stored balances. Summed contains the sums of the ledger's entries.
	Kept      accountView `json:"kept"`
	Summed    accountView `json:"summed"`
	OpenHolds money.Micro `json:"open_holds"`
	// Differences contains the first 100 differences. DifferenceCount is the number of all
	// differences.
	Differences     []differenceView `json:"differences"`
	DifferenceCount int              `json:"difference_count"`
}

type differenceView struct {
	Kind    ledger.DifferenceKind `json:"kind"`
	Subject string                `json:"subject"`
	Kept    string                `json:"kept"`
	Found   string                `json:"found"`
}

// reconcileWallet handles GET /admin/v1/workspaces/{id}/wallet/reconcile. It returns the stored
// balances, the sums of the ledger's entries and of the holds, and the differences.
func (a *API) reconcileWallet(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := pathWorkspaceID(r)
	if err != nil {
		return err
	}
	books, err := a.store.Books(r.Context(), workspaceID)
	if err != nil {
		return clientError(err)
	}
	view := reconcileView{
		OK: books.Agree(), Kept: accountsOf(books.Kept.Accounts), Summed: accountsOf(books.Summed), OpenHolds: books.Open.Held,
		Differences: []differenceView{}, DifferenceCount: len(books.Differences),
	}
	for _, d := range books.Differences[:min(len(books.Differences), maxDifferences)] {
		view.Differences = append(view.Differences, differenceView{d.Kind, d.Subject, d.Kept, d.Found})
	}
	return httpserver.WriteJSON(w, http.StatusOK, view)
}
