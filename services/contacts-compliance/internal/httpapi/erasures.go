package httpapi

import (
	"encoding/hex"
	"net/http"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// erasureView is an entry of the register of erasures. The entry does not contain the number.
type erasureView struct {
	ID          uuid.UUID          `json:"id"`
	Subject     string             `json:"subject"`
	KeyID       string             `json:"key_id"`
	Actor       string             `json:"actor"`
	RequestedAt openapi.Timestamp  `json:"requested_at"`
	DoneAt      *openapi.Timestamp `json:"done_at"`
	Services    []erasureProgress  `json:"services"`
}

// erasureProgress is the progress of one service: the number of known steps, the number of open
// steps, and the time at which the last step finished.
type erasureProgress struct {
	Service string             `json:"service"`
	Steps   int64              `json:"steps"`
	Open    int64              `json:"open"`
	DoneAt  *openapi.Timestamp `json:"done_at"`
}

func viewErasure(e store.Erasure) erasureView {
	view := erasureView{
		ID: e.ID, Subject: hex.EncodeToString(e.Subject), KeyID: e.KeyID, Actor: e.Actor,
		RequestedAt: openapi.TimestampOf(e.RequestedAt), DoneAt: openapi.TimestampOrNull(e.DoneAt),
		Services: []erasureProgress{},
	}
	for _, part := range e.Services {
		view.Services = append(view.Services, erasureProgress{Service: part.Service, Steps: part.Steps, Open: part.Open,
			DoneAt: openapi.TimestampOrNull(part.DoneAt)})
	}
	return view
}

// erasedView is the response to an erasure: the cleared contact, and the entry in the register of
// erasures.
type erasedView struct {
	PhoneE164     string      `json:"phone_e164"`
	Erased        []string    `json:"erased"`
	DNDStatus     string      `json:"dnd_status"`
	ConsentStatus string      `json:"consent_status"`
	Erasure       erasureView `json:"erasure"`
}

// eraseContact handles DELETE /admin/v1/workspaces/{id}/contacts/{phone}. When it responds, the
// contact's data is deleted and the consent is withdrawn. The opt-out and the records are kept. The
// other services erase their data later. The entry in the register shows their progress.
func (a *API) eraseContact(w http.ResponseWriter, r *http.Request) error {
	caller, number, err := operatorNumber(r)
	if err != nil {
		return err
	}
	reason := "The person's data was erased."
	c, entry, err := a.store.Erase(r.Context(), contacts.Change{
		WorkspaceID: caller.WorkspaceID, Number: number, Source: "erasure", Actor: "operator:" + caller.Operator,
		Reason: &reason,
	})
	if err != nil {
		return err
	}
	a.wake()
	return httpserver.WriteJSON(w, http.StatusOK, erasedView{
		PhoneE164: string(c.Number), Erased: []string{"name", "email", "external_id", "variables", "metadata"},
		DNDStatus: string(c.DND), ConsentStatus: string(c.Consent), Erasure: viewErasure(entry),
	})
}

// listErasures handles GET /admin/v1/workspaces/{id}/erasures?phone=.
func (a *API) listErasures(w http.ResponseWriter, r *http.Request) error {
	caller, req, err := operatorPage(r)
	if err != nil {
		return err
	}
	number, err := httpserver.QueryPhone(r.URL.Query(), "phone")
	if err != nil {
		return err
	}
	entries, err := a.store.Erasures(r.Context(), caller.WorkspaceID, number, req)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(req, entries, viewErasure))
}

// readErasure handles GET /admin/v1/workspaces/{id}/erasures/{erasure}.
func (a *API) readErasure(w http.ResponseWriter, r *http.Request) error {
	caller, id, err := operatorPathID(r, "erasure", "erasure")
	if err != nil {
		return err
	}
	entry, err := a.store.ErasureByID(r.Context(), caller.WorkspaceID, id)
	if err != nil {
		return convertNotFound(err, "erasure")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewErasure(entry))
}
