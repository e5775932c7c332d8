package httpapi

import (
	"net/http"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/trust"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/contacts-compliance/internal/contact"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// maxReason bounds a reason, in characters (contract.md §6).
const maxReason = 500

// viewStatus is an opt-out status as specification 2.5 shows it.
func viewStatus(c contact.Contact) openapi.OptOut {
	return openapi.OptOut{PhoneE164: string(c.Number), DndStatus: openapi.DndStatus(c.DND), ConsentStatus: openapi.ConsentStatus(c.Consent)}
}

// optOut answers POST /v1/opt-outs; it creates the contact if needed.
func (a *API) optOut(w http.ResponseWriter, r *http.Request) error {
	body, err := decode(r)
	if err != nil {
		return err
	}
	asked, err := body.createOptOut()
	if err != nil {
		return err
	}
	change := byCustomer(r, phone.Number(asked.PhoneE164), contact.OptOut)
	change.Reason = asked.Reason
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

func (f fields) createOptOut() (asked openapi.CreateOptOut, err error) {
	if asked.PhoneE164, err = f.required("phone_e164", maxText); err != nil {
		return asked, err
	}
	if asked.Reason, err = f.text("reason", maxReason); err != nil {
		return asked, err
	}
	if _, ok := phone.Parse(asked.PhoneE164); !ok {
		return asked, invalidPhone("phone_e164")
	}
	return asked, nil
}
