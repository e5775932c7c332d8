package httpapi

import (
	"net/http"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/contacts-compliance/internal/contact"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

const maxReason = 500

// statusView is an opt-out status as specification 2.5 shows it.
type statusView struct {
	PhoneE164     phone.Number    `json:"phone_e164"`
	DNDStatus     contact.DND     `json:"dnd_status"`
	ConsentStatus contact.Consent `json:"consent_status"`
}

func viewStatus(c contact.Contact) statusView {
	return statusView{PhoneE164: c.Number, DNDStatus: c.DND, ConsentStatus: c.Consent}
}

// optOut answers POST /v1/opt-outs; it creates the contact if needed.
func (a *API) optOut(w http.ResponseWriter, r *http.Request) error {
	body, err := decode(r)
	if err != nil {
		return err
	}
	text, err := body.required("phone_e164", maxText)
	if err != nil {
		return err
	}
	reason, err := body.text("reason", maxReason)
	if err != nil {
		return err
	}
	number, ok := phone.Parse(text)
	if !ok {
		return invalidPhone("phone_e164")
	}
	change := byCustomer(r, number, contact.OptOut)
	change.Reason = reason
	c, err := a.store.Record(r.Context(), change, store.CreateUnknown)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewStatus(c))
}

func byCustomer(r *http.Request, number phone.Number, kind contact.Kind) contact.Change {
	caller := trust.CallerFrom(r.Context())
	return contact.Change{
		WorkspaceID: caller.WorkspaceID, Number: number, Kind: kind,
		Source: contact.SourceAPI, Actor: "request:" + caller.RequestID.String(),
	}
}

// readOptOut answers GET /v1/opt-outs/{phone_e164}.
func (a *API) readOptOut(w http.ResponseWriter, r *http.Request) error {
	number, err := pathNumber(r)
	if err != nil {
		return err
	}
	c, err := a.store.ByNumber(r.Context(), trust.CallerFrom(r.Context()).WorkspaceID, number)
	if err != nil {
		return found(err, "number")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewStatus(c))
}

// removeOptOut answers DELETE /v1/opt-outs/{phone_e164}: any state becomes clean, and a record says so.
func (a *API) removeOptOut(w http.ResponseWriter, r *http.Request) error {
	number, err := pathNumber(r)
	if err != nil {
		return err
	}
	c, err := a.store.Record(r.Context(), byCustomer(r, number, contact.OptOutRemoved), store.RefuseUnknown)
	if err != nil {
		return found(err, "number")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewStatus(c))
}
