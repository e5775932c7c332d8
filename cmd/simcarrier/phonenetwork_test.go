package main_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/cmd/simcarrier"
	"ringfence.dev/test/kit"
)

type network struct {
	t   *testing.T
	url string
}

func start(t *testing.T, dir string, scale float64) (n network, stop func()) {
	t.Helper()
	x, err := main.New(dir, scale)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(x.Handler())
	stop = func() { server.Close(); _ = x.Journal().Close() }
	t.Cleanup(stop)
	return network{t, server.URL}, stop
}

func (n network) do(method, path string, body any, into any) int {
	n.t.Helper()
	var payload io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			n.t.Fatal(err)
		}
		payload = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(n.t.Context(), method, n.url+path, payload)
	if err != nil {
		n.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if into != nil && resp.StatusCode < 300 && resp.StatusCode != http.StatusNoContent {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			n.t.Fatal(err)
		}
	}
	return resp.StatusCode
}

func (n network) originate(to string) string {
	n.t.Helper()
	id := uuid.NewString()
	if status := n.do("POST", "/originate", map[string]any{"call_id": id, "from": "+15005550006", "to": to}, nil); status != 202 {
		n.t.Fatalf("originate = %d", status)
	}
	return id
}

func (n network) kinds(id string) string {
	n.t.Helper()
	var page struct{ Data []map[string]any }
	n.do("GET", "/log?after=0", nil, &page)
	var kinds []string
	for _, e := range page.Data {
		if e["call_id"] == id {
			kinds = append(kinds, e["kind"].(string))
		}
	}
	return strings.Join(kinds, " ")
}

func (n network) ended(id string) main.Call {
	n.t.Helper()
	return n.awaitState(id, "ended")
}

