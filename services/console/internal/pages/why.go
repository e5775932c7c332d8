package pages

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) whyRoutes() []route {
	return []route{
		{"GET /w/{workspace}/why", showWhy},
		{"GET /w/{workspace}/why/json", showWhyJSON},
	}
}

// consentRecord is a record of the consent ledger, as the operator API returns it.
type consentRecord struct {
	ID         uuid.UUID         `json:"id"`
	Kind       string            `json:"kind"`
	Source     string            `json:"source"`
	Actor      string            `json:"actor"`
	Reason     *string           `json:"reason"`
	Evidence   json.RawMessage   `json:"evidence"`
	Before     *string           `json:"before"`
	After      *string           `json:"after"`
	OccurredAt openapi.Timestamp `json:"occurred_at"`
	CreatedAt  openapi.Timestamp `json:"created_at"`
}

// evidence contains the data of the API about the permission to call a number.
type evidence struct {
	Number    string                            `json:"phone_e164"`
	Now       *openapi.DecisionPreview          `json:"now"`
	Contact   *openapi.Contact                  `json:"contact"`
	Decisions gateway.Page[openapi.Decision]    `json:"decisions"`
	Records   gateway.Page[consentRecord]       `json:"consent_records"`
	Requests  gateway.Page[openapi.CallRequest] `json:"call_requests"`
}

type whyData struct {
	evidence
	Error *gateway.Error
	// Guarded is true if the role of the person may read the consent records.
	Guarded bool
	Agents  agentNames
}

// OptOut returns the record of the opt-out that closes the number, or nil if there is none or the
// person may not read it.
func (d whyData) OptOut() *consentRecord {
	if d.Now == nil || textOf(d.Now.Code) != "recipient_dnd" {
		return nil
	}
	var newest *consentRecord
	for i, record := range d.Records.Data {
		if record.Kind == "opt_out" && (newest == nil || record.OccurredAt.After(newest.OccurredAt.Time)) {
			newest = &d.Records.Data[i]
		}
	}
	return newest
}

// LaterRefusal returns the newest decision that refused a call when it was ordered. If a call
// request was created after it, LaterRefusal returns nil. Such a refusal has no call request.
func (d whyData) LaterRefusal() *openapi.Decision {
	for i, decision := range d.Decisions.Data { // newest first
		if decision.Kind != precheck || decision.Result != "closed" {
			continue
		}
		if len(d.Requests.Data) > 0 && !decision.JudgedAt.After(d.Requests.Data[0].CreatedAt.Time) {
			return nil
		}
		return &d.Decisions.Data[i]
	}
	return nil
}

// precheck is the kind of a decision that was made when the call was ordered.
const precheck = "precheck"

// callEvidence is the evidence of an opt-out that a person asked for in a call.
type callEvidence struct {
	CallID uuid.UUID `json:"call_id"`
	Said   string    `json:"said"`
}

// FromCall returns the evidence of an opt-out from a call, or nil if the evidence is not from a
// call.
func (r consentRecord) FromCall() *callEvidence {
	var found callEvidence
	if json.Unmarshal(r.Evidence, &found) != nil || found.CallID == uuid.Nil {
		return nil
	}
	return &found
}

// Prefix returns the prefix of the texts for the states Before and After.
func (r consentRecord) Prefix() string {
	if strings.HasPrefix(r.Kind, "opt_out") {
		return "dnd."
	}
	return "consent."
}

// Checked returns what a gate checked. The states of opt-out and consent are in the language of the
// person.
func (p *pageData) Checked(report openapi.GateReport) string {
	words := p.visit.server.templates.texts[p.Language]
	field, state, _ := strings.Cut(report.Checked, " ")
	switch field {
	case "dnd_status":
		return words.text("why.dnd") + ": " + words.textOr("dnd.", state)
	case "consent_status":
		return words.text("why.consent") + ": " + words.textOr("consent.", state)
	}
	return p.Phone(report.Checked)
}

func (v *visit) readEvidence(number string) (found evidence, err error) {
	found.Number = number
	contacts := openapi.ContactPage{}
	reads := []func() error{
		func() error {
			preview, err := gateway.Post[openapi.DecisionPreview](v.r.Context(), v.Session, "/v1/decisions/preview",
				map[string]any{"to": number})
			if err == nil {
				found.Now = &preview
			}
			return err
		},
		read(v, &found.Decisions, "/v1/decisions", url.Values{"phone": {number}, "limit": {"50"}}),
		read(v, &found.Requests, "/v1/call-requests", url.Values{"to": {number}, "limit": {"20"}}),
		read(v, &contacts, "/v1/contacts", url.Values{"phone": {number}, "limit": {"1"}}),
	}
	if v.can("listen") {
		reads = append(reads, read(v, &found.Records, v.admin("/consent-records"),
			url.Values{"phone": {number}, "limit": {"100"}}))
	}
	err = concurrently(reads...)
	if len(contacts.Data) > 0 {
		found.Contact = &contacts.Data[0]
	}
	return found, err
}

func showWhy(v *visit) (view, error) {
	data := whyData{Guarded: v.can("listen")}
	result := view{template: "why", title: "why.title", nav: "why"}
	number := v.query("phone")
	if number == "" {
		result.data = data
		return result, nil
	}
	var agents gateway.Page[gateway.Agent]
	err := concurrently(v.readAgents(&agents), func() (err error) {
		data.evidence, err = v.readEvidence(phoneOf(number))
		return err
	})
	data.Agents = agents.Data
	if refused := gateway.AsError(err); refused != nil && refused.Status == http.StatusUnprocessableEntity {
		data.Error, data.Now = refused, nil
		result.status, err = refused.Status, nil
	}
	result.data = data
	return result, err
}

// showWhyJSON returns the evidence as a file.
func showWhyJSON(v *visit) (view, error) {
	found, err := v.readEvidence(phoneOf(v.query("phone")))
	if err != nil {
		return view{}, err
	}
	text, err := json.MarshalIndent(found, "", "  ")
	if err != nil {
		return view{}, err
	}
	v.w.Header().Set("Content-Type", "application/json")
	v.w.Header().Set("Content-Disposition", `attachment; filename="evidence.json"`)
	_, _ = v.w.Write([]byte(v.mask(string(text)))) // an error means that the browser has disconnected
	return view{written: true}, nil
}
