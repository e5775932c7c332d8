package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"
	"github.com/google/uuid"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/media"
	"ringfence.dev/services/dialer/internal/sdp"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// fakePerson is the called person. The person speaks once, after the agent has spoken and is
// silent.
type fakePerson struct {
	mu sync.Mutex
	// loudFrames counts the agent's frames with sound. silentFrames counts the agent's silent frames
	// since the last frame with sound.
	loudFrames, silentFrames int
	sent                     int
}

const (
	// The person speaks for 50 frames of 20 ms.
	speech = 50
	// The person speaks after 40 silent frames. The agent's pauses within a sentence are shorter.
	lull = 40
)

func (p *fakePerson) HearFrame(frame []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sample := range frame {
		if sample&0x7f < 0x50 {
			p.loudFrames, p.silentFrames = p.loudFrames+1, 0
			return
		}
	}
	p.silentFrames++
}

func (p *fakePerson) HearDigit(byte) {}

func (p *fakePerson) FrameUnsent() {}

func (p *fakePerson) NextFrame(dst []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.loudFrames == 0 || p.sent == 0 && p.silentFrames < lull
	if waiting || p.sent == speech {
		return false
	}
	p.sent++
	for i := range dst {
		dst[i] = []byte{0x10, 0x90}[i/4%2] // a loud tone of 1 kHz
	}
	return true
}

