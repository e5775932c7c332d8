package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/emiago/sipgo/sip"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent/realtime/realtimetest"
	"ringfence.dev/services/dialer/internal/signal/signaltest"
	"ringfence.dev/services/dialer/internal/tenant"
)

// newSummaries starts an endpoint that summarises every call with this outcome.
func newSummaries(t *testing.T, outcome string) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		summary := `{"outcome":"` + outcome +
			`","confidence":0.9,"next_action":"","business_type":null,"customer_name":null,` +
			`"key_interests":[],"key_objections":[],"scheduled_for":null}`
		message := map[string]any{"role": "assistant", "content": summary}
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"finish_reason": "stop",
			"message": message}}})
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1"
}

// newModel starts a model that greets, answers the words with the reply, and then ends the call.
func newModel(t *testing.T, words string, reply realtimetest.Reply) (url string) {
	t.Helper()
	model := realtimetest.New(realtimetest.Options{
		Hears: func(int) string { return words },
		Reply: func(heard, asked string, _ int) realtimetest.Reply {
			switch heard {
			case words:
				return reply
			case "":
				return realtimetest.Reply{Text: realtimetest.Quoted(asked, "Good day."), Length: 300 * time.Millisecond}
			}
			return realtimetest.Reply{Text: "Goodbye.", Length: 300 * time.Millisecond, Tool: "end_call", Args: `{}`}
		},
	})
	t.Cleanup(model.Close)
	return model.URL
}

// newWebsocketAgent starts a customer's agent. It transcribes the words, calls end_call with the outcome opted_out and
// closes. It returns its URL and the environment variable that makes its certificate trusted.
func newWebsocketAgent(t *testing.T, words string) (url, trust string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = ws.CloseNow() }()
		for {
			_, text, err := ws.Read(r.Context())
			if err != nil {
				return
			}
			if !strings.Contains(string(text), `"event":"start"`) {
				continue
			}
			for _, message := range []string{
				`{"event":"transcript","transcript":{"role":"person","text":"` + words + `"}}`,
				`{"event":"tool","tool":{"id":"1","name":"end_call","args":{"outcome":"opted_out"}}}`,
				`{"event":"hangup"}`,
			} {
				if err := ws.Write(r.Context(), websocket.MessageText, []byte(message)); err != nil {
					return
				}
			}
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return "wss" + strings.TrimPrefix(server.URL, "https"), "SSL_CERT_FILE=" + writeCertificate(t, server.Certificate())
}

// evidence returns the evidence of the newest opt-out of a number.
func (g *gate) evidence(number string) (evidence string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.optOuts {
		if o.GetPhoneE164() == number {
			evidence = o.GetEvidence()
		}
	}
	return evidence
}

func writeCertificate(t *testing.T, certificate *x509.Certificate) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "agent.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSIP_OutcomeOptedOutIsReported covers the ways to the outcome opted_out of a real call. Each
// one must report the opt-out to contacts-compliance with the person's words, and block the next
// request for the number.
func TestSIP_OutcomeOptedOutIsReported(t *testing.T) {
	const words, number = "Please never call me again.", "+14155551601"
	tests := []struct {
		name  string
		setUp func(t *testing.T) (settings string, env []string)
	}{
		{name: "tool opt_out", setUp: func(t *testing.T) (string, []string) {
			model := newModel(t, words, realtimetest.Reply{Tool: "opt_out", Args: `{"quote":"` + words + `"}`})
			return `{"kind":"openai_realtime"}`, []string{"REALTIME_URL=" + model, "REALTIME_KEY=x"}
		}},
		{name: "end_call", setUp: func(t *testing.T) (string, []string) {
			model := newModel(t, words, realtimetest.Reply{Tool: "end_call", Args: `{"outcome":"opted_out"}`})
			return `{"kind":"openai_realtime"}`, []string{"REALTIME_URL=" + model, "REALTIME_KEY=x"}
		}},
		{name: "summary", setUp: func(t *testing.T) (string, []string) {
			model := newModel(t, words, realtimetest.Reply{Tool: "end_call", Args: `{}`})
			return `{"kind":"openai_realtime"}`,
				[]string{"REALTIME_URL=" + model, "REALTIME_KEY=x", "SUMMARY_URL=" + newSummaries(t, "opted_out")}
		}},
		{name: "websocket agent", setUp: func(t *testing.T) (string, []string) {
			url, trust := newWebsocketAgent(t, words)
			return `{"kind":"media_ws","media_url":"` + url + `"}`, []string{trust, "AGENT_ALLOW_NETWORKS=127.0.0.0/8"}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "0")
			settings, env := test.setUp(t)
			port := farEnd(t, &person{}, func(c *signaltest.Call) { c.Next(sip.BYE).Reply(200) })
			p := r.dialer(append(env, "CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))...)
			trunk := fmt.Sprintf(`{"name":"far","host":"127.0.0.1","port":%d,"calls_per_second":10}`, port)
			if status, body := r.asOperator("POST", "http://"+p.addr+"/admin/v1/trunks", trunk); status != 201 {
				t.Fatalf("POST trunk = %d %v, want 201", status, body)
			}
			r.publish(kafka.Agents, r.agent, &eventv1.AgentEvent{
				AgentId: r.agent.String(), WorkspaceId: r.workspace.String(), Version: time.Now().UnixNano(),
				Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{
					Name: "Ida", FromE164: tenant.DefaultFrom, MaxCallSeconds: 60,
					SettingsJson: []byte(settings),
				}},
			})
			await(t, "agent settings stored", func() bool {
				var stored bool
				err := r.pool.QueryRow(t.Context(), "SELECT settings->>'kind' IS NOT NULL FROM agents WHERE agent_id = $1",
					r.agent).Scan(&stored)
				return err == nil && stored
			})
			keys := "/agent-keys/" + r.agent.String()
			if status, body := r.admin(p, "PUT", keys, `{"key":"a-secret-of-the-agent"}`); status != 200 {
				t.Fatalf("PUT agent key = %d %v, want 200", status, body)
			}
			// The dialer's own opt-out has to block the next request.
			r.gate.optOut = func(int) error { return errors.New("away") }

			facts := r.ends(r.request(number))
			if got := last(facts).GetAnalysed().GetOutcome(); got != "opted_out" {
				t.Errorf("outcome = %q, want opted_out", got)
			}
			await(t, "the opt-out is reported", func() bool { return r.gate.heard(number) > 0 })
			if got := r.gate.evidence(number); got != words {
				t.Errorf("evidence = %q, want %q", got, words)
			}
			if got := last(r.ends(r.request(number))).GetBlocked().GetErrorCode(); got != "recipient_dnd" {
				t.Errorf("error code of the next request = %q, want recipient_dnd", got)
			}
		})
	}
}
