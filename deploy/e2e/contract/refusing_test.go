package contract

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

// later places a call to the number that is due in some seconds.
func (w *tenant) later(t *testing.T, to string) (id string) {
	t.Helper()
	due := time.Now().Add(8 * time.Second).UTC().Format(time.RFC3339Nano)
	return w.write.want(t, 202, "POST", "/v1/calls", w.order(to, "scheduled_for", due)).text("id")
}

// stopped demands that the request ends at its gate.
func (w *tenant) stopped(t *testing.T, id, code string) {
	t.Helper()
	if got := w.ended(t, id); got.text("status") != "blocked" || got.text("error_code") != code || got.text("call_id") != "" {
		t.Errorf("request = %s, want blocked %s without a call", got.body, code)
	}
	if got := w.operator.want(t, 200, "GET", w.admin+"/decisions?call_request_id="+id, nil); !strings.Contains(got.body, `"kind":"dial","result":"closed"`) {
		t.Errorf("the decision of its gate is not kept: %s", got.body)
	}
}

// Who asks in one call not to be called again is not called by another that waits, and the record bears the call as its evidence.
func TestOptOut_HeardInACallStopsWhatIsQueued(t *testing.T) {
	t.Parallel()
	w, to := workspace(t), number(96)
	w.topUp(t, "100")
	waits := w.later(t, to)
	heard := w.ended(t, w.write.want(t, 202, "POST", "/v1/calls", w.order(to)).text("id")).text("call_id")
	var records answer
	until(t, 20*time.Second, "it is on record", func() bool { // told as the call ends, on a way of its own
		records = w.operator.want(t, 200, "GET", w.admin+"/consent-records?phone="+url.QueryEscape(to), nil)
		return len(records.ids()) > 0
	})
	for _, words := range []string{`"kind":"opt_out"`, `"actor":"call:` + heard + `"`, `"call_id":"` + heard + `"`, `"before":"unknown","after":"dnd"`} {
		if heard == "" || len(records.ids()) != 1 || !strings.Contains(strings.ReplaceAll(records.body, ": ", ":"), words) {
			t.Errorf("records %s, want one with %s", records.body, words)
		}
	}
	w.stopped(t, waits, "recipient_dnd")
}

// Who stands on a list that an operator imports is not called by what waits; the same file again changes nothing.
func TestOptOut_ImportedStopsWhatIsQueued(t *testing.T) {
	t.Parallel()
	w, to := workspace(t), number(1)
	w.topUp(t, "100")
	waits := w.later(t, to)
	file := "sep=;\r\nName, first;Phone\r\nAnn;" + to + "\r\n=1+1;nobody\r\n"
	for round, want := range []string{"record_id", "same_as"} {
		list := w.operator.want(t, 201, "POST", w.admin+"/opt-out-imports", set{"reason": "a register"}).text("id")
		path := w.admin + "/opt-out-imports/" + list
		w.operator.want(t, 200, "PUT", path+"/parts/2", file[30:])
		w.operator.want(t, 200, "PUT", path+"/parts/1", file[:30])
		w.operator.want(t, 202, "POST", path+"/start", nil)
		var got answer
		until(t, 20*time.Second, "the import is done", func() bool {
			got = w.operator.want(t, 200, "GET", path, nil)
			return got.text("status") == "done"
		})
		if got.text(want) == "" || !strings.Contains(got.body, `"lines":4,"numbers":1,`) || !strings.Contains(got.body, `"bad":1,"bad_rows":[{"line":4,"value":"nobody"`) {
			t.Errorf("round %d: %s", round, got.body)
		}
	}
	if records := w.operator.want(t, 200, "GET", w.admin+"/consent-records?phone="+url.QueryEscape(to), nil); len(records.ids()) != 1 {
		t.Errorf("records %s, want the one of the import", records.body)
	}
	w.stopped(t, waits, "recipient_dnd")
}
