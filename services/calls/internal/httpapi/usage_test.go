package httpapi_test

import (
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/libs/page"
	"ringfence.dev/libs/serviceauth"
)

// download requests the usage of a month and returns the response with its body. err is the error
// of reading the body.
func (r *rig) download(workspace uuid.UUID, month string) (resp *http.Response, body string, err error) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.server.URL+"/v1/usage?month="+month, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	token, err := r.gateway.SignCaller("calls", serviceauth.Caller{
		WorkspaceID: workspace, RequestID: newID(r.t), Access: serviceauth.Read,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set(serviceauth.CallerHeader, token)
	if resp, err = http.DefaultClient.Do(req); err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	return resp, string(raw), err
}

type usedCall struct {
	at        time.Time
	workspace uuid.UUID
	agent     uuid.UUID
	direction string
	other     string // the number of the other party
	talk      int    // seconds; 0 if the call was not answered
	credits   any
}

// insert stores calls. The index n makes the ids of calls of the same millisecond different.
func (r *rig) insert(calls ...usedCall) {
	r.t.Helper()
	for n, c := range calls {
		id := page.FirstID(c.at)
		id[15], id[14] = byte(n), byte(n>>8)
		from, to, request := "+15005550006", c.other, any(newID(r.t))
		if c.direction == "inbound" {
			from, to, request = c.other, "+15005550006", nil
		}
		r.exec(`INSERT INTO calls (id, workspace_id, call_request_id, direction, from_number, to_e164, agent_id, status,
			answered_at, talk_seconds, billable_seconds, version, charge_settled, credits_micro)
			VALUES ($1, $2, $3, $4, $5, $6, $7, 'completed', CASE WHEN $8::int > 0 THEN now() END, nullif($8, 0), 0, 1,
				true, $9::bigint)`, id, c.workspace, request, c.direction, from, to, c.agent, c.talk, c.credits)
	}
}

func TestUsage_SumsTheCallsOfAMonth(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	otherWorkspace, deleted := newID(t), uuid.MustParse("ffffffff-0000-7000-8000-000000000001")
	r.exec("UPDATE agents SET name = $2 WHERE id = $1", r.agent, "=HYPERLINK(\"http://evil\",\"Ada, 1\")")
	first, last := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	r.insert(
		usedCall{first, r.workspace, r.agent, "outbound", "+14155550100", 61, 100_000},
		usedCall{first.Add(23*time.Hour + 59*time.Minute), r.workspace, r.agent, "outbound", "+12125550100", 30, 1},
		usedCall{first, r.workspace, r.agent, "outbound", "+12125550101", 0, nil},
		usedCall{first, r.workspace, r.agent, "outbound", "+442079460000", 5, nil},
		usedCall{first, r.workspace, deleted, "outbound", "+383491234567", 7, 7_000_000},
		usedCall{first, r.workspace, r.agent, "inbound", "anonymous", 8, nil},
		usedCall{last.Add(-time.Millisecond), r.workspace, r.agent, "outbound", "+14155550100", 9, nil},
		// These calls must not be in the file, because they are outside of the month or belong to
		// another workspace.
		usedCall{first.Add(-time.Millisecond), r.workspace, r.agent, "outbound", "+14155550100", 10, nil},
		usedCall{last, r.workspace, r.agent, "outbound", "+14155550100", 11, nil},
		usedCall{first, otherWorkspace, r.agent, "outbound", "+14155550100", 12, nil},
	)
	resp, body, err := r.download(r.workspace, "2026-06")
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status = %d, want 200", resp.StatusCode)
	}
	if got, want := resp.Header.Get("Content-Type"), "text/csv; charset=utf-8"; got != want {
		t.Errorf("Content-Type = %q, want %q", got, want)
	}
	if got, want := resp.Header.Get("Content-Disposition"), `attachment; filename="usage-2026-06.csv"`; got != want {
		t.Errorf("Content-Disposition = %q, want %q", got, want)
	}
	agent, name := r.agent.String(), `"'=HYPERLINK(""http://evil"",""Ada, 1"")"`
	want := strings.Join([]string{
		"date,direction,agent_id,agent_name,calling_code,calls,answered,talk_seconds,credits",
		"2026-06-01,inbound," + agent + "," + name + ",,1,1,8,0",
		"2026-06-01,outbound," + agent + "," + name + ",1,3,2,91,0.100001",
		"2026-06-01,outbound," + agent + "," + name + ",44,1,1,5,0",
		"2026-06-01,outbound," + deleted.String() + ",,383,1,1,7,7",
		"2026-06-30,outbound," + agent + "," + name + ",1,1,1,9,0", "",
	}, "\r\n")
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
}

