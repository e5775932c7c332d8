package httpapi

import (
	"encoding/json"
	"net/http"

	"ringfence.dev/libs/apierr"
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

// accountsView is a wallet in the operator API. Balance is the sum of the spendable and the held
// credit.
type accountsView struct {
	Balance           money.Micro        `json:"balance"`
	Held              money.Micro        `json:"held"`
	Spendable         money.Micro        `json:"spendable"`
	Currency          string             `json:"currency"`
	LastTransactionAt *openapi.Timestamp `json:"last_transaction_at"`
	// LowBalanceThreshold is null if the workspace has no threshold.
	LowBalanceThreshold *money.Micro `json:"low_balance_threshold"`
}

func viewAccounts(w ledger.Wallet) accountsView {
	return accountsView{
		w.Balance(), w.Held, w.Wallet, w.Currency, openapi.TimestampOrNull(w.LastTransactionAt), w.LowBalanceThreshold,
	}
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
	return httpserver.WriteJSON(w, http.StatusOK, viewAccounts(found))
}

// changeWallet handles PATCH /admin/v1/workspaces/{id}/wallet. The only setting is
// low_balance_threshold, a decimal string or null.
func (a *API) changeWallet(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := pathWorkspaceID(r)
	if err != nil {
		return err
	}
	var body map[string]json.RawMessage
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	text, given := body["low_balance_threshold"]
	if !given {
		return a.getAccounts(w, r)
	}
	threshold, err := parseThreshold(text)
	if err != nil {
		return err
	}
	changed, err := a.store.SetLowBalanceThreshold(r.Context(), workspaceID, threshold)
	if err != nil {
		return clientError(err)
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewAccounts(changed))
}

func parseThreshold(raw json.RawMessage) (*money.Micro, error) {
	var text *string
	if err := json.Unmarshal(raw, &text); err != nil {
		return nil, apierr.Validation("low_balance_threshold", `must be a decimal string such as "10.00", or null.`)
	}
	if text == nil {
		return nil, nil //nolint:nilnil // nil means no threshold
	}
	amount, err := money.Parse(*text)
	switch {
	case err != nil:
		return nil, apierr.Validation("low_balance_threshold",
			`must be a decimal string with at most six places, such as "10.00", or null.`)
	case amount <= 0 || amount > ledger.MaxAmount:
		return nil, apierr.Validation(
			"low_balance_threshold",
			"must be more than zero and at most %s. Send null for no event.",
			ledger.MaxAmount,
		)
	}
	return &amount, nil
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
