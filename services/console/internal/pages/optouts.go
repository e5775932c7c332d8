package pages

import (
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

const optOutsPath = "/v1/opt-outs"

func (s *Server) optOutRoutes() []route {
	return []route{
		{"GET /w/{workspace}/opt-outs", showOptOuts},
		{"POST /w/{workspace}/opt-outs", optOut},
		{"POST /w/{workspace}/opt-outs/remove", removeOptOut},
		{"GET /w/{workspace}/opt-outs/imports/{import}", showImport},
		{uploadImport, importOptOuts},
	}
}

// uploadImport is the only route that accepts more than maxForm.
const uploadImport = "POST /w/{workspace}/opt-outs/imports"

const (
	// maxUpload limits the file of an import to 256 parts. Larger lists are sent with the API.
	maxUpload = 64 << 20
	// importPart is the size of a part. It is the largest body that the gateway accepts.
	importPart = 256 << 10
	// partTimeout limits the time for receiving one part from the browser. responseTimeout limits the
	// time until the response is sent.
	partTimeout     = 30 * time.Second
	responseTimeout = 75 * time.Second
)

// optOutImport is an import of a list of numbers, as the operator API returns it.
type optOutImport struct {
	ID      uuid.UUID `json:"id"`
	Status  string    `json:"status"`
	Reason  *string   `json:"reason"`
	Actor   string    `json:"actor"`
	Bytes   int64     `json:"bytes"`
	Lines   int64     `json:"lines"`
	Numbers int64     `json:"numbers"`
	Applied int64     `json:"applied"`
	Bad     int64     `json:"bad"`
	BadRows []struct {
		Line   int64  `json:"line"`
		Value  string `json:"value"`
		Reason string `json:"reason"`
	} `json:"bad_rows"`
	SameAs    *uuid.UUID         `json:"same_as"`
	CreatedAt openapi.Timestamp  `json:"created_at"`
	UpdatedAt openapi.Timestamp  `json:"updated_at"`
	DoneAt    *openapi.Timestamp `json:"done_at"`
}

// Running reports whether the progress of the import still changes.
func (i optOutImport) Running() bool { return i.Status == "reading" || i.Status == "applying" }

// Count returns Numbers as an int, the type that the templates need.
func (i optOutImport) Count() int { return int(i.Numbers) }

// By returns the name of the operator or person who sent the list.
func (i optOutImport) By() string { return strings.TrimPrefix(i.Actor, "operator:") }

type optOutsData struct {
	// List are the contacts that are opted out, newest first.
	List openapi.ContactPage
	Last string // the id of the last contact, if there are more
	// Number is the number for which the person searched. Found is nil if the workspace has no
	// contact with this number.
	Number  string
	Found   *openapi.OptOut
	Imports gateway.Page[optOutImport]
	// New and Reason are the values of the form. A refused form shows them again with the Error. A
	// link to the page can also set them.
	New, Reason string
	Error       *gateway.Error
}

func showOptOuts(v *visit) (view, error) {
	data := optOutsData{New: phoneOf(v.query("new")), Reason: v.query("reason")}
	if number := v.query("phone"); number != "" {
		data.Number = phoneOf(number)
	}
	return readOptOuts(v, data)
}

// readOptOuts reads the lists of the page. data contains the values and the error of the form.
func readOptOuts(v *visit, data optOutsData) (view, error) {
	query := v.listQuery()
	query.Set("dnd_status", "dnd")
	reads := []func() error{read(v, &data.List, contactsPath, query)}
	if v.can("guard") {
		reads = append(reads, read(v, &data.Imports, v.admin("/opt-out-imports"), url.Values{"limit": {"10"}}))
	}
	if data.Number != "" && data.Error == nil {
		reads = append(reads, func() error { return v.findOptOut(&data) })
	}
	err := concurrently(reads...)
	if data.List.HasMore {
		data.Last = data.List.Data[len(data.List.Data)-1].ID.String()
	}
	result := view{template: "optouts", title: "optouts.title", nav: "optouts", data: data}
	if data.Error != nil {
		result.status = http.StatusUnprocessableEntity
	}
	return result, err
}

// findOptOut reads the state of the number for which the person searched.
func (v *visit) findOptOut(data *optOutsData) error {
	found, err := gateway.Get[openapi.OptOut](v.r.Context(), v.Session, optOutPath(data.Number), nil)
	if data.Error = fieldError(err); data.Error != nil || gateway.Is(err, "not_found") {
		return nil //nolint:nilerr // the page shows the error
	}
	if err == nil {
		data.Found = &found
	}
	return err
}

func optOutPath(number string) string { return optOutsPath + "/" + url.PathEscape(number) }

// optOutPage returns the address of the page that shows the state of a number.
func (v *visit) optOutPage(number string) string {
	return v.path("opt-outs") + "?" + url.Values{"phone": {number}}.Encode()
}

func optOut(v *visit) (view, error) {
	data := optOutsData{Number: phoneOf(v.form("phone")), Reason: v.form("reason")}
	data.New = data.Number
	_, err := gateway.Post[openapi.OptOut](v.r.Context(), v.Session, optOutsPath,
		openapi.CreateOptOut{PhoneE164: data.Number, Reason: textOrNil(data.Reason)})
	if data.Error = fieldError(err); data.Error != nil {
		return readOptOuts(v, data)
	}
	return view{redirect: v.optOutPage(data.Number), done: "opted_out"}, err
}

// removeOptOut removes the opt-out of a number. The person must type the number again as a
// confirmation.
func removeOptOut(v *visit) (view, error) {
	number := phoneOf(v.form("phone"))
	if !v.confirmed(number) {
		return view{redirect: v.optOutPage(number), done: "not_confirmed"}, nil
	}
	_, err := gateway.Do[openapi.OptOut](v.r.Context(), v.Session,
		gateway.Request{Method: http.MethodDelete, Path: optOutPath(number)})
	return view{redirect: v.optOutPage(number), done: "opt_out_removed"}, err
}

func showImport(v *visit) (view, error) {
	path, err := v.pathOf(v.admin("/opt-out-imports"), "import")
	if err != nil {
		return view{}, err
	}
	found, err := gateway.Get[optOutImport](v.r.Context(), v.Session, path, nil)
	return view{template: "optout_import", title: "optouts.import", nav: "optouts", data: found}, err
}

// importOptOuts sends a list of numbers to the gateway in parts, while it receives the list from
// the browser. In the form, the reason precedes the file.
func importOptOuts(v *visit) (view, error) {
	if v.r.ContentLength > maxUpload { // checked before an import is opened
		return view{}, errTooLarge
	}
	form, err := v.r.MultipartReader()
	if err != nil {
		return view{}, errNoFile
	}
	reason := ""
	for {
		v.extendDeadlines()
		field, err := form.NextPart()
		if err != nil {
			return view{}, uploadError(err)
		}
		switch field.FormName() {
		case "reason":
			text, err := io.ReadAll(io.LimitReader(field, maxForm))
			if err != nil {
				return view{}, uploadError(err)
			}
			reason = string(text)
		case "file":
			return v.sendImport(field, reason)
		}
	}
}

var (
	// errNoFile is the refusal of a form without a file, or with an empty file.
	errNoFile   = &gateway.Error{Status: http.StatusUnprocessableEntity, Code: "no_file"}
	errTooLarge = &gateway.Error{Status: http.StatusRequestEntityTooLarge, Code: "request_too_large"}
)

// uploadError returns the refusal for an error that occurred while the form was read.
func uploadError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errTooLarge
	}
	if errors.Is(err, io.EOF) {
		return errNoFile
	}
	return &gateway.Error{Status: http.StatusBadRequest, Code: "upload_interrupted"}
}

