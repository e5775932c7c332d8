package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/sip/siptest"
)

// This test is not parallel, because parallel tests could delay its real-time audio.
func TestSIP_TransfersACallAndReportsACallback(t *testing.T) {
	r := newRig(t, "0")
	pacific, err := time.LoadLocation("America/Los_Angeles")
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().In(pacific).AddDate(0, 0, 3).Truncate(time.Minute)
	var words atomic.Value
	words.Store("Sales, please.")
	model := modeltest.NewRealtime(modeltest.RealtimeOptions{
		Hears: func(int) string { return words.Load().(string) },
		Reply: func(heard, asked string, _ int) modeltest.RealtimeReply {
			switch {
			case strings.Contains(heard, "Sales"):
				return modeltest.RealtimeReply{Tool: "transfer", Args: `{"to":"abroad"}`}
			case strings.Contains(heard, "failed"):
				return modeltest.RealtimeReply{Tool: "transfer", Args: `{"to":"sales"}`}
			case strings.Contains(heard, "another time"):
				return modeltest.RealtimeReply{Tool: "schedule_callback", Args: fmt.Sprintf(`{"at":%q}`,
					later.Format("2006-01-02T15:04"))}
			case strings.Contains(heard, "noted"):
				return modeltest.RealtimeReply{Text: "Until then.", Length: 300 * time.Millisecond, Tool: "end_call",
					Args: `{"outcome":"callback_requested"}`}
			}
			return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day."), Length: 300 * time.Millisecond}
		},
	})
	t.Cleanup(model.Close)
	summaries := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		summary := `{"outcome":"interested","confidence":0.9,"next_action":"Call.","business_type":null,` +
			`"customer_name":null,"key_interests":[],"key_objections":[],"scheduled_for":null}`
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"finish_reason": "stop",
			"message": map[string]any{"role": "assistant", "content": summary}}}})
	}))
	t.Cleanup(summaries.Close)
	referred := make(chan string, 4)
	handsOn := farEnd(t, &fakePerson{}, func(c *siptest.Call) {
		refer := c.Next(sip.REFER)
		referred <- refer.Header("Refer-To")
		refer.Reply(202)
		c.Request(sip.NOTIFY, "SIP/2.0 180 Ringing", "Event: refer", "Subscription-State: active")
		c.Request(sip.NOTIFY, "SIP/2.0 200 OK", "Event: refer", "Subscription-State: terminated")
		c.Next(sip.BYE).Reply(200)
	})
	stays := farEnd(t, &fakePerson{}, func(c *siptest.Call) { c.Next(sip.BYE).Reply(200) })
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "REALTIME_URL="+model.URL, "REALTIME_KEY=x",
		"SUMMARY_URL="+summaries.URL+"/v1")
	r.publish(kafka.Agents, r.agent, &eventv1.AgentEvent{
		AgentId: r.agent.String(), WorkspaceId: r.workspace.String(), Version: time.Now().UnixNano(),
		Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{
			Name: "Ida", FromE164: dialqueue.DefaultFrom, MaxCallSeconds: 60,
			SettingsJson: []byte(`{"kind":"openai_realtime","disclosure":{"off_reason":"a test"},` +
				`"greeting":"Good day.","transfers":{"sales":"+14155559999","abroad":"+4930123456"}}`),
		}},
	})
	await(t, "the agent's settings are stored", func() bool {
		var kind string
		err := r.pool.QueryRow(t.Context(), "SELECT settings->>'kind' FROM agents WHERE agent_id = $1", r.agent).Scan(&kind)
		return err == nil && kind == "openai_realtime"
	})
	call := func(port int, number string) *eventv1.DialEvent {
		t.Helper()
		status, response := r.asOperator("POST", "http://"+p.addr+"/admin/v1/trunks",
			fmt.Sprintf(`{"name":"%d","host":"127.0.0.1","port":%d,"calls_per_second":10}`, port, port))
		if status != 201 {
			t.Fatalf("POST = %d %v", status, response)
		}
		facts := r.ends(r.request(number))
		if got := names(facts); got != talked {
			t.Fatalf("facts = %s, want %s", got, talked)
		}
		id, _ := response["id"].(string)
		if status, response := r.asOperator("PATCH", "http://"+p.addr+"/admin/v1/trunks/"+id,
			`{"status":"disabled"}`); status != 200 {
			t.Fatalf("PATCH = %d %v", status, response)
		}
		return last(facts)
	}
	end := call(handsOn, "+14155551401")
	switch c := end.GetCall(); {
	case c.GetStatus() != "completed":
		t.Errorf(`c.GetStatus() = %v, want "completed"`, c.GetStatus())
	case c.GetHangupCause() != "normal_clearing":
		t.Errorf(`c.GetHangupCause() = %v, want "normal_clearing"`, c.GetHangupCause())
	case end.GetAnalysed().GetOutcome() != "transferred":
		t.Errorf(`end.GetAnalysed().GetOutcome() = %v, want "transferred"`, end.GetAnalysed().GetOutcome())
	}
	if to := <-referred; !strings.HasPrefix(to, "<sip:+14155559999@") {
		t.Errorf(`to = %q, want it to begin with "<sip:+14155559999@"`, to)
	} else if len(referred) > 0 {
		t.Errorf("referred = %v, want none", referred)
	}
	words.Store("Call me another time.")
	end = call(stays, "+14155551402")
	var summary struct {
		Outcome      string
		ScheduledFor string `json:"scheduled_for"`
	}
	switch err := json.Unmarshal(end.GetAnalysed().GetSummaryJson(), &summary); {
	case err != nil:
		t.Errorf("Unmarshal: %v", err)
	case summary.Outcome != "callback_requested":
		t.Errorf(`summary.Outcome = %v, want "callback_requested"`, summary.Outcome)
	case summary.ScheduledFor != later.Format(agent.TimeLayout):
		t.Errorf("summary.ScheduledFor = %v, want %v", summary.ScheduledFor, later.Format(agent.TimeLayout))
	}
}
