package httpapi

import (
	"context"
	"encoding/csv"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/services/calls/internal/store"
)

// usageColumns is the first line of the response.
var usageColumns = []string{
	"date", "direction", "agent_id", "agent_name", "calling_code", "calls", "answered", "talk_seconds", "credits",
}

// readUsage handles GET /v1/usage?month=. The response is one CSV file with a line for each day
// (UTC), direction, agent and calling code. Each day is read with one query, and lines are
// written while the query still returns rows.
//
// If a query fails after the first line was sent, the connection is closed, so that the client
// notices the missing lines.
func (a *API) readUsage(w http.ResponseWriter, r *http.Request) error {
	month, err := time.Parse("2006-01", r.URL.Query().Get("month"))
	if err != nil {
		return apierr.Validation("month", "must be a month, such as 2026-06.")
	}
	file := &usageFile{response: w, name: month.Format("usage-2006-01.csv")}
	if err := a.writeUsage(r.Context(), file, serviceauth.CallerFrom(r.Context()).WorkspaceID, month); err != nil {
		if !file.begun {
			return err
		}
		slog.WarnContext(r.Context(), "usage file not sent completely", "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

func (a *API) writeUsage(ctx context.Context, file *usageFile, workspaceID uuid.UUID, month time.Time) error {
	lines := csv.NewWriter(file)
	lines.UseCRLF = true // RFC 4180 requires CRLF
	if err := lines.Write(usageColumns); err != nil {
		return err
	}
	end, now := month.AddDate(0, 1, 0), a.now()
	for day := month; day.Before(end) && day.Before(now); day = day.AddDate(0, 0, 1) {
		merged := usageMerger{day: day, lines: lines}
		err := a.store.Usage(ctx, workspaceID, day, day.AddDate(0, 0, 1), merged.add)
		if err == nil {
			err = merged.flush()
		}
		if err != nil {
			return err
		}
	}
	lines.Flush()
	return lines.Error()
}

// usageFile sets the headers of the response before the first line is sent.
type usageFile struct {
	response http.ResponseWriter
	name     string
	begun    bool
}

func (f *usageFile) Write(part []byte) (int, error) {
	if !f.begun {
		f.begun = true
		f.response.Header().Set("Content-Type", "text/csv; charset=utf-8")
		f.response.Header().Set("Content-Disposition", `attachment; filename="`+f.name+`"`)
	}
	return f.response.Write(part)
}

// usageMerger merges the rows of a day, direction and agent whose numbers have the same calling
// code.
type usageMerger struct {
	day    time.Time
	lines  *csv.Writer
	first  store.Usage // first row of the current group: one direction and agent
	byCode map[string]store.Usage
}

func (m *usageMerger) add(row store.Usage) error {
	if row.Direction != m.first.Direction || row.AgentID != m.first.AgentID {
		if err := m.flush(); err != nil {
			return err
		}
		m.first, m.byCode = row, map[string]store.Usage{}
	}
	code := phone.Number(row.Prefix).CallingCode()
	sum := m.byCode[code]
	sum.Calls += row.Calls
	sum.Answered += row.Answered
	sum.TalkSeconds += row.TalkSeconds
	sum.Credits += row.Credits
	m.byCode[code] = sum
	return nil
}

func (m *usageMerger) flush() error {
	for _, code := range slices.Sorted(maps.Keys(m.byCode)) {
		sum := m.byCode[code]
		if err := m.lines.Write([]string{
			m.day.Format(time.DateOnly), m.first.Direction, m.first.AgentID.String(),
			httpserver.CSVText(m.first.AgentName), code,
			strconv.FormatInt(sum.Calls, 10), strconv.FormatInt(sum.Answered, 10), strconv.FormatInt(sum.TalkSeconds, 10),
			sum.Credits.String(),
		}); err != nil {
			return fmt.Errorf("write usage: %w", err)
		}
	}
	m.byCode = nil
	return nil
}
