package httpapi

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/contacts-compliance/internal/checks"
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
	Gates         json.RawMessage    `json:"gates"`
	Inputs        json.RawMessage    `json:"inputs"`
	JudgedAt      openapi.Timestamp  `json:"judged_at"`
	CreatedAt     openapi.Timestamp  `json:"created_at"`
}

func viewDecision(d store.StoredDecision) decisionView {
	return decisionView{
		ID: d.ID, CallRequestID: d.CallRequestID, PhoneE164: d.Number, ContactID: d.ContactID, Kind: d.Kind, Result: d.Result,
		Rule: orNil(string(d.Rule)), Code: orNil(d.Code), Message: orNil(d.Message), PolicyVersion: d.PolicyVersion,
		Gates: d.Gates, Inputs: viewInputs(d.Inputs),
		CallAt: openapi.TimestampOrNull(d.CallAt), JudgedAt: openapi.TimestampOf(d.JudgedAt),
		CreatedAt: openapi.TimestampOf(page.TimeOf(d.ID)),
	}
}

// viewInputs returns the stored inputs with their timestamps in the form of the API, which has
// milliseconds. The stored timestamps have microseconds, so that a replay of the decision gives the
// same result.
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
	decisions, err := a.findDecisions(r, caller.WorkspaceID, req)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(req, decisions, viewDecision))
}

// listOwnDecisions handles GET /v1/decisions?call_request_id=&phone=.
func (a *API) listOwnDecisions(w http.ResponseWriter, r *http.Request) error {
	req, err := page.Parse(r.URL.Query())
	if err != nil {
		return err
	}
	decisions, err := a.findDecisions(r, serviceauth.CallerFrom(r.Context()).WorkspaceID, req)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(req, decisions, viewOwnDecision))
}

// findDecisions returns the page that matches the filters in the query.
func (a *API) findDecisions(r *http.Request, workspaceID uuid.UUID, req page.Request) ([]store.StoredDecision, error) {
	request, err := httpserver.QueryUUID(r.URL.Query(), "call_request_id")
	if err != nil {
		return nil, err
	}
	number, err := httpserver.QueryPhone(r.URL.Query(), "phone")
	if err != nil {
		return nil, err
	}
	if request == nil {
		request = &uuid.Nil
	}
	return a.store.Decisions(r.Context(), workspaceID, *request, number, req)
}

// viewOwnDecision returns a decision in the form for customers, which leaves out the inputs.
func viewOwnDecision(d store.StoredDecision) openapi.Decision {
	view := openapi.Decision{
		ID: d.ID, CallRequestID: d.CallRequestID, PhoneE164: string(d.Number), ContactID: d.ContactID, Kind: string(d.Kind),
		Result: string(d.Result), Rule: orNil(string(d.Rule)), Code: orNil(d.Code), Message: orNil(d.Message),
		CallAt: openapi.TimestampOrNull(d.CallAt), PolicyVersion: d.PolicyVersion, Gates: []openapi.GateReport{},
		JudgedAt: openapi.TimestampOf(d.JudgedAt), CreatedAt: openapi.TimestampOf(page.TimeOf(d.ID)),
	}
	var gates []openapi.GateReport
	if json.Unmarshal(d.Gates, &gates) == nil && gates != nil { // a later version can store another form
		view.Gates = gates
	}
	return view
}

// previewDecision handles POST /v1/decisions/preview. It evaluates the gates as POST /v1/calls
// would and stores nothing.
func (a *API) previewDecision(w http.ResponseWriter, r *http.Request) error {
	body, err := decode(r)
	if err != nil {
		return err
	}
	req, err := body.previewDecision(time.Now())
	if err != nil {
		return err
	}
	caller, at := serviceauth.CallerFrom(r.Context()), time.Time{}
	if req.ScheduledFor != nil {
		at = req.ScheduledFor.Time
	}
	q := store.Target{WorkspaceID: caller.WorkspaceID, Number: phone.Number(req.To), Destinations: caller.Destinations}
	p, err := a.checks.Preview(r.Context(), q, gate.PreCheck, at)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewOwnPreview(q.Number, p))
}

func viewOwnPreview(number phone.Number, p checks.Preview) openapi.DecisionPreview {
	view := openapi.DecisionPreview{
		PhoneE164: string(number), At: openapi.TimestampOf(p.At), Result: string(p.Outcome.Result),
		Rule: orNil(string(p.Outcome.Rule)), Code: orNil(p.Outcome.Code), Message: orNil(p.Outcome.Message),
		PolicyVersion: p.PolicyVersion, Gates: []openapi.GateReport{},
	}
	if p.Outcome.Result != gate.Open {
		view.NextOpening = openapi.TimestampOrNull(p.Next)
	}
	for _, g := range p.Gates {
		view.Gates = append(view.Gates, openapi.GateReport{
			Gate: string(g.Gate), Result: string(g.Result), Checked: g.Checked, Reason: g.Reason,
		})
	}
	return view
}

// maxBehind limits how far in the past scheduled_for can be.
const maxBehind = 7 * 24 * time.Hour

// previewDecision parses the body of a preview. Errors with the code validation_error are reported
// together and take precedence over invalid_phone. The rules of scheduled_for are those of POST
// /v1/calls.
func (f bodyFields) previewDecision(now time.Time) (req openapi.PreviewDecision, err error) {
	var number error
	req.To, number = f.requiredText("to", maxText)
	text, when := f.optionalText("scheduled_for", maxText)
	if text != nil {
		at, unreadable := httpserver.ParseTime(*text)
		switch {
		case unreadable != nil:
			when = apierr.Validation("scheduled_for", "must be a date-time with an offset, such as 2026-06-04T09:00:00Z.")
		case at.After(now.Add(maxAhead)):
			when = apierr.Validation("scheduled_for", "must be at most 366 days ahead.")
		case at.Before(now.Add(-maxBehind)):
			when = apierr.Validation("scheduled_for",
				"is more than 7 days in the past. Leave it out to call now, or send a time in the future.")
		default:
			req.ScheduledFor = openapi.TimestampOrNull(&at)
		}
	}
	if err = apierr.Join(number, when); err != nil {
		return req, err
	}
	if _, ok := phone.Parse(req.To); !ok {
		return req, invalidPhone("to")
	}
	return req, nil
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