func (n network) awaitState(id, state string) main.Call {
	n.t.Helper()
	var call main.Call
	err := kit.Until(n.t.Context(), kit.HangTimeout, "call "+id+" is "+state, func() (bool, error) {
		n.do("GET", "/calls/"+id, nil, &call)
		return call.State == state, nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return call
}

func TestOriginate_LastDigitsDetermineTheEvents(t *testing.T) {
	n, _ := start(t, t.TempDir(), 0)
	tests := []struct{ digits, kinds, cause, by string }{
		{"00", "originate ringing answer hangup", "normal_clearing", "callee"},
		{"89", "originate ringing answer hangup", "normal_clearing", "callee"},
		{"90", "originate hangup", "user_busy", "callee"},
		{"91", "originate ringing hangup", "no_answer", "carrier"},
		{"92", "originate hangup", "unallocated_number", "carrier"},
		{"93", "originate hangup", "normal_temporary_failure", "carrier"},
		{"94", "originate ringing answer hangup", "normal_clearing", "callee"},
		{"95", "originate ringing answer hangup", "normal_clearing", "callee"},
		{"96", "originate ringing answer hangup", "normal_clearing", "callee"},
		{"97", "originate ringing answer hangup", "normal_clearing", "callee"},
		{"98", "originate ringing answer hangup", "normal_clearing", "callee"},
	}
	for _, tt := range tests {
		t.Run(tt.digits, func(t *testing.T) {
			id := n.originate("+141555501" + tt.digits)
			call := n.ended(id)
			if call.Cause != tt.cause {
				t.Errorf("cause = %s, want %s", call.Cause, tt.cause)
			}
			if call.By != tt.by {
				t.Errorf("ended by %s, want %s", call.By, tt.by)
			}
			if got := n.kinds(id); got != tt.kinds {
				t.Errorf("log = %s, want %s", got, tt.kinds)
			}
		})
	}
}

func TestOriginate_RepeatedRequestCallsTheNumberAgain(t *testing.T) {
	n, _ := start(t, t.TempDir(), 0)
	id := n.originate("+14155550190")
	n.ended(id)
	n.do("POST", "/originate", map[string]any{"call_id": id, "to": "+14155550190"}, nil)
	n.ended(id)
	if got := strings.Count(n.kinds(id), "originate"); got != 2 {
		t.Errorf("the log counts %d originations, want 2", got)
	}
}

func TestHangup_ReturnsThePreviousState(t *testing.T) {
	n, _ := start(t, t.TempDir(), 1000) // the time scale makes each phone ring for a quarter of an hour
	id := n.originate("+14155550101")
	for _, test := range []struct{ name, was string }{
		{name: "first hangup", was: "dialing"}, {name: "second hangup", was: "ended"},
	} {
		var got struct{ Was, Cause, By string }
		if status := n.do("POST", "/hangup", map[string]string{"call_id": id}, &got); status != http.StatusOK {
			t.Errorf("%s: status = %d, want 200", test.name, status)
		}
		if got.Was != test.was {
			t.Errorf("%s: state before = %s, want %s", test.name, got.Was, test.was)
		}
		if got.By != "dialer" {
			t.Errorf("%s: ended by %s, want dialer", test.name, got.By)
		}
		if got.Cause != "originator_cancel" {
			t.Errorf("%s: cause = %s, want originator_cancel", test.name, got.Cause)
		}
	}
	if status := n.do("POST", "/hangup", map[string]string{"call_id": uuid.NewString()}, nil); status != 404 {
		t.Errorf("hangup of an unknown call = %d", status)
	}
}

func TestRestart_KeepsTheFeedAndEndsLiveCalls(t *testing.T) {
	dir := t.TempDir()
	n, stop := start(t, dir, 0)
	done := n.originate("+14155550101")
	n.ended(done)
	type page struct {
		Feed string
		Data []main.Entry
	}
	var before page
	n.do("GET", "/events?after=0", nil, &before)
	stop()

	slow, stop := start(t, dir, 1000)
	alive := slow.originate("+14155550102")
	stop()
	file, err := os.OpenFile(filepath.Join(dir, "calls.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"seq":99,"kind":"ori`); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()

	again, _ := start(t, dir, 0)
	var after page
	again.do("GET", "/events?after=0", nil, &after)
	if after.Feed != before.Feed {
		t.Errorf("feed = %s, want %s", after.Feed, before.Feed)
	}
	if got, want := len(after.Data), len(before.Data)+2; got != want {
		t.Fatalf("entries = %d, want %d", got, want)
	}
	for i, e := range after.Data {
		if want := int64(i + 1); e.Seq != want {
			t.Errorf("entry %d: sequence = %d, want %d", i, e.Seq, want)
		}
		if i < len(before.Data) && e.CallID != before.Data[i].CallID {
			t.Errorf("entry %d: call = %s, want %s", i, e.CallID, before.Data[i].CallID)
		}
	}
	call := again.ended(alive)
	if call.By != "carrier" {
		t.Errorf("call that was alive at the kill: ended by %s, want carrier", call.By)
	}
	if call.Cause != "network_out_of_order" {
		t.Errorf("call that was alive at the kill: cause = %s, want network_out_of_order", call.Cause)
	}
	if call := again.ended(done); call.Cause != "normal_clearing" {
		t.Errorf("ended call after a restart = %+v", call)
	}
}

func TestInbound_PhoneRingsUntilAnswered(t *testing.T) {
	n, _ := start(t, t.TempDir(), 0)
	var call struct {
		CallID string `json:"call_id"`
	}
	if status := n.do("POST", "/inbound", map[string]string{"from": "+14155550001", "to": "+14155559000"}, &call); status != 202 {
		t.Fatalf("inbound = %d", status)
	}
	if got := n.kinds(call.CallID); got != "ringing" {
		t.Errorf("log = %s: an inbound call is no origination", got)
	}
	if status := n.do("POST", "/answer", map[string]string{"call_id": call.CallID}, nil); status != 200 {
		t.Errorf("answer = %d", status)
	}
	if got := n.ended(call.CallID).By; got != "caller" {
		t.Errorf("ended by %s, want caller", got)
	}
	if got, want := n.kinds(call.CallID), "ringing answer hangup"; got != want {
		t.Errorf("log = %s, want %s", got, want)
	}
}

var threeDecimals = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)

func TestLog_EntriesHaveTheDocumentedFields(t *testing.T) {
	n, _ := start(t, t.TempDir(), 0)
	n.ended(n.originate("+14155550101"))
	var page struct{ Data []map[string]any }
	n.do("GET", "/log?after=1", nil, &page)
	if len(page.Data) != 3 {
		t.Fatalf("log after the originate = %v", page.Data)
	}
	for _, e := range page.Data {
		got, want := slices.Sorted(maps.Keys(e)), []string{"at", "call_id", "from", "kind", "seq", "to"}
		if !slices.Equal(got, want) {
			t.Errorf("fields = %v, want %v", got, want)
		}
		if at, _ := e["at"].(string); !threeDecimals.MatchString(at) {
			t.Errorf("at = %v, want UTC with three decimals", e["at"])
		}
		if e["from"] != "+15005550006" {
			t.Errorf("from = %v, want +15005550006", e["from"])
		}
		if e["to"] != "+14155550101" {
			t.Errorf("to = %v, want +14155550101", e["to"])
		}
	}
}

func TestNetwork_CompletesThousandsOfCalls(t *testing.T) {
	x, err := main.New(t.TempDir(), 0.01)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = x.Journal().Close() }()
	const calls = 5000
	for range calls {
		if err := x.Originate(uuid.NewString(), "+15005550006", "+14155550101", nil); err != nil {
			t.Fatal(err)
		}
	}
	ends, after := 0, int64(0)
	hang := time.After(kit.HangTimeout)
	for ends < calls {
		select {
		case <-x.Journal().Grown(after):
		case <-hang:
			t.Fatalf("calls that ended = %d, want %d", ends, calls)
		}
		err := x.Journal().Read(after, func(e main.Entry) bool {
			if e.Seq != after+1 {
				t.Fatalf("entry %d follows %d", e.Seq, after)
			}
			if after = e.Seq; e.Kind == main.KindHangup {
				ends++
			}
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