// extendDeadlines gives the browser time for the next part. Together, the parts can take longer
// than the limits of the server for one request.
func (v *visit) extendDeadlines() {
	control, now := http.NewResponseController(v.w), time.Now()
	// If one of these calls fails, the limits of the server remain in effect.
	_ = control.SetReadDeadline(now.Add(partTimeout))
	_ = control.SetWriteDeadline(now.Add(responseTimeout))
}

// sendImport opens an import, sends the parts of the file and starts the import.
func (v *visit) sendImport(file *multipart.Part, reason string) (view, error) {
	buffer, path := make([]byte, importPart), ""
	for number := 1; ; number++ {
		v.extendDeadlines()
		size, readErr := io.ReadFull(file, buffer)
		if readErr != nil && !errors.Is(readErr, io.EOF) && !errors.Is(readErr, io.ErrUnexpectedEOF) {
			return view{}, uploadError(readErr)
		}
		if size > 0 && path == "" {
			opened, err := gateway.Post[optOutImport](v.r.Context(), v.Session, v.admin("/opt-out-imports"),
				map[string]*string{"reason": textOrNil(reason)})
			if err != nil {
				return view{}, err
			}
			path = v.admin("/opt-out-imports/%s", opened.ID)
		}
		if size > 0 {
			_, err := gateway.Do[optOutImport](v.r.Context(), v.Session, gateway.Request{
				Method: http.MethodPut, Path: fmt.Sprintf("%s/parts/%d", path, number), Body: buffer[:size],
				Header: http.Header{"Content-Type": {"text/csv"}},
			})
			if err != nil {
				return view{}, err
			}
		}
		if readErr != nil { // the end of the file
			break
		}
	}
	if path == "" {
		return view{}, errNoFile
	}
	started, err := gateway.Post[optOutImport](v.r.Context(), v.Session, path+"/start", nil)
	return view{redirect: v.path("opt-outs", "imports", started.ID.String()), done: "import_started"}, err
}
