package sip_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

type outgoing struct {
	name  string
	far   func(e *ear) script
	agent map[string]any
	// talk checks the call before it ends. If talk is nil, nothing is checked.
	talk   func(t *testing.T, w *testStack, e *ear)
	status string
	cause  string
	events []string
}

// toneSettings returns the settings of an agent that plays a tone and hangs up after `ends`
// milliseconds. If ends is 0, the agent does not hang up.
func toneSettings(millis, ends int) map[string]any {
	return map[string]any{"script": map[string]any{"tone_hz": 440, "tone_millis": millis, "end_after_millis": ends}}
}

var talked = []string{"call.ringing", "call.answered", "call.completed"}

func outgoings() []outgoing {
	both := func(e *ear) string { return e.description("sendrecv") }
	return []outgoing{
		{
			// the tone is long enough to be measured on a busy machine
			name: "the agent hangs up", agent: toneSettings(3000, 3600),
			status: "completed", cause: "normal_clearing", events: talked,
			far:  func(e *ear) script { return storeAddresses().answer(both(e)).hungUp() },
			talk: func(t *testing.T, _ *testStack, e *ear) { e.hears(t, "the tone", func() bool { return e.loud > 20 }) },
		},
		{
			name: "the person hangs up", agent: toneSettings(60_000, 0), status: "completed",
			cause: "normal_clearing", events: talked,
			far: func(e *ear) script { return storeAddresses().answer(both(e)).pause(1200 * time.Millisecond).hangsUp() },
		},
		{
			name: "the call is not answered", agent: toneSettings(600, 0), status: "no_answer", cause: "no_answer",
			events: []string{"call.ringing", "call.no_answer"},
			far:    func(*ear) script { return storeAddresses().say(180, "").canceled() },
		},
		{
			name: "the phone does not ring", agent: toneSettings(600,
				0), status: "no_answer", cause: "no_answer", events: []string{"call.no_answer"},
			far: func(*ear) script { return storeAddresses().respond(100, "", "").canceled() },
		},
		{
			name: "the 200 response and the CANCEL cross", agent: toneSettings(600,
				0), status: "no_answer", cause: "no_answer", events: []string{"call.ringing", "call.no_answer"},
			far: func(e *ear) script {
				return append(storeAddresses().say(180, ""), `<recv request="CANCEL"/>`).ok("").late(both(e)).hear("ACK").hungUp()
			},
		},
		{
			name: "the person puts the call on hold and resumes it", agent: toneSettings(60_000,
				0), status: "completed", cause: "normal_clearing", events: talked,
			far: func(e *ear) script {
				return storeAddresses().answer(both(e)).
					pause(time.Second).
					request("INVITE", e.description("sendonly"), 2).
					response(200).
					request("ACK", "", 2).
					pause(2500*time.Millisecond).
					request("INVITE", both(e), 3).
					response(200).
					request("ACK", "", 3).
					pause(8 * time.Second).
					hangsUp()
			},
			talk: func(t *testing.T, _ *testStack, e *ear) {
				e.hears(t, "nothing for 1.5 s, and the agent again", func() bool { return e.longest > 1500*time.Millisecond && e.since > 20 })
			},
		},
		{
			name: "the dialer refreshes the session", agent: toneSettings(60_000, 0), status: "completed",
			cause:  "normal_clearing",
			events: talked,
			far: func(e *ear) script {
				expires := "Session-Expires: 4;refresher=uac"
				return storeAddresses().answer(both(e), expires, "Require: timer").hear("INVITE").ok(both(e),
					expires).hear("ACK").pause(300 * time.Millisecond).hangsUp()
			},
		},
		{
			name: "the far end does not refresh the session", agent: toneSettings(60_000, 0), status: "failed",
			cause:  "recovery_on_timer_expire",
			events: []string{"call.ringing", "call.answered", "call.failed"},
			far: func(e *ear) script {
				return storeAddresses().answer(both(e), "Session-Expires: 3;refresher=uas").hungUp()
			},
		},
		{
			name: "DTMF in both directions", status: "completed", cause: "normal_clearing", events: talked,
			agent: map[string]any{"kind": "openai_realtime", "greeting": "Press a key.", "disclosure": map[string]any{"off_reason": "a test"}},
			far:   func(e *ear) script { return storeAddresses().answer(both(e)).hungUp() },
			talk: func(t *testing.T, w *testStack, e *ear) {
				e.hears(t, "the agent", func() bool { return e.loud > 30 })
				e.presses("5")
				e.hears(t, "the agent's keys", func() bool { return e.digits == "42#" })
				items := fmt.Sprint(w.modelEvents(t, "conversation.item.create"))
				if strings.Count(items, "[The person pressed the key 5]") != 1 {
					t.Errorf(`notes of the key 5 = %v, want 1`,
						strings.Count(items, "[The person pressed the key 5]"))
				} else if strings.Count(items, "pressed the key") != 1 {
					t.Errorf(`notes of keys = %v, want 1`, strings.Count(items, "pressed the key"))
				}
			},
		},
	}
}

