package pages

import (
	"encoding/csv"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

const (
	// csvTimeout limits the time for one page of a file. csvRows limits the rows of a file.
	csvTimeout = 30 * time.Second
	csvRows    = 1_000_000
)

// writeCSV sends a list of the API as a CSV file, page after page. The column names are in English,
// like the field names of the API.
func writeCSV[Item any](
	v *visit, name, path string, query url.Values, header []string, row func(Item) (id uuid.UUID, cells []string),
) (view, error) {
	query.Set("limit", "100")
	page, err := gateway.Get[gateway.Page[Item]](v.r.Context(), v.Session, path, query)
	if err != nil {
		return view{}, err
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set(
		"Content-Disposition",
		fmt.Sprintf(`attachment; filename="%s-%s.csv"`, name, time.Now().UTC().Format("2006-01-02")),
	)
	out, control := csv.NewWriter(v.w), http.NewResponseController(v.w)
	_ = out.Write(header) // the error is ignored, because Error returns it after Flush
	for rows := 0; rows < csvRows; {
		var last uuid.UUID
		for _, item := range page.Data {
			id, cells := row(item)
			for i := range cells {
				cells[i] = safeCell(v.mask(cells[i]))
			}
			last = id
			_ = out.Write(cells)
		}
		rows += len(page.Data)
		if out.Flush(); out.Error() != nil {
			return view{written: true}, nil //nolint:nilerr // the browser has disconnected
		}
		// The error is ignored: the ResponseWriter of a test does not support deadlines.
		_ = control.SetWriteDeadline(time.Now().Add(csvTimeout))
		if !page.HasMore || len(page.Data) == 0 {
			return view{written: true}, nil
		}
		query.Set("starting_after", last.String())
		if page, err = gateway.Get[gateway.Page[Item]](v.r.Context(), v.Session, path, query); err != nil {
			slog.WarnContext(v.r.Context(), "CSV file not sent completely", "file", name, "rows", rows, "error", err)
			panic(http.ErrAbortHandler) // the browser must notice that the file is not complete
		}
	}
	return view{written: true}, nil
}

// safeCell returns a value that spreadsheets do not run as a formula. It returns a phone number
// unchanged.
func safeCell(text string) string {
	if phoneNumber.FindString(text) == text {
		return text
	}
	return httpserver.CSVText(text)
}

func exportCalls(v *visit) (view, error) {
	header := []string{"id", "direction", "from", "to", "status", "outcome", "talk_seconds", "agent_id", "contact_id",
		"external_ref", "created_at"}
	return writeCSV(v, "calls", "/v1/calls", v.listQuery(callFilters()...), header,
		func(c openapi.CallListItem) (uuid.UUID, []string) {
			return c.ID, []string{c.ID.String(), string(c.Direction), c.From, c.To, string(c.Status), textOf(c.Outcome),
				textOf(c.TalkSeconds), c.AgentID.String(), textOf(c.ContactID), textOf(c.ExternalRef), rfc3339(c.CreatedAt)}
		})
}

func exportRequests(v *visit) (view, error) {
	header := []string{"id", "to", "status", "error_code", "error_detail", "call_id", "agent_id", "external_ref",
		"scheduled_for", "created_at", "completed_at"}
	return writeCSV(v, "call-requests", "/v1/call-requests", v.listQuery(requestFilters()...), header,
		func(r openapi.CallRequest) (uuid.UUID, []string) {
			return r.ID, []string{r.ID.String(), r.To, string(r.Status), textOf(r.ErrorCode), textOf(r.ErrorDetail),
				textOf(r.CallID), r.AgentID.String(), textOf(r.ExternalRef), rfc3339(r.ScheduledFor), rfc3339(r.CreatedAt),
				rfc3339(r.CompletedAt)}
		})
}

func rfc3339(value any) string {
	at, ok := timeOf(value)
	if !ok {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04:05.000Z")
}
