package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/sip/siptest"
)

func TestLive_ModelTalksAndOptsThePersonOut(t *testing.T) {
	const words = "Please never call me again."
	model := modeltest.NewLive(modeltest.LiveOptions{
		Key:   "the-operators",
		Hears: func(int) string { return words },
		Reply: func(heard string) modeltest.LiveReply {
			switch {
			case heard == words:
				return modeltest.LiveReply{Tool: "opt_out", Args: `{"quote":"Please never call me again."}`}
			case json.Valid([]byte(heard)): // only the result of a tool is JSON
				return modeltest.LiveReply{Text: "That is noted. Goodbye.", Tool: "end_call", Args: `{"outcome":"opted_out"}`}
			}
			return modeltest.LiveReply{Text: "Good day."}
		},
	})
	t.Cleanup(model.Close)
	r := newRig(t, "0")
	callee := &fakePerson{}
	port := farEnd(t, callee, func(c *siptest.Call) { c.Next(sip.BYE).Reply(200) })
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "LIVE_URL="+model.URL, "LIVE_KEY=the-operators")
	trunk := fmt.Sprintf(`{"name":"far","host":"127.0.0.1","port":%d,"calls_per_second":10}`, port)
	if status, answer := r.asOperator("POST", "http://"+p.addr+"/admin/v1/trunks", trunk); status != 201 {
		t.Fatalf("POST of the trunk = %d %v, want 201", status, answer)
	}
	r.publish(kafka.Agents, r.agent, &eventv1.AgentEvent{
		AgentId: r.agent.String(), WorkspaceId: r.workspace.String(), Version: time.Now().UnixNano(),
		Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{
			Name: "Ida", FromE164: dialqueue.DefaultFrom, MaxCallSeconds: 60,
			SettingsJson: []byte(`{"kind":"openai_live","language":"en-GB","instructions":"Be brief."}`),
		}},
	})
	await(t, "the agent's settings are stored", func() bool {
		var kind string
		err := r.pool.QueryRow(t.Context(), "SELECT settings->>'kind' FROM agents WHERE agent_id = $1", r.agent).Scan(&kind)
		return err == nil && kind == "openai_live"
	})

	const number = "+14155551207"
	facts := r.ends(r.request(number))
	end := last(facts)
	if got := end.GetCall().GetHangupCause(); got != "normal_clearing" {
		t.Errorf("hangup cause = %q, want normal_clearing", got)
	}
	if got := end.GetAnalysed().GetOutcome(); got != "opted_out" {
		t.Errorf("outcome = %q, want opted_out", got)
	}
	var transcript struct{ Turns []struct{ Role, Text string } }
	if err := json.Unmarshal(end.GetAnalysed().GetTranscriptJson(), &transcript); err != nil {
		t.Fatalf("read transcript %s: %v", end.GetAnalysed().GetTranscriptJson(), err)
	}
	var turns []string
	for _, turn := range transcript.Turns {
		turns = append(turns, turn.Role+": "+turn.Text)
	}
	text := strings.Join(turns, "\n")
	if want := "agent: Hello, you are talking to an AI assistant."; !strings.HasPrefix(text, want) {
		t.Errorf("transcript begins with %q, want %q", text, want)
	}
	if want := "person: " + words; !strings.Contains(text, want) {
		t.Errorf("transcript = %q, want it to contain %q", text, want)
	}
	if want := "agent: That is noted. Goodbye."; !strings.HasSuffix(text, want) {
		t.Errorf("transcript = %q, want it to end with %q", text, want)
	}
	await(t, "the opt-out at contacts-compliance", func() bool { return r.gate.heard(number) > 0 })
	for _, fault := range model.Sent("error") {
		t.Errorf("the model refused an event: %s", fault)
	}
}
