package e2e

import (
	"fmt"
	"strings"
	"testing"

	"ringfence.dev/test/kit"
)

// The fourth digit from the end of a number selects the behavior of the far end. The last three
// digits are the SIP status that the far end sends.
const (
	plainly = iota
	ringingFirst
	withRetryAfter
	withReason // the response has a Reason header with Q.850 cause 1
	whenCanceled
	noResponse
)

// causeRow maps a response of the trunk to the result of the call and of the call request
// (docs/reference/api/calls.md).
type causeRow struct {
	how, code                                    int
	status, cause, disposition, request, errCode string
}

func (r causeRow) to() string { return fmt.Sprintf("+1415555%d%03d", r.how, r.code) }

func (r causeRow) script() string {
	status := fmt.Sprintf("%d No", r.code)
	switch r.how {
	case ringingFirst:
		return kit.Respond("180 Ringing") + `<pause milliseconds="100"/>` + kit.Reject(status)
	case withRetryAfter:
		return kit.Reject(status, "Retry-After: 30")
	case withReason:
		return kit.Reject(status, `Reason: Q.850;cause=1;text="unallocated"`)
	case whenCanceled:
		return kit.Respond("180 Ringing") + kit.ExpectCancel()
	case noResponse:
		return `<pause milliseconds="60000"/>`
	}
	return kit.Reject(status)
}

func causeTable() []causeRow {
	const invalid, rejected, unavailable = "invalid_number", "provider_rejected", "provider_unavailable"
	busy := func(code int) causeRow { return causeRow{plainly, code, "busy", "user_busy", "busy", "completed", ""} }
	failed := func(how, code int, cause, disposition, errCode string) causeRow {
		return causeRow{how, code, "failed", cause, disposition, "failed", errCode}
	}
	silent := func(how, code int, cause, disposition string) causeRow {
		return causeRow{how, code, "no_answer", cause, disposition, "completed", ""}
	}
	rows := []causeRow{
		busy(486), busy(600),
		silent(plainly, 408, "no_user_response", "no_answer"), silent(plainly, 480, "subscriber_absent", "unreachable"), silent(ringingFirst, 480, "no_answer", "no_answer"),
		silent(whenCanceled, 487, "no_answer", "no_answer"),
		failed(plainly, 503, "normal_temporary_failure", "unreachable", unavailable), failed(withRetryAfter, 503, "switch_congestion", "unreachable", unavailable),
		failed(plainly, 502, "network_out_of_order", "unreachable", unavailable), failed(plainly, 504, "recovery_on_timer_expire", "unreachable", unavailable),
		failed(noResponse, 0, "recovery_on_timer_expire", "unreachable", unavailable),
		failed(plainly, 501, "facility_rejected", "unreachable", rejected), failed(withReason, 500, "unallocated_number", "invalid_number", invalid),
	}
	for cause, codes := range map[string][]int{"call_rejected": {403, 603}, "spam_blocked": {607, 608}} {
		for _, code := range codes {
			rows = append(rows, failed(plainly, code, cause, "rejected", rejected))
		}
	}
	// The operator must correct a 401 or 407, so these responses leave the call request queued and
	// are not tested here.
	for _, code := range []int{415, 488, 606} {
		rows = append(rows, failed(plainly, code, "incompatible_destination", "unreachable", rejected))
	}
	for cause, codes := range map[string][]int{
		"unallocated_number": {404, 604}, "number_changed": {410}, "invalid_number_format": {416, 484},
	} {
		for _, code := range codes {
			rows = append(rows, failed(plainly, code, cause, "invalid_number", invalid))
		}
	}
	for _, code := range []int{300, 301, 302, 305, 380} { // a redirect does not mean that the number is invalid
		rows = append(rows, failed(plainly, code, "no_route_destination", "unreachable", invalid))
	}
	for _, code := range []int{400, 402, 405, 406, 413, 414, 420, 421, 423, 481, 482, 483, 485, 491, 493, 500, 505, 513, 580} {
		rows = append(rows, failed(plainly, code, "normal_temporary_failure", "unreachable", unavailable))
	}
	return rows
}

func TestSIP_FinalResponsesHaveDocumentedResults(t *testing.T) {
	rows, requests := causeTable(), map[string]string{}
	var branches []string
	for i, row := range rows {
		branches = append(branches, kit.When(2*i+1, "number", []int{1000*row.how + row.code}, row.script()))
	}
	far := sippFarm(t, kit.Script(`([0-9][0-9][0-9][0-9])`, []string{"number"}, append(branches, kit.Over())...))
	_, w, hooks := overSIP(t, []*kit.Sipp{far}, "RING_LIMIT=15s")
	for _, row := range rows {
		req, err := w.Place(t.Context(), map[string]any{"to": row.to()})
		if err != nil {
			t.Fatal(err)
		}
		requests[row.to()] = req.ID
	}
	until(t, "the terminal event of every call has arrived", func() bool {
		finished := 0
		for _, kind := range types(hooks, "/"+w.ID) {
			if kind != "call.ringing" {
				finished++
			}
		}
		return finished >= len(rows)
	})
	for _, row := range rows {
		var req struct {
			kit.Request
			ErrorCode *string `json:"error_code"`
		}
		if err := w.API.Into(t.Context(), "GET", "/v1/call-requests/"+requests[row.to()], nil, 200, &req); err != nil {
			t.Errorf("%s: Into: %v", row.to(), err)
			continue
		} else if req.CallID == nil {
			t.Errorf("%s: req.CallID = nil, want a value", row.to())
			continue
		}
		var call struct {
			Status, Disposition string
			HangupCause         string `json:"hangup_cause"`
			Outcome             *string
		}
		if err := w.API.Into(t.Context(), "GET", "/v1/calls/"+*req.CallID, nil, 200, &call); err != nil {
			t.Fatal(err)
		}
		got := causeRow{row.how, row.code, call.Status, call.HangupCause, call.Disposition, req.Status, ""}
		if req.ErrorCode != nil {
			got.errCode = *req.ErrorCode
		}
		if got != row {
			t.Errorf("%d, %d: got = %v, want %v", row.how, row.code, got, row)
		} else if call.Outcome != nil {
			t.Errorf("%d, %d: call.Outcome = %v, want nil", row.how, row.code, call.Outcome)
		}
	}
	calls, err := far.Calls()
	if err != nil {
		t.Fatalf("Calls: %v", err)
	}
	if len(calls) != len(rows) {
		t.Fatalf("length of calls = %d, want %d", len(calls), len(rows))
	}
	for _, c := range calls {
		if c.Dials != 1 {
			t.Errorf("c.Dials = %v, want 1", c.Dials)
		} else if !strings.HasPrefix(c.To, "+1415555") {
			t.Errorf(`c.To = %q, want it to begin with "+1415555"`, c.To)
		}
	}
	if differences, err := w.Differences(t.Context()); err != nil {
		t.Errorf("the books: Differences: %v", err)
	} else if len(differences) > 0 {
		t.Errorf("the books: differences = %v, want none", differences)
	}
}
