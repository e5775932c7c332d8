package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/test/kit"
)

func (n network) events(id string) (kinds []string, events []map[string]any) {
	n.t.Helper()
	n.ended(id)
	var page struct{ Data []map[string]any }
	n.do("GET", "/events?after=0&wait=1", nil, &page)
	for _, e := range page.Data {
		if e["call_id"] != id {
			continue
		}
		for _, mark := range []string{"echo", "untold"} { // only the journal may contain these fields
			if e[mark] != nil {
				n.t.Errorf("event = %v, want it without %q", e, mark)
			}
		}
		kinds, events = append(kinds, e["kind"].(string)), append(events, e)
	}
	return kinds, events
}

func (n network) order(rule string) {
	n.t.Helper()
	if status := n.do("POST", "/faults", json.RawMessage(rule), nil); status != http.StatusCreated {
		n.t.Fatalf("ordering %s = %d", rule, status)
	}
}

func TestFault_ChangesTheEventFeedButNotTheLog(t *testing.T) {
	tests := []struct{ fault, want string }{
		{"answer_twice", "originate ringing answer answer hangup"},
		{"repeat", "originate originate ringing ringing answer answer hangup hangup"},
		{"disorder", "ringing originate hangup answer"},
		{"lose", ""},
		{"lose_end", "originate ringing answer"},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			dir := t.TempDir()
			n, stop := start(t, dir, 0)
			n.order(`{"fault":"` + tt.fault + `","to":"+1415555"}`)
			struck, whole := n.originate("+14155550195"), n.originate("+14155660195")
			kinds, events := n.events(struck)
			if got := strings.Join(kinds, " "); got != tt.want {
				t.Errorf("events = %q, want %q", got, tt.want)
			}
			if got := n.kinds(struck); got != "originate ringing answer hangup" {
				t.Errorf("the log says %s", got)
			}
			if kinds, _ := n.events(whole); strings.Join(kinds, " ") != "originate ringing answer hangup" {
				t.Errorf("events of a number outside the range = %v", kinds)
			}
			if !slices.IsSortedFunc(events, func(a, b map[string]any) int { return int(a["seq"].(float64) - b["seq"].(float64)) }) {
				t.Errorf("places are out of order: %v", events)
			}
			stop() // after a restart, the feed must contain the same events
			again, _ := start(t, dir, 0)
			if after, _ := again.events(struck); !slices.Equal(after, kinds) {
				t.Errorf("events after a restart = %v, want %v", after, kinds)
			}
			if got := again.kinds(struck); got != "originate ringing answer hangup" {
				t.Errorf("after a restart the log says %s", got)
			}
		})
	}
}

func TestFault_ChangesTheResponseToAnOriginateRequest(t *testing.T) {
	tests := []struct {
		rule   string
		answer int // 0 means that the client disconnects before the response
		dialed int
	}{
		{rule: `{"fault":"refuse"}`, answer: 503, dialed: 0},
		{rule: `{"fault":"hang"}`, answer: 0, dialed: 1},
		{rule: `{"fault":"hang_undialed"}`, answer: 0, dialed: 0},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			n, _ := start(t, t.TempDir(), 0)
			n.order(tt.rule)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.answer == 0 {
				go func() { // the client disconnects when the carrier has received its request
					n.awaitStruck()
					cancel()
				}()
			}
			id, status := uuid.NewString(), 0
			body, _ := json.Marshal(map[string]string{"call_id": id, "to": "+14155550190"})
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url+"/originate", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_, status = resp.Body.Close(), resp.StatusCode
			}
			if status != tt.answer {
				t.Errorf("answer = %d, want %d", status, tt.answer)
			}
			if tt.dialed == 1 {
				n.awaitKnown(id)
			}
			if got := strings.Count(n.kinds(id), "originate"); got != tt.dialed {
				t.Errorf("dialed %d times, want %d", got, tt.dialed)
			}
		})
	}
}