func farEnd(t *testing.T, p *fakePerson, goesOn func(*siptest.Call)) (port int) {
	t.Helper()
	x := siptest.New(t, transport.Config{UDP: "127.0.0.1:0"})
	streams, err := media.New(media.Settings{Bind: netip.MustParseAddr("127.0.0.1")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = streams.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	x.On("", func(c *siptest.Call) {
		stream, err := streams.Open(media.Leg{Source: p, Sink: p})
		if err != nil {
			t.Error(err)
			return
		}
		defer stream.Close()
		session := sdp.NewSession(1, sdp.Local{Address: netip.MustParseAddr("127.0.0.1"), Port: stream.Port()})
		answer, agreed, err := session.Answer(c.Invite.Body(), sdp.Both)
		if err == nil {
			err = stream.Connect(agreed)
		}
		if err != nil {
			t.Errorf("the offer %s: %v", c.Invite.Body(), err)
			return
		}
		c.Respond(180, "")
		c.Answer(string(answer))
		goesOn(c)
	})
	return x.Port(transport.UDP)
}

// This test is not parallel, because parallel tests could delay its real-time audio.
func TestSIP_ModelTalksAndOptsThePersonOut(t *testing.T) {
	r := newRig(t, "0")
	var noted atomic.Bool
	model := modeltest.NewRealtime(modeltest.RealtimeOptions{
		Key:   "the-operators",
		Hears: func(int) string { return "Please never call me again." },
		Reply: func(heard, asked string, _ int) modeltest.RealtimeReply {
			switch {
			case strings.Contains(heard, "never call me"):
				noted.Store(true)
				return modeltest.RealtimeReply{Tool: "opt_out", Args: `{"quote":"Please never call me again."}`}
			case noted.Load():
				return modeltest.RealtimeReply{Text: "That is noted. Goodbye.", Length: 400 * time.Millisecond, Tool: "end_call",
					Args: `{"outcome":"opted_out"}`}
			}
			return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day."), Length: 600 * time.Millisecond}
		},
	})
	t.Cleanup(model.Close)
	summaries := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		summary := `{"outcome":"opted_out","confidence":0.97,"next_action":"Do not call again.","business_type":null,` +
			`"customer_name":"Bo","key_interests":[],"key_objections":["calls"],"scheduled_for":null}`
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"finish_reason": "stop",
			"message": map[string]any{"role": "assistant", "content": summary}}}})
	}))
	t.Cleanup(summaries.Close)
	callee := &fakePerson{}
	port := farEnd(t, callee, func(c *siptest.Call) { c.Next(sipmsg.BYE).Reply(200) })
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "REALTIME_URL="+model.URL, "REALTIME_KEY=the-operators",
		"SUMMARY_URL="+summaries.URL+"/v1")
	if status, response := r.asOperator("POST", "http://"+p.addr+"/admin/v1/trunks",
		fmt.Sprintf(`{"name":"far","host":"127.0.0.1","port":%d,"calls_per_second":10}`, port)); status != 201 {
		t.Fatalf("POST = %d %v", status, response)
	}
	r.publish(kafka.Agents, r.agent, &eventv1.AgentEvent{
		AgentId: r.agent.String(), WorkspaceId: r.workspace.String(), Version: time.Now().UnixNano(),
		Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{
			Name: "Ida", FromE164: dialqueue.DefaultFrom, MaxCallSeconds: 60,
			SettingsJson: []byte(`{"kind":"openai_realtime","language":"en-GB","instructions":"Be brief.",` +
				`"greeting":"Good day, this is Ida."}`),
		}},
	})
	await(t, "the agent's settings are stored", func() bool {
		var kind string
		err := r.pool.QueryRow(t.Context(), "SELECT settings->>'kind' FROM agents WHERE agent_id = $1", r.agent).Scan(&kind)
		return err == nil && kind == "openai_realtime"
	})
	const number = "+14155551201"
	t.Cleanup(func() {
		if t.Failed() {
			callee.mu.Lock()
			defer callee.mu.Unlock()
			t.Logf("loud frames that the person received = %d, sent = %d; frames that the model received = %d; events:",
				callee.loudFrames, callee.sent, model.Frames())
			for _, event := range model.Sent("") {
				t.Logf("%.160s", event)
			}
		}
	})
	facts := r.ends(r.request(number))
	if got := names(facts); got != talked {
		t.Fatalf("facts = %s, want %s", got, talked)
	}
	end := last(facts)
	switch c := end.GetCall(); {
	case c.GetStatus() != "completed":
		t.Errorf(`c.GetStatus() = %v, want "completed"`, c.GetStatus())
	case c.GetHangupCause() != "normal_clearing":
		t.Errorf(`c.GetHangupCause() = %v, want "normal_clearing"`, c.GetHangupCause())
	case c.GetDisposition() != "human":
		t.Errorf(`c.GetDisposition() = %v, want "human"`, c.GetDisposition())
	case end.GetAnalysed().GetOutcome() != "opted_out":
		t.Errorf(`end.GetAnalysed().GetOutcome() = %v, want "opted_out"`, end.GetAnalysed().GetOutcome())
	case c.GetBillableSeconds() < 1:
		t.Errorf("c.GetBillableSeconds() = %v, want at least 1", c.GetBillableSeconds())
	}
	var summary map[string]any
	if err := json.Unmarshal(end.GetAnalysed().GetSummaryJson(), &summary); err != nil {
		t.Errorf("summary %s: json.Unmarshal: %v", end.GetAnalysed().GetSummaryJson(), err)
	} else if summary["customer_name"] != "Bo" {
		t.Errorf(`summary %s: summary["customer_name"] = %q, want "Bo"`,
			end.GetAnalysed().GetSummaryJson(), summary["customer_name"])
	}
	var transcript struct{ Turns []struct{ Role, Text string } }
	if err := json.Unmarshal(end.GetAnalysed().GetTranscriptJson(), &transcript); err != nil {
		t.Fatalf("transcript %s: %v", end.GetAnalysed().GetTranscriptJson(), err)
	}
	var turns []string
	for _, turn := range transcript.Turns {
		turns = append(turns, turn.Role+": "+turn.Text)
	}
	whole := strings.Join(turns, " | ")
	disclosed, asked := strings.Index(whole, "agent: Hello, you are talking to an AI assistant."), strings.Index(whole,
		"person: Please never call me again.")
	switch {
	case disclosed != 0:
		t.Errorf("disclosed = %v, want 0", disclosed)
	case asked < disclosed:
		t.Errorf("asked = %v, want at least %v", asked, disclosed)
	case !strings.HasSuffix(whole, "agent: That is noted. Goodbye."):
		t.Errorf("whole = %q, want it to end with %q", whole, "agent: That is noted. Goodbye.")
	}
	await(t, "the opt-out is reported", func() bool { return r.gate.heard(number) > 0 })
	callee.mu.Lock()
	defer callee.mu.Unlock()
	if callee.loudFrames < 40 {
		t.Errorf("callee.heard = %v, want at least 40", callee.loudFrames)
	} else if callee.sent != speech {
		t.Errorf("callee.sent = %v, want %v", callee.sent, speech)
	}
}

