package sip_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const (
	soon      = kit.HangTimeout
	ringLimit = 8 * time.Second
	// account is the user name at the proxy and the phone number of the stack.
	account, secret = "14155559000", "a secret"
)

type testStack struct {
	*sharedstack.TestStack
	sip   int // the SIP port for UDP and TCP; the next port is for TLS
	model string
	proxy int
	trunk string
}

var shared = &sharedstack.Shared[*testStack]{Begin: begin}

func TestMain(m *testing.M) { os.Exit(shared.Main(m, 16)) }

// sharedWorld skips the test if a required program is not installed.
func sharedWorld(t *testing.T) *testStack {
	t.Helper()
	peertest.Installed(t, "sipp", "baresip", "kamailio", "espeak-ng", "sox")
	return shared.Get(t)
}

func (w *testStack) checkUnregistered() error {
	log, err := os.ReadFile(filepath.Join(w.Home, "stack.log"))
	if _, ending, found := bytes.Cut(log, []byte("\nstopping")); !found || bytes.Contains(ending, []byte("trunk registration not removed")) {
		return errors.Join(err, errors.New("the stack did not remove its registration"))
	}
	return err
}

func begin() (*testStack, error) {
	base, err := sharedstack.New()
	if err != nil {
		return nil, err
	}
	w := &testStack{TestStack: base}
	model, err := w.startModel()
	if err != nil {
		return w, err
	}
	summaries := httptest.NewServer(http.HandlerFunc(summarise))
	w.AtEnd(func() error { summaries.Close(); return nil })
	key, cert, err := peertest.Certificate("127.0.0.1")
	if err != nil {
		return w, err
	}
	keyFile, certFile := filepath.Join(w.Home, "sip-key.pem"), filepath.Join(w.Home, "sip-cert.pem")
	if err := errors.Join(os.WriteFile(keyFile, key, 0o600), os.WriteFile(certFile, cert, 0o600)); err != nil {
		return w, err
	}
	if w.sip, err = testkit.Port(); err != nil {
		return w, err
	}
	// the proxy must end after the stack, because the stack removes its registration when it stops
	if w.proxy, err = w.proxying(); err != nil {
		return w, err
	}
	w.AtEnd(w.checkUnregistered)
	err = w.Start("SIMULATOR_TIME_SCALE=1", "CARRIER=sip", fmt.Sprintf("SIP_UDP_ADDR=127.0.0.1:%d", w.sip), fmt.Sprintf("SIP_TCP_ADDR=127.0.0.1:%d", w.sip),
		fmt.Sprintf("SIP_TLS_ADDR=127.0.0.1:%d", w.sip+1), "SIP_TLS_CERT_FILE="+certFile, "SIP_TLS_KEY_FILE="+keyFile,
		"REALTIME_URL="+model, "REALTIME_KEY=the-operators", "SUMMARY_URL="+summaries.URL+"/v1", "RING_LIMIT="+ringLimit.String(), "DRAIN_LIMIT=1s",
		"RTP_PORT_LOW=61000", "RTP_PORT_HIGH=65534")
	if err != nil {
		return w, err
	}
	return w, w.throughProxy()
}

// throughProxy creates a trunk that leads to the proxy. The proxy requests credentials and forwards
// inbound calls.
func (w *testStack) throughProxy() error {
	var made struct {
		ID string `json:"id"`
	}
	err := kit.NewClient(w.Demo.AdminURL, w.Demo.AdminToken).Into(context.Background(), "POST", "/admin/v1/trunks", map[string]any{
		"name": "proxy", "host": "127.0.0.1", "port": w.proxy, "username": account, "password": secret, "register": true,
		"channels": 100, "calls_per_second": 100, "caller_ids": []string{"+" + account},
	}, http.StatusCreated, &made)
	w.trunk = made.ID
	return err
}

// The script of the model contains, in order, the words that the model hears in each call, and the
// answers to these words.
func (w *testStack) startModel() (url string, err error) {
	url, err = w.Model([]map[string]any{
		{"heard": interruption, "text": explained},
		{"heard": refusal, "tool": "opt_out", "args": `{"quote":"` + refusal + `"}`},
		{"heard": "[The person pressed the key 5]", "tool": "press_digits", "args": `{"digits":"42#"}`},
	})
	w.model = "http" + strings.TrimSuffix(strings.TrimPrefix(url, "ws"), "/v1/realtime")
	return url, err
}

// summarise is an HTTP handler that returns call summaries like an OpenAI-compatible API.
func summarise(w http.ResponseWriter, _ *http.Request) {
	summary := `{"outcome":"opted_out","confidence":0.97,"next_action":"Do not call again.","business_type":null,"customer_name":"Bo","key_interests":[],"key_objections":["calls"],"scheduled_for":null}`
	message := map[string]any{"role": "assistant", "content": summary}
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"finish_reason": "stop", "message": message}}})
}

func (w *testStack) modelEvents(t *testing.T, kind string) (events []map[string]any) {
	t.Helper()
	if err := kit.NewClient(w.model, "").Into(t.Context(), "GET", "/received?type="+kind, nil, 200, &events); err != nil {
		t.Fatal(err)
	}
	return events
}

func (w *testStack) house(t *testing.T, more map[string]any) *kit.Workspace {
	t.Helper()
	one, err := w.NewWorkspace(t.Context(), t.Name(), "100")
	if err == nil && more != nil {
		err = one.Admin.Into(t.Context(), "PATCH", "/admin/v1/workspaces/"+one.ID, more, 200, nil)
	}
	if err == nil {
		_, err = one.Subscribe(t.Context(), w.Hooks)
	}
	if err != nil {
		t.Fatal(err)
	}
	return one
}

func agent(t *testing.T, house *kit.Workspace, settings map[string]any) (id string) {
	t.Helper()
	var made struct {
		ID string `json:"id"`
	}
	settings["name"] = "Ida"
	if err := house.Admin.Into(t.Context(), "POST", "/admin/v1/workspaces/"+house.ID+"/agents", settings, 201, &made); err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// awaitEvents waits until the last event of a call is delivered, and returns the call's events.
func (w *testStack) awaitEvents(t *testing.T, house *kit.Workspace, callID, last string) (got []kit.Delivery) {
	t.Helper()
	until(t, "the event "+last, func() bool {
		got = nil
		for _, d := range w.Hooks.Deliveries(house.ID) {
			if d.CallID == callID {
				got = append(got, d)
			}
		}
		return len(got) > 0 && got[len(got)-1].Type == last
	})
	return got
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if err := kit.Until(context.WithoutCancel(t.Context()), soon, what, func() (bool, error) { return cond(), nil }); err != nil {
		t.Fatal(err)
	}
}
