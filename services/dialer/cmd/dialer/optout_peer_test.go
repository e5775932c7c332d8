package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"ringfence.dev/services/dialer/internal/agent/modeltest"
	"ringfence.dev/services/dialer/internal/callstate"
)

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

func newModel(t *testing.T, words string, reply modeltest.RealtimeReply) (url string) {
	t.Helper()
	model := modeltest.NewRealtime(modeltest.RealtimeOptions{
		Hears: func(int) string { return words },
		Reply: func(heard, asked string, _ int) modeltest.RealtimeReply {
			switch heard {
			case words:
				return reply
			case "":
				return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day."), Length: 300 * time.Millisecond}
			}
			return modeltest.RealtimeReply{Text: "Goodbye.", Length: 300 * time.Millisecond, Tool: "end_call", Args: `{}`}
		},
	})
	t.Cleanup(model.Close)
	return model.URL
}

// newWebsocketAgent returns the URL of an agent, and the environment variable that lets the dialer
// trust the agent's certificate.
func newWebsocketAgent(t *testing.T, words string) (url, trustVariable string) {
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

// sipp sends the agent's audio back as the person's speech. In the last two cases, the dialer
// itself recognises the words as a refusal.
func TestAgent_OptOutIsReported(t *testing.T) {
	t.Parallel()
	const leave, plain, number = "That is enough for me.", "Please never call me again.", "+14155551601"
	const realtimeAgent = `{"kind":"openai_realtime","disclosure":{"off_reason":"a test"},"greeting":"Good day."}`
	tests := []struct {
		name  string
		words string
		setUp func(t *testing.T, words string) (settings string, env []string)
	}{
		{name: "outcome of the tool end_call", words: leave, setUp: func(t *testing.T, words string) (string, []string) {
			model := newModel(t, words, modeltest.RealtimeReply{Tool: "end_call", Args: `{"outcome":"opted_out"}`})
			return realtimeAgent, []string{"REALTIME_URL=" + model, "REALTIME_KEY=x"}
		}},
		{name: "outcome of the summary", words: leave, setUp: func(t *testing.T, words string) (string, []string) {
			model := newModel(t, words, modeltest.RealtimeReply{Tool: "end_call", Args: `{}`})
			return realtimeAgent,
				[]string{"REALTIME_URL=" + model, "REALTIME_KEY=x", "SUMMARY_URL=" + newSummaries(t, "opted_out")}
		}},
		{name: "end_call of a websocket agent", words: leave, setUp: func(t *testing.T, words string) (string, []string) {
			url, trustVariable := newWebsocketAgent(t, words)
			return `{"kind":"media_ws","media_url":"` + url + `"}`, []string{trustVariable, "AGENT_ALLOW_NETWORKS=127.0.0.0/8"}
		}},
		{name: "tool opt_out", words: plain, setUp: func(t *testing.T, words string) (string, []string) {
			model := newModel(t, words, modeltest.RealtimeReply{Tool: "opt_out", Args: `{"quote":"` + words + `"}`})
			return realtimeAgent, []string{"REALTIME_URL=" + model, "REALTIME_KEY=x"}
		}},
		{name: "words without a tool", words: plain, setUp: func(t *testing.T, words string) (string, []string) {
			model := newModel(t, words, modeltest.RealtimeReply{Tool: "end_call", Args: `{}`})
			return realtimeAgent, []string{"REALTIME_URL=" + model, "REALTIME_KEY=x"}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "0")
			settings, env := test.setUp(t, test.words)
			port := startTrunk(t, answersThen(audioOfSipp, okStep("BYE", "200 OK")), "-rtp_echo")
			p := r.dialer(append(env, "CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))...)
			r.addTrunk(p, port, "")
			r.setAgent(settings)
			keys := "/agent-keys/" + r.agent.String()
			if status, body := r.admin(p, "PUT", keys, `{"key":"a-secret-of-the-agent"}`); status != 200 {
				t.Fatalf("PUT agent key = %d %v, want 200", status, body)
			}
			// The report of the opt-out fails. The stored opt-out must block the next call request.
			r.gate.optOut = func(int) error { return errors.New("away") }

			facts := r.ends(r.request(number))
			if got, want := last(facts).GetAnalysed().GetOutcome(), "opted_out"; got != want {
				t.Errorf("outcome = %q, want %q", got, want)
			}
			await(t, "the opt-out is reported", func() bool { return r.gate.heard(number) > 0 })
			if got := r.gate.evidence(number); got != test.words {
				t.Errorf("evidence = %q, want %q", got, test.words)
			}
			if got, want := last(r.ends(r.request(number))).GetBlocked().GetErrorCode(), "recipient_dnd"; got != want {
				t.Errorf("error code of the next request = %q, want %q", got, want)
			}
		})
	}
}

// sipp sends no audio after the opt-out, so the call fails at the trunk's media timeout.
func TestTrunk_OptOutOfAFailedCallIsKept(t *testing.T) {
	t.Parallel()
	const words, number = "Please never call me again.", "+14155551602"
	r := newRig(t, "0")
	model := modeltest.NewRealtime(modeltest.RealtimeOptions{
		Hears: func(int) string { return words },
		Reply: func(heard, asked string, _ int) modeltest.RealtimeReply {
			switch heard {
			case words:
				return modeltest.RealtimeReply{Tool: "opt_out", Args: `{"quote":"` + words + `"}`}
			case "":
				return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day."), Length: 300 * time.Millisecond}
			}
			return modeltest.RealtimeReply{} // the model neither says goodbye nor ends the call
		},
	})
	t.Cleanup(model.Close)
	peer, port := startSipp(t, "127.0.0.1", answersThen(audioOfSipp, okStep("BYE", "200 OK")), "-rtp_echo")
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "REALTIME_URL="+model.URL, "REALTIME_KEY=x")
	r.addTrunk(p, port, `,"media_timeout_seconds":5`)
	r.setAgent(`{"kind":"openai_realtime","disclosure":{"off_reason":"a test"},"greeting":"Good day.",` +
		`"silence_seconds":60}`)
	id := r.request(number)
	await(t, "the opt-out is reported", func() bool { return r.gate.heard(number) > 0 })
	peer.Stop()
	end := last(r.ends(id))
	if got, want := end.GetCall().GetStatus(), "failed"; got != want {
		t.Errorf("status = %q, want %q", got, want)
	}
	if got, want := end.GetCall().GetHangupCause(), string(callstate.MediaTimeout); got != want {
		t.Errorf("hangup cause = %q, want %q", got, want)
	}
	if got, want := end.GetAnalysed().GetOutcome(), "opted_out"; got != want {
		t.Errorf("outcome = %q, want %q", got, want)
	}
	if got := string(end.GetAnalysed().GetTranscriptJson()); !strings.Contains(got, words) {
		t.Errorf("transcript = %q, want it to contain %q", got, words)
	}
	if got := r.gate.evidence(number); got != words {
		t.Errorf("evidence = %q, want %q", got, words)
	}
}

// The dialer must send the list of permitted outcomes to the model, so that the model can choose
// one of them.
func TestAgent_OutcomeThatIsNotListedIsRefused(t *testing.T) {
	t.Parallel()
	const words = "Yes, gladly."
	r := newRig(t, "0")
	var results atomic.Value
	model := modeltest.NewRealtime(modeltest.RealtimeOptions{
		Hears: func(int) string { return words },
		Reply: func(heard, asked string, _ int) modeltest.RealtimeReply {
			switch {
			case heard == "":
				return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day."), Length: 300 * time.Millisecond}
			case strings.Contains(heard, "refused"):
				results.CompareAndSwap(nil, heard)
				return modeltest.RealtimeReply{Tool: "end_call", Args: `{"outcome":"interested"}`}
			}
			return modeltest.RealtimeReply{Tool: "end_call", Args: `{"outcome":"delighted"}`}
		},
	})
	t.Cleanup(model.Close)
	port := startTrunk(t, answersThen(audioOfSipp, okStep("BYE", "200 OK")), "-rtp_echo")
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "REALTIME_URL="+model.URL, "REALTIME_KEY=x")
	r.addTrunk(p, port, "")
	r.setAgent(`{"kind":"openai_realtime","disclosure":{"off_reason":"a test"},"greeting":"Good day."}`)
	end := last(r.ends(r.request("+14155551603")))
	if got, want := end.GetAnalysed().GetOutcome(), "interested"; got != want {
		t.Errorf("outcome = %q, want %q", got, want)
	}
	result, _ := results.Load().(string)
	if want := "not_interested"; !strings.Contains(result, want) {
		t.Errorf("result of the tool = %q, want the list of outcomes with %q", result, want)
	}
	await(t, "the log contains the outcome that was refused", func() bool {
		return strings.Contains(p.output(), "agent returned an outcome that is not in its list")
	})
}
