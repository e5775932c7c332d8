package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/contacts-compliance/internal/gate"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// decisionView is a stored decision with all inputs of the gates.
type decisionView struct {
	ID            uuid.UUID          `json:"id"`
	CallRequestID uuid.UUID          `json:"call_request_id"`
	PhoneE164     phone.Number       `json:"phone_e164"`
	ContactID     *uuid.UUID         `json:"contact_id"`
	Kind          gate.Stage         `json:"kind"`
	Result        gate.Result        `json:"result"`
	Rule          *string            `json:"rule"`
	Code          *string            `json:"code"`
	Message       *string            `json:"message"`
	CallAt        *openapi.Timestamp `json:"call_at"`
	PolicyVersion int                `json:"policy_version"`
	Inputs        json.RawMessage    `json:"inputs"`
	JudgedAt      openapi.Timestamp  `json:"judged_at"`
	CreatedAt     openapi.Timestamp  `json:"created_at"`
}

func viewDecision(d store.StoredDecision) decisionView {
	return decisionView{
		ID: d.ID, CallRequestID: d.CallRequestID, PhoneE164: d.Number, ContactID: d.ContactID, Kind: d.Kind, Result: d.Result,
		Rule: orNil(string(d.Rule)), Code: orNil(d.Code), Message: orNil(d.Message), PolicyVersion: d.PolicyVersion,
		Inputs: viewInputs(d.Inputs),
		CallAt: openapi.TimestampOrNull(d.CallAt), JudgedAt: openapi.TimestampOf(d.JudgedAt),
		CreatedAt: openapi.TimestampOf(page.TimeOf(d.ID)),
	}
}

// viewInputs returns the stored inputs with their timestamps in the form of the API. The stored
// timestamps are exact to the microsecond, so that a replay of the decision gives the same result.
func viewInputs(stored json.RawMessage) json.RawMessage {
	var inputs map[string]json.RawMessage
	var times struct {
		At          openapi.Timestamp   `json:"at"`
		RecentDials []openapi.Timestamp `json:"recent_dials"`
	}
	if json.Unmarshal(stored, &inputs) != nil || json.Unmarshal(stored, &times) != nil {
		return stored
	}
	for name, value := range map[string]any{"at": times.At, "recent_dials": times.RecentDials} {
		if _, present := inputs[name]; !present {
			continue
		}
		shown, err := json.Marshal(value)
		if err != nil {
			return stored
		}
		inputs[name] = shown
	}
	view, err := json.Marshal(inputs)
	if err != nil {
		return stored
	}
	return view
}

func orNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// listDecisions handles GET /admin/v1/workspaces/{id}/decisions?call_request_id=&phone=.
func (a *API) listDecisions(w http.ResponseWriter, r *http.Request) error {
	caller, req, err := operatorPage(r)
	if err != nil {
		return err
	}
	request, err := httpserver.QueryUUID(r.URL.Query(), "call_request_id")
	if err != nil {
		return err
	}
	number, err := httpserver.QueryPhone(r.URL.Query(), "phone")
	if err != nil {
		return err
	}
	if request == nil {
		request = &uuid.Nil
	}
	decisions, err := a.store.Decisions(r.Context(), caller.WorkspaceID, *request, number, req)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(req, decisions, viewDecision))
}

// readDecision handles GET /admin/v1/workspaces/{id}/decisions/{decision}.
func (a *API) readDecision(w http.ResponseWriter, r *http.Request) error {
	caller, id, err := operatorPathID(r, "decision", "decision")
	if err != nil {
		return err
	}
	decision, err := a.store.DecisionByID(r.Context(), caller.WorkspaceID, id)
	if err != nil {
		return convertNotFound(err, "decision")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewDecision(decision))
}
