package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"unicode/utf8"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/billing-wallet/internal/ledger"
)

const maxReference = 255

type transactionBody struct {
	Type      *string `json:"type"`
	Amount    *string `json:"amount"`
	Reference *string `json:"reference"`
}

// transactionView is a transaction in the API. Amount is a decimal string, as in the request body.
type transactionView struct {
	ID            uuid.UUID         `json:"id"`
	Type          ledger.Kind       `json:"type"`
	Amount        string            `json:"amount"`
	Reference     *string           `json:"reference"`
	Operator      *string           `json:"operator"`
	CallRequestID *uuid.UUID        `json:"call_request_id"`
	CallID        *uuid.UUID        `json:"call_id"`
	CreatedAt     openapi.Timestamp `json:"created_at"`
}

// viewTransaction sets call_id for an inbound call, and call_request_id for a call request.
func viewTransaction(t ledger.Transaction) transactionView {
	requestID, callID := t.RequestID, (*uuid.UUID)(nil)
	if t.Inbound {
		requestID, callID = nil, t.RequestID
	}
	return transactionView{t.ID, t.Kind, t.Amount().String(), t.Reference, t.Operator, requestID, callID,
		openapi.TimestampOf(t.CreatedAt())}
}

func (b transactionBody) payment() (kind ledger.Kind, amount money.Micro, reference string, err error) {
	switch {
	case b.Type == nil:
		return "", 0, "", apierr.Validation("type", "is missing. Send top_up or adjustment.")
	case *b.Type != string(ledger.TopUp) && *b.Type != string(ledger.Adjustment):
		return "", 0, "", apierr.Validation("type", "must be top_up or adjustment.")
	case b.Amount == nil:
		return "", 0, "", apierr.Validation("amount", `is missing. Send a decimal string such as "12.50".`)
	}
	kind = ledger.Kind(*b.Type)
	amount, err = money.Parse(*b.Amount)
	switch {
	case err != nil:
		return "", 0, "", apierr.Validation("amount", `must be a decimal string with at most six places, such as "12.50".`)
	case kind == ledger.TopUp && amount <= 0:
		return "", 0, "", apierr.Validation("amount", "of a top_up must be more than zero. Use an adjustment to take credit away.")
	case amount == 0:
		return "", 0, "", apierr.Validation("amount", "must not be zero.")
	case amount > ledger.MaxAmount || amount < -ledger.MaxAmount:
		return "", 0, "", apierr.Validation("amount", "must be at most %s.", ledger.MaxAmount)
	case b.Reference == nil || *b.Reference == "":
		return "", 0, "", apierr.Validation("reference", "is missing. Send the payment's own number: it counts once.")
	case utf8.RuneCountInString(*b.Reference) > maxReference:
		return "", 0, "", apierr.Validation("reference", "must be at most %d characters long.", maxReference)
	}
	return kind, amount, *b.Reference, nil
}

// postTransaction handles POST /admin/v1/workspaces/{id}/wallet/transactions. It responds 201 with
// the new transaction. If the reference was used before, it posts nothing and responds 200 with the
// first transaction of the reference. The gateway then stores the outcome `unchanged` in the audit
// log.
func (a *API) postTransaction(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := pathWorkspaceID(r)
	if err != nil {
		return err
	}
	var body transactionBody
	if err := httpserver.DecodeJSON(r, &body); err != nil {
		return err
	}
	kind, amount, reference, err := body.payment()
	if err != nil {
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("make transaction id: %w", err)
	}
	operator := serviceauth.CallerFrom(r.Context()).Operator
	posted, replayed, err := a.store.Pay(r.Context(), ledger.Paid(id, workspaceID, kind, amount, reference, operator))
	switch {
	case errors.Is(err, ledger.ErrInsufficient):
		return apierr.Conflict("insufficient_credits",
			"This adjustment would take the spendable credit below zero. Credit held for open calls cannot be taken.")
	case errors.Is(err, ledger.ErrTooLarge):
		return apierr.Validation("amount", "would take the balance past %s.", ledger.MaxAmount)
	case err != nil:
		return clientError(err)
	}
	status := http.StatusCreated
	if replayed {
		status = http.StatusOK
		w.Header().Set("Idempotency-Replayed", "true")
		if posted.Kind != kind || posted.Amount() != amount {
			slog.WarnContext(r.Context(), "payment reference repeated with another type or amount, nothing posted",
				"workspace_id", workspaceID,
				"transaction_id", posted.ID, "operator", operator, "requested_amount", amount, "posted_amount", posted.Amount())
		}
	}
	return httpserver.WriteJSON(w, status, viewTransaction(posted))
}

// listTransactions handles GET /admin/v1/workspaces/{id}/wallet/transactions?type=. The parameter
// `type` selects the transactions of one type.
func (a *API) listTransactions(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := pathWorkspaceID(r)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	request, err := page.Parse(query)
	if err != nil {
		return err
	}
	kind, err := httpserver.QueryEnum(query, "type", string(ledger.TopUp), string(ledger.Adjustment),
		string(ledger.Hold), string(ledger.Capture), string(ledger.Release))
	if err != nil {
		return err
	}
	rows, err := a.store.Transactions(r.Context(), workspaceID, ledger.Kind(kind), request)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(request, rows, viewTransaction))
}

// getTransaction handles GET /admin/v1/workspaces/{id}/wallet/transactions/{transaction_id}.
func (a *API) getTransaction(w http.ResponseWriter, r *http.Request) error {
	workspaceID, err := pathWorkspaceID(r)
	if err != nil {
		return err
	}
	id, err := httpserver.PathID(r, "transaction_id", "transaction")
	if err != nil {
		return err
	}
	found, ok, err := a.store.Transaction(r.Context(), workspaceID, id)
	if err != nil {
		return err
	}
	if !ok {
		return apierr.NotFound("transaction")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewTransaction(found))
}
