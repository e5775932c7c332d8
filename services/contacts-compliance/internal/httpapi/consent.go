package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

const (
	maxSource   = 200
	maxEvidence = 2000 // in characters; the limit applies only to evidence that is text
)

// recordView is a consent record in the operator API. Before and After are the values of the
// changed state, which is DND or consent. The record of an import covers many numbers, so it has no
// number, contact or before.
type recordView struct {
	ID         uuid.UUID         `json:"id"`
	PhoneE164  *string           `json:"phone_e164"`
	ContactID  *uuid.UUID        `json:"contact_id"`
	Kind       contacts.Kind     `json:"kind"`
	Source     string            `json:"source"`
	Actor      string            `json:"actor"`
	Reason     *string           `json:"reason"`
	Evidence   json.RawMessage   `json:"evidence"`
	Before     *string           `json:"before"`
	After      *string           `json:"after"`
	OccurredAt openapi.Timestamp `json:"occurred_at"`
	CreatedAt  openapi.Timestamp `json:"created_at"`
}

func viewRecord(rec contacts.Record) recordView {
	view := recordView{
		ID: rec.ID, PhoneE164: orNil(string(rec.Number)), Kind: rec.Kind, Source: rec.Source, Actor: rec.Actor,
		Reason: rec.Reason, Evidence: rec.Evidence, Before: orNil(rec.Before), After: orNil(rec.After),
		OccurredAt: openapi.TimestampOf(rec.OccurredAt), CreatedAt: openapi.TimestampOf(page.TimeOf(rec.ID)),
	}
	if rec.ContactID != uuid.Nil {
		view.ContactID = &rec.ContactID
	}
	return view
}

// readConsent handles GET /admin/v1/workspaces/{id}/contacts/{phone}/consent.
func (a *API) readConsent(w http.ResponseWriter, r *http.Request) error {
	caller, number, err := operatorNumber(r)
	if err != nil {
		return err
	}
	c, err := a.store.ByNumber(r.Context(), caller.WorkspaceID, number)
	if err != nil {
		return convertNotFound(err, "number")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewStatus(c))
}

// setConsent handles PUT /admin/v1/workspaces/{id}/contacts/{phone}/consent. It creates the contact
// if needed and does not change dnd_status.
func (a *API) setConsent(w http.ResponseWriter, r *http.Request) error {
	caller, number, err := operatorNumber(r)
	if err != nil {
		return err
	}
	body, err := decode(r)
	if err != nil {
		return err
	}
	change, err := consentChange(body, "")
	if err != nil {
		return err
	}
	change.WorkspaceID, change.Number, change.Actor = caller.WorkspaceID, number, "operator:"+caller.Operator
	c, err := a.store.Record(r.Context(), change, store.CreateUnknown)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewStatus(c))
}

// consentChange parses a change of consent. The names of the fields begin with prefix. The error
// names every invalid field.
func consentChange(body bodyFields, prefix string) (change contacts.Change, err error) {
	text, status := body.requiredText(prefix+"status", maxText)
	switch {
	case status != nil:
	case contacts.Consent(text) == contacts.Consented:
		change.Kind = contacts.ConsentGranted
	case contacts.Consent(text) == contacts.Withdrawn:
		change.Kind = contacts.ConsentWithdrawn
	default:
		status = apierr.Validation(prefix+"status", "must be consented or withdrawn.")
	}
	var source, proof error
	change.Source, source = body.requiredText(prefix+"source", maxSource)
	if source == nil && strings.TrimSpace(change.Source) == "" {
		source = apierr.Validation(
			prefix+"source",
			"must say where the consent was given or withdrawn, such as \"web form\".",
		)
	}
	if evidence := prefix + "evidence"; body.hasValue(evidence) {
		change.Evidence, proof = parseEvidence(body[evidence], evidence)
	}
	return change, apierr.Join(status, source, proof)
}

// parseEvidence accepts text, or an object within the limits of metadata. name is the name of the
// field in an error.
func parseEvidence(raw json.RawMessage, name string) (json.RawMessage, error) {
	trimmed := bytes.TrimSpace(raw)
	if trimmed[0] == '"' {
		var text string
		if err := json.Unmarshal(trimmed, &text); err != nil || utf8.RuneCountInString(text) > maxEvidence {
			return nil, apierr.Validation(name, "may be at most %d characters long.", maxEvidence)
		}
		return trimmed, nil
	}
	if trimmed[0] != '{' {
		return nil, apierr.Validation(name, "must be text or an object.")
	}
	given, err := contacts.ParseDocument(name, raw)
	if err != nil {
		return nil, err
	}
	kept, err := contacts.Document{}.Merge(name, given)
	return kept.Encode(), err
}

// listRecords handles GET /admin/v1/workspaces/{id}/consent-records?phone=.
func (a *API) listRecords(w http.ResponseWriter, r *http.Request) error {
	caller, req, err := operatorPage(r)
	if err != nil {
		return err
	}
	number, err := httpserver.QueryPhone(r.URL.Query(), "phone")
	if err != nil {
		return err
	}
	records, err := a.store.Records(r.Context(), caller.WorkspaceID, number, req)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(req, records, viewRecord))
}

// readRecord handles GET /admin/v1/workspaces/{id}/consent-records/{record}.
func (a *API) readRecord(w http.ResponseWriter, r *http.Request) error {
	caller, id, err := operatorPathID(r, "record", "consent record")
	if err != nil {
		return err
	}
	record, err := a.store.RecordByID(r.Context(), caller.WorkspaceID, id)
	if err != nil {
		return convertNotFound(err, "consent record")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewRecord(record))
}
