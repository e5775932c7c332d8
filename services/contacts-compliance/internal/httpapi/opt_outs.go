package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/contacts-compliance/internal/contacts"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// maxReason is the limit of a reason in characters.
const maxReason = 500

func viewStatus(c contacts.Contact) openapi.OptOut {
	return openapi.OptOut{PhoneE164: string(c.Number), DndStatus: openapi.DndStatus(c.DND),
		ConsentStatus: openapi.ConsentStatus(c.Consent)}
}

// optOut handles POST /v1/opt-outs. It creates the contact if needed.
func (a *API) optOut(w http.ResponseWriter, r *http.Request) error {
	body, err := decode(r)
	if err != nil {
		return err
	}
	req, err := body.createOptOut()
	if err != nil {
		return err
	}
	change := byCustomer(r, phone.Number(req.PhoneE164), contacts.OptOut)
	change.Reason = req.Reason
	c, err := a.store.Record(r.Context(), change, store.CreateUnknown)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewStatus(c))
}

func byCustomer(r *http.Request, number phone.Number, kind contacts.Kind) contacts.Change {
	caller := serviceauth.CallerFrom(r.Context())
	return contacts.Change{
		WorkspaceID: caller.WorkspaceID, Number: number, Kind: kind,
		Source: contacts.SourceAPI, Actor: "request:" + caller.RequestID.String(),
	}
}

// readOptOut handles GET /v1/opt-outs/{phone_e164}.
func (a *API) readOptOut(w http.ResponseWriter, r *http.Request) error {
	number, err := pathNumber(r)
	if err != nil {
		return err
	}
	c, err := a.store.ByNumber(r.Context(), serviceauth.CallerFrom(r.Context()).WorkspaceID, number)
	if err != nil {
		return convertNotFound(err, "number")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewStatus(c))
}

// removeOptOut handles DELETE /v1/opt-outs/{phone_e164}. It sets dnd_status to clean, whatever the
// state was before, and stores a record.
func (a *API) removeOptOut(w http.ResponseWriter, r *http.Request) error {
	number, err := pathNumber(r)
	if err != nil {
		return err
	}
	c, err := a.store.Record(r.Context(), byCustomer(r, number, contacts.OptOutRemoved), store.RefuseUnknown)
	if err != nil {
		return convertNotFound(err, "number")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewStatus(c))
}

// createOptOut parses the body of a POST. Errors with the code validation_error are reported
// together and take precedence over invalid_phone.
func (f bodyFields) createOptOut() (req openapi.CreateOptOut, err error) {
	var number, reason error
	req.PhoneE164, number = f.requiredText("phone_e164", maxText)
	req.Reason, reason = f.optionalText("reason", maxReason)
	if err := apierr.Join(number, reason); err != nil {
		return req, err
	}
	if _, ok := phone.Parse(req.PhoneE164); !ok {
		return req, invalidPhone("phone_e164")
	}
	return req, nil
}

// importView is an import of opt-outs, its progress and the first bad rows.
type importView struct {
	ID         uuid.UUID          `json:"id"`
	Status     string             `json:"status"`
	Reason     *string            `json:"reason"`
	Actor      string             `json:"actor"`
	Bytes      int64              `json:"bytes"`
	Lines      int64              `json:"lines"`
	Numbers    int64              `json:"numbers"`
	Applied    int64              `json:"applied"`
	Bad        int64              `json:"bad"`
	BadRows    json.RawMessage    `json:"bad_rows"`
	FileSHA256 *string            `json:"file_sha256"`
	ListSHA256 *string            `json:"list_sha256"`
	SameAs     *uuid.UUID         `json:"same_as"`
	RecordID   *uuid.UUID         `json:"record_id"`
	CreatedAt  openapi.Timestamp  `json:"created_at"`
	UpdatedAt  openapi.Timestamp  `json:"updated_at"`
	DoneAt     *openapi.Timestamp `json:"done_at"`
}