// A caller whose address belongs to no trunk gets no response.
func TestSIP_InboundCallIsAnswered(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	address := freeAddr(t)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+address)
	us := netip.MustParseAddrPort(address)
	r.publish(kafka.Agents, r.agent, &eventv1.AgentEvent{
		AgentId: r.agent.String(), WorkspaceId: r.workspace.String(), Version: time.Now().UnixNano(),
		Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{
			Name: "Ida", FromE164: dialqueue.DefaultFrom, MaxCallSeconds: 60,
			SettingsJson: []byte(`{"script":{"tone_hz":440,"tone_millis":200,"end_after_millis":400}}`),
		}},
	})
	const ours, caller = "+14155559000", "+14155550001"
	if status, response := r.admin(p, "POST", "/numbers",
		`{"phone_e164":"`+ours+`","agent_id":"`+r.agent.String()+`"}`); status != 201 {
		t.Fatalf("POST = %d %v", status, response)
	}
	agent, err := sip.New(sip.Config{UDP: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Close)
	ring := func(to string, answered func(), waitTimeout time.Duration) sip.End {
		t.Helper()
		body, err := sdp.NewSession(1, sdp.Local{Address: us.Addr(), Port: 40000}).Offer(sdp.Both)
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan sip.End, 1)
		_, err = agent.Invite(t.Context(), sip.Trunk{Name: "us", Host: us.Addr().String(), Port: int(us.Port()),
			Transport: transport.UDP, CallerID: sip.InFrom},
			sip.Invite{CallID: uuid.NewString(), From: caller, To: to, Body: body, FirstResponse: waitTimeout},
			sip.Observer{Answered: func(time.Time, []byte) error { answered(); return nil },
				Ended: func(e sip.End) { over <- e }})
		if err != nil {
			t.Fatal(err)
		}
		return <-over
	}
	if end := ring(ours, func() { t.Error("a call from an unknown source was answered") }, time.Second); end.Status != 0 {
		t.Errorf("status of a call from an unknown source = %d, want 0", end.Status)
	}
	if status, response := r.asOperator("POST", "http://"+p.addr+"/admin/v1/trunks",
		`{"name":"near","host":"127.0.0.1","port":9}`); status != 201 {
		t.Fatalf("POST = %d %v", status, response)
	}
	var picked bool
	await(t, "the agent answers, talks and hangs up", func() bool {
		end := ring(ours, func() { picked = true }, time.Second)
		return picked && end.Cause == callstate.NormalClearing && !end.ByUs
	})
	var key string
	await(t, "the call has a row", func() bool {
		return r.pool.QueryRow(t.Context(),
			"SELECT call_id::text FROM calls WHERE direction = 'inbound' AND status = 'completed'").Scan(&key) == nil
	})
	await(t, "all events of the call are published", func() bool {
		return names(r.factsOf(key)) == "ringing answered ended analysed"
	})
	switch c := last(r.factsOf(key)).GetCall(); {
	case c.GetFrom() != caller:
		t.Errorf("c.GetFrom() = %v, want %v", c.GetFrom(), caller)
	case c.GetToE164() != ours:
		t.Errorf("c.GetToE164() = %v, want %v", c.GetToE164(), ours)
	case c.GetDirection() != "inbound":
		t.Errorf(`c.GetDirection() = %v, want "inbound"`, c.GetDirection())
	case c.GetBillableSeconds() != 0:
		t.Errorf("c.GetBillableSeconds() = %v, want 0", c.GetBillableSeconds())
	}
}