func TestUsage_NoCellBeginsWithAFormulaCharacter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	day := time.Date(2026, 6, 4, 0, 0, 0, 0, time.UTC)
	r.insert(usedCall{day, r.workspace, r.agent, "outbound", "+14155550100", 1, nil})
	for _, name := range []string{"=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠1"} {
		r.exec("UPDATE agents SET name = $2 WHERE id = $1", r.agent, name)
		_, body, err := r.download(r.workspace, "2026-06")
		if err != nil {
			t.Fatal(err)
		}
		lines, err := csv.NewReader(strings.NewReader(body)).ReadAll()
		if err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if len(lines) != 2 {
			t.Fatalf("%q: lines = %q, want 2", name, lines)
		}
		for column, cell := range lines[1] {
			if strings.IndexAny(cell, "=+-@\t\r\n＝＋－＠") == 0 {
				t.Errorf("%q: %s = %q, want no cell that begins with a formula character", name, lines[0][column], cell)
			}
		}
	}
}

func TestUsage_RefusesAnInvalidMonth(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, month := range []string{
		"", "2026", "2026-13", "2026-00", "2026-6", "2026-06-01", "x", "2026-06%00", "%ff", "0000-01x", "-001-01",
	} {
		a := r.do("GET", "/v1/usage?month="+month, nil)
		if a.code() != "validation_error" {
			t.Errorf("month %q: code = %q, want validation_error", month, a.code())
		}
		if !strings.Contains(a.message(), "month") {
			t.Errorf("month %q: message = %q, want that it names month", month, a.message())
		}
	}
	for _, month := range []string{"0000-01", "9999-12", "2026-06"} {
		resp, body, err := r.download(r.workspace, month)
		if err != nil || resp.StatusCode != http.StatusOK || strings.Count(body, "\r\n") != 1 {
			t.Errorf("month %s = %d %q, %v, want only the first line", month, resp.StatusCode, body, err)
		}
	}
}

// If a later day cannot be read, the client must notice that the file is not complete.
func TestUsage_FailedQueryGivesNoCompleteResponse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	day := time.Date(2026, 6, 4, 0, 0, 0, 0, time.UTC)
	// the sum of two such charges exceeds an int64, so reading it fails
	const most = 9_000_000_000_000_000_000
	broken := []usedCall{
		{day, r.workspace, r.agent, "outbound", "+14155550100", 1, most},
		{day, r.workspace, r.agent, "outbound", "+14155550100", 1, most},
	}
	r.insert(broken...)
	resp, body, err := r.download(r.workspace, "2026-06")
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(body, "internal_error") {
		t.Errorf("response before the first line = %d %s, want 500", resp.StatusCode, body)
	}
	earlier := make([]usedCall, 0, 300)
	for n := range cap(earlier) {
		agent := uuid.MustParse(fmt.Sprintf("01900000-0000-7000-8000-%012d", n))
		earlier = append(earlier, usedCall{day.AddDate(0, 0, -1), r.workspace, agent, "outbound", "+14155550100", 1, 1})
	}
	r.insert(earlier...)
	if _, body, err = r.download(r.workspace, "2026-06"); err == nil {
		t.Errorf("the response is complete, with %d bytes, want an error", len(body))
	}
}
