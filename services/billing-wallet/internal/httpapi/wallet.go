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

// wallet answers GET /v1/wallet (specification 2.7).
func (a *API) wallet(w http.ResponseWriter, r *http.Request) error {
	found, err := a.store.Wallet(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID)
	if err != nil {
		return shown(err)
	}
	return httpserver.WriteJSON(w, http.StatusOK, openapi.Wallet{
		Balance: json.Number(found.Balance().String()), Currency: found.Currency,
		LastTransactionAt: openapi.TimestampOrNull(found.LastTransactionAt),
	})
}

// accountsView is what an operator sees: balance = spendable + held.
type accountsView struct {
	Balance           money.Micro        `json:"balance"`
	Held              money.Micro        `json:"held"`
	Spendable         money.Micro        `json:"spendable"`
	Currency          string             `json:"currency"`
	LastTransactionAt *openapi.Timestamp `json:"last_transaction_at"`
}

// accounts answers GET /admin/v1/workspaces/{id}/wallet.
func (a *API) accounts(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := workspace(r)
	if err != nil {
		return err
	}
	found, err := a.store.Wallet(r.Context(), workspaceID)
	if err != nil {
		return shown(err)
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

// mostDifferences bounds an answer; the command reconcile tells all.
const mostDifferences = 100

type reconcileView struct {
	OK bool `json:"ok"`
	// Kept are the stored balances, Summed the journal's.
	Kept      accountView `json:"kept"`
	Summed    accountView `json:"summed"`
	OpenHolds money.Micro `json:"open_holds"`
	// Differences are the first 100 of DifferenceCount.
	Differences     []differenceView `json:"differences"`
	DifferenceCount int              `json:"difference_count"`
}

type differenceView struct {
	Kind    ledger.Disagreement `json:"kind"`
	Subject string              `json:"subject"`
	Kept    string              `json:"kept"`
	Found   string              `json:"found"`
}

// reconcile answers GET /admin/v1/workspaces/{id}/wallet/reconcile: the balances from every side, and what differs.
func (a *API) reconcile(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := workspace(r)
	if err != nil {
		return err
	}
	books, err := a.store.Books(r.Context(), workspaceID)
	if err != nil {
		return shown(err)
	}
	view := reconcileView{
		OK: books.Agree(), Kept: accountsOf(books.Kept.Accounts), Summed: accountsOf(books.Summed), OpenHolds: books.Open.Held,
		Differences: []differenceView{}, DifferenceCount: len(books.Differences),
	}
	for _, d := range books.Differences[:min(len(books.Differences), mostDifferences)] {
		view.Differences = append(view.Differences, differenceView{d.Kind, d.Subject, d.Kept, d.Found})
	}
	return httpserver.WriteJSON(w, http.StatusOK, view)
}