func (n network) awaitKnown(id string) {
	n.t.Helper()
	if err := kit.Until(n.t.Context(), kit.HangTimeout, "call "+id+" is dialed", func() (bool, error) {
		return n.do("GET", "/calls/"+id, nil, nil) == http.StatusOK, nil
	}); err != nil {
		n.t.Fatal(err)
	}
}

func (n network) awaitStruck() {
	if err := kit.Until(n.t.Context(), kit.HangTimeout, "the fault has met a request", func() (bool, error) {
		var page struct{ Data []struct{ Struck int } }
		n.do("GET", "/faults", nil, &page)
		return len(page.Data) > 0 && page.Data[0].Struck > 0, nil
	}); err != nil {
		n.t.Error(err)
	}
}

func TestFault_RuleEndsAfterTheGivenNumberOfCalls(t *testing.T) {
	n, _ := start(t, t.TempDir(), 0)
	n.order(`{"fault":"refuse","to":"+1415","times":2}`)
	n.order(`{"fault":"refuse","to":"+1415","times":1}`)
	ask := func(to string) int {
		return n.do("POST", "/originate", map[string]string{"call_id": uuid.NewString(), "to": to}, nil)
	}
	var got []int
	for _, to := range []string{"+14155550190", "+15105550190", "+14155550190", "+14155550190", "+14155550190"} {
		got = append(got, ask(to))
	}
	if want := []int{503, 202, 503, 503, 202}; !slices.Equal(got, want) {
		t.Errorf("answers = %v, want %v", got, want)
	}
	var page struct{ Data []struct{ Struck int } }
	n.do("GET", "/faults", nil, &page)
	if want := []struct{ Struck int }{{Struck: 2}, {Struck: 1}}; !slices.Equal(page.Data, want) {
		t.Errorf("calls met by each rule = %v, want %v", page.Data, want)
	}
	n.order(`{"fault":"refuse"}`)
	n.do("DELETE", "/faults", nil, nil)
	if status := ask("+14155550190"); status != 202 {
		t.Errorf("after DELETE the originate = %d", status)
	}
	for _, rule := range []string{`{"fault":"bite"}`, `{"fault":"hang","times":-1}`, `{"fault":"late","delay_ms":-1}`} {
		if status := n.do("POST", "/faults", json.RawMessage(rule), nil); status != 400 {
			t.Errorf("ordering %s = %d", rule, status)
		}
	}
}

func TestFault_CallWithoutProgressLastsUntilHangup(t *testing.T) {
	for fault, state := range map[string]string{"dead": "dialing", "endless": "ringing", "hold": "answered"} {
		n, _ := start(t, t.TempDir(), 0)
		n.order(`{"fault":"` + fault + `","to":"+1415555"}`)
		id := n.originate("+14155550101")
		n.awaitState(id, state)
		n.ended(n.originate("+14155660101"))
		var previous struct{ Was string }
		if n.do("POST", "/hangup", map[string]string{"call_id": id}, &previous); previous.Was != state {
			t.Errorf("%s: the call was %s, want %s", fault, previous.Was, state)
		}
	}
}

func TestHangup_EventNamesTheCallee(t *testing.T) {
	n, _ := start(t, t.TempDir(), 0)
	n.order(`{"fault":"hold"}`)
	id := n.originate("+14155550101")
	if status := n.do("POST", "/hangup", map[string]string{"call_id": id, "by": "nobody"}, nil); status != http.StatusBadRequest {
		t.Errorf("status of a hang-up by an unknown party = %d", status)
	}
	if status := n.do("POST", "/hangup", map[string]string{"call_id": id, "by": "callee"}, nil); status != http.StatusOK {
		t.Errorf("a hang-up by the person = %d", status)
	}
	_, events := n.events(id)
	if len(events) == 0 {
		t.Fatal("events = 0, want at least 1")
	}
	if got := events[len(events)-1]["by"]; got != "callee" {
		t.Errorf("ended by %v, want callee", got)
	}
}