// TestProxyCalls_EachEventIsDeliveredOnce places calls through kamailio to sipp, one for each
// behavior of the far end. The customer must receive each event of the call once.
func TestProxyCalls_EachEventIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	house := w.house(t, nil)
	for _, row := range outgoings() {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			e, port := listen(t), peertest.Port(t)
			far := sipp(t, port, row.far(e))
			until(t, "the far end listens", func() bool { return testkit.Open("udp", port) })
			req, err := house.Place(t.Context(), map[string]any{"to": number(port), "agent_id": agent(t, house, row.agent)})
			if err != nil {
				t.Fatal(err)
			}
			if row.talk != nil {
				row.talk(t, w, e)
			}
			call := w.awaitCall(t, house, req, row.events[len(row.events)-1])
			sharedstack.Equal(t, "call.Status", call.Status, row.status)
			sharedstack.Equal(t, "stage.Value(call.HangupCause)", sharedstack.Value(call.HangupCause), row.cause)
			sharedstack.Equal(t, "call.CreditsCharged != ''", call.CreditsCharged != "", row.status == "completed")
			w.wantTypes(t, house, call.CallID, row.events)
			far.Ends(t)
		})
	}
}

func (w *testStack) wantTypes(t *testing.T, house *kit.Workspace, callID string, want []string) (got []kit.Delivery) {
	t.Helper()
	got = w.awaitEvents(t, house, callID, want[len(want)-1])
	var types []string
	for _, d := range got {
		types = append(types, d.Type)
	}
	if !slices.Equal(types, want) {
		t.Errorf("events = %v, want %v", types, want)
	}
	return got
}

func (s script) late(body string) script {
	return append(s, `<send><![CDATA[

SIP/2.0 200 OK
[last_Via:]
[last_From:]
[last_To:]`+tag+`
[last_Call-ID:]
CSeq: [cseq] INVITE
[last_Record-Route:]
Contact: <sip:far@[local_ip]:[local_port];transport=[transport]>
Content-Type: application/sdp
Content-Length: [len]

`+body+`
]]></send>`)
}

// callerScript returns the script of a caller that calls the stack's number through the proxy and
// waits for a BYE.
func callerScript(e *ear) script {
	request := func(method, uri, to, seq string) string {
		return method + " " + uri + " SIP/2.0\nVia: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\nFrom: <sip:+14155550001@[local_ip]:[local_port]>;tag=[pid]caller\n" +
			"To: <sip:" + account + "@[remote_ip]:[remote_port]>" + to + "\nCall-ID: [call_id]\nCSeq: " + seq + "\nContact: <sip:+14155550001@[local_ip]:[local_port]>\nMax-Forwards: 70\n"
	}
	s := script{}.send(request("INVITE", "sip:"+account+"@[remote_ip]:[remote_port]", "", "1 INVITE"), e.description("sendrecv"))
	s = append(s, `<recv response="100" optional="true"/><recv response="180" optional="true"/><recv response="200" rrs="true"/>`)
	return s.send(request("ACK", "[next_url]", "[peer_tag_param]", "1 ACK")+"[routes]\n", "").hungUp()
}

// TestRegistration_InboundCallIsReportedAndRecorded calls the address that the stack has registered
// at kamailio. The customer must receive the events and the recording of the inbound call.
func TestRegistration_InboundCallIsReportedAndRecorded(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	house := w.house(t, map[string]any{"features": map[string]any{"recordings": true}})
	speaks := map[string]any{"script": map[string]any{"tone_hz": 440, "tone_millis": 1500, "end_after_millis": 2500, "speaks": true}}
	number := map[string]any{"phone_e164": "+" + account, "agent_id": agent(t, house, speaks)}
	if err := house.Admin.Into(t.Context(), "POST", "/admin/v1/workspaces/"+house.ID+"/numbers", number, 201, nil); err != nil {
		t.Fatal(err)
	}
	var e *ear
	until(t, "the registered address answers a call", func() bool {
		e = listen(t)
		return caller(t, w.proxy, callerScript(e)).Wait() == nil
	})
	if _, loud := e.heard(); loud < 20 {
		t.Errorf("loud frames that the caller received = %d, want at least 20", loud)
	}
	var id string
	until(t, "call.completed is delivered", func() bool {
		for _, d := range w.Hooks.Deliveries(house.ID) {
			if d.Type == "call.completed" {
				id = d.CallID
			}
		}
		return id != ""
	})
	got := w.wantTypes(t, house, id, talked)
	var event struct {
		Data struct {
			Direction, From, To, Status string
			HangupCause                 string `json:"hangup_cause"`
		}
	}
	if err := json.Unmarshal(got[2].Body, &event); err != nil {
		t.Fatal(err)
	}
	d := event.Data
	sharedstack.Equal(t, "d.Direction", d.Direction, "inbound")
	sharedstack.Equal(t, "d.From", d.From, "+14155550001")
	sharedstack.Equal(t, "d.To", d.To, "+"+account)
	sharedstack.Equal(t, "d.Status", d.Status, "completed")
	sharedstack.Equal(t, "d.HangupCause", d.HangupCause, "normal_clearing")
	person, agentAudio := recorded(t, house, id)
	loud := len(slices.DeleteFunc(agentAudio, func(one float64) bool { return one < 1000 }))
	if len(person) < 20 {
		t.Errorf("length of person = %v, want at least %v", len(person), 20)
	}
	if loud < 10 {
		t.Errorf("loud = %v, want at least %v", loud, 10)
	}
	if loud > 32 {
		t.Errorf("loud = %v, want at most %v", loud, 32)
	}
}