func viewImport(i store.Import) importView {
	return importView{
		ID: i.ID, Status: i.Status, Reason: i.Reason, Actor: i.Actor, Bytes: i.Bytes, Lines: i.Lines, Numbers: i.Numbers,
		Applied: i.Applied,
		Bad:     i.Bad, BadRows: i.BadRows, FileSHA256: i.FileSHA256, ListSHA256: i.ListSHA256, SameAs: i.SameAs,
		RecordID:  i.RecordID,
		CreatedAt: openapi.TimestampOf(page.TimeOf(i.ID)), UpdatedAt: openapi.TimestampOf(i.UpdatedAt),
		DoneAt: openapi.TimestampOrNull(i.DoneAt),
	}
}

// listedImport returns the view of an import in a list, which leaves out the bad rows.
func listedImport(i store.Import) importView {
	i.BadRows = nil
	return viewImport(i)
}

// openImport handles POST /admin/v1/workspaces/{id}/opt-out-imports.
func (a *API) openImport(w http.ResponseWriter, r *http.Request) error {
	caller, err := operatorCaller(r)
	if err != nil {
		return err
	}
	body, err := decode(r)
	if err != nil {
		return err
	}
	reason, err := body.optionalText("reason", maxReason)
	if err != nil {
		return err
	}
	opened, err := a.store.OpenImport(r.Context(), caller.WorkspaceID, "operator:"+caller.Operator, reason)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusCreated, viewImport(opened))
}

// maxParts is the maximum number of parts of an import. Parts of the largest body size then add up
// to one gigabyte.
const maxParts = 4096

// putPart handles PUT …/opt-out-imports/{import}/parts/{part}. A part is any piece of the CSV file.
// A part that is sent again replaces the earlier one.
func (a *API) putPart(w http.ResponseWriter, r *http.Request) error {
	caller, id, err := operatorPathID(r, "import", "import")
	if err != nil {
		return err
	}
	part, err := strconv.ParseUint(chi.URLParam(r, "part"), 10, 16)
	if err != nil || part < 1 || part > maxParts {
		return apierr.Validation("part", "must be a whole number from 1 to %d.", maxParts)
	}
	content, err := httpserver.ReadBody(r)
	if err != nil {
		return err
	}
	if len(content) == 0 {
		return apierr.Validation("body", "is empty: send the next piece of the file.")
	}
	put, err := a.store.PutPart(r.Context(), caller.WorkspaceID, id, int(part), content)
	if errors.Is(err, store.ErrImportStarted) {
		return apierr.Validation("part", "comes too late: the import was started. Open another one.")
	}
	if err != nil {
		return convertNotFound(err, "import")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewImport(put))
}

// startImport handles POST …/opt-out-imports/{import}/start. All parts must have arrived. The
// import then runs in the background; GET returns its progress.
func (a *API) startImport(w http.ResponseWriter, r *http.Request) error {
	caller, id, err := operatorPathID(r, "import", "import")
	if err != nil {
		return err
	}
	started, missing, err := a.store.StartImport(r.Context(), caller.WorkspaceID, id)
	if err != nil {
		return convertNotFound(err, "import")
	}
	if missing > 0 {
		return apierr.Validation("part", "%d is missing: send it, then start again.", missing)
	}
	a.importer.Wake()
	return httpserver.WriteJSON(w, http.StatusAccepted, viewImport(started))
}

// readImport handles GET …/opt-out-imports/{import}.
func (a *API) readImport(w http.ResponseWriter, r *http.Request) error {
	caller, id, err := operatorPathID(r, "import", "import")
	if err != nil {
		return err
	}
	known, err := a.store.Import(r.Context(), caller.WorkspaceID, id)
	if err != nil {
		return convertNotFound(err, "import")
	}
	return httpserver.WriteJSON(w, http.StatusOK, viewImport(known))
}

// listImports handles GET …/opt-out-imports.
func (a *API) listImports(w http.ResponseWriter, r *http.Request) error {
	caller, req, err := operatorPage(r)
	if err != nil {
		return err
	}
	known, err := a.store.Imports(r.Context(), caller.WorkspaceID, req)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, page.Of(req, known, listedImport))
}
