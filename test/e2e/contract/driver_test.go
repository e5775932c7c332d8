package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
)

func wire(t *testing.T, next *http.Transport) http.RoundTripper {
	t.Helper()
	return stack(t).document.Wire(next)
}

// If key is empty, the client sends no credential.
type client struct {
	base, key string
	http      *http.Client
}

// idleTimeout is the time for which an idle connection is kept. It is less than the gateway's 2
// min, so that a request never uses a connection that the gateway is closing.
const idleTimeout = time.Minute

// transport returns a transport with its own connections. If localAddress is empty, the system
// selects the address.
func transport(localAddress string) *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second}
	if localAddress != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(localAddress)}
	}
	return &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 512, IdleConnTimeout: idleTimeout,
		DisableCompression: true}
}

func customer(t *testing.T, key string) *client {
	t.Helper()
	return &client{base: stack(t).Demo.BaseURL, key: key, http: &http.Client{Transport: wire(t, transport("")), Timeout: 30 * time.Second}}
}

// newClients returns n clients with the same key. Each client has its own connection, so that both
// replicas receive requests.
func newClients(t *testing.T, key string, n int) []*client {
	t.Helper()
	all := make([]*client, n)
	for i := range all {
		all[i] = customer(t, key)
	}
	return all
}

func operator(t *testing.T) *client {
	t.Helper()
	demo := stack(t).Demo
	return &client{base: demo.AdminURL, key: demo.AdminToken, http: &http.Client{Transport: transport(""), Timeout: 30 * time.Second}}
}

// Status 0 means that there was no response.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends one request. body is nil, a string that is sent unchanged, or a value to encode as
// JSON. header contains names and values alternately.
func (c *client) send(t *testing.T, method, path string, body any, header ...string) answer {
	t.Helper()
	var payload io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		payload = strings.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		if err != nil {
			t.Error(err)
			return answer{}
		}
		payload = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, c.base+path, payload)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	if payload != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		request.Header.Set("Authorization", "Bearer "+c.key)
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Add(header[i], header[i+1])
	}
	if request.Header.Get(forwardedHeader) == "" {
		request.Header.Set(forwardedHeader, addressOf(t))
	}
	response, err := c.http.Do(request)
	if err != nil {
		t.Errorf("%s %s: %v", method, path, err)
		return answer{}
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Errorf("%s %s: read the answer: %v", method, path, err)
	}
	// A summary can contain scheduled_for, which is a local time with an offset.
	testkit.CheckTimestamps(t, read, "summary", "local_time", "paths", "webhooks", "parameters")
	return answer{response.StatusCode, response.Header, string(read)}
}

// addressOf returns the client address of a test. The gateway limits requests without a valid key
// for each client address, so each test has its own address.
func addressOf(t *testing.T) string {
	t.Helper()
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(t.Name()))
	sum := hash.Sum32()
	return fmt.Sprintf("198.%d.%d.%d", 18+sum>>16&1, sum>>8&255, sum&255)
}

func (c *client) want(t *testing.T, status int, method, path string, body any, header ...string) answer {
	t.Helper()
	got := c.send(t, method, path, body, header...)
	if got.status != status {
		t.Fatalf("%s %s = %d %s, want %d", method, path, got.status, got.body, status)
	}
	return got
}

func (c *client) refused(t *testing.T, status int, code, method, path string, body any, header ...string) answer {
	t.Helper()
	got := c.send(t, method, path, body, header...)
	if got.status != status {
		t.Errorf("%s %s: got.status = %v, want %v; got.body = %s", method, path, got.status, status, got.body)
	} else if got.code() != code {
		t.Errorf("%s %s: got.code() = %q, want %q; got.body = %s", method, path, got.code(), code, got.body)
	}
	return got
}

func (a answer) code() string {
	var shown struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal([]byte(a.body), &shown) != nil || shown.Error.Message == "" {
		return ""
	}
	return shown.Error.Code
}

func (a answer) members() map[string]any {
	var members map[string]any
	decoder := json.NewDecoder(strings.NewReader(a.body))
	decoder.UseNumber()
	_ = decoder.Decode(&members)
	return members
}

func (a answer) text(name string) string {
	switch value := a.members()[name].(type) {
	case nil:
		return ""
	case string:
		return value
	default:
		return fmt.Sprint(value)
	}
}

func (a answer) ids() []string {
	var page kit.Page[struct {
		ID string `json:"id"`
	}]
	_ = json.Unmarshal([]byte(a.body), &page)
	ids := make([]string, len(page.Data))
	for i, item := range page.Data {
		ids[i] = item.ID
	}
	return ids
}

// runParallel runs do for every client at the same time, and returns the results.
func runParallel[T any](clients []*client, do func(i int, c *client) T) []T {
	answers, gate := make([]T, len(clients)), make(chan struct{})
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			<-gate
			answers[i] = do(i, c)
		})
	}
	close(gate)
	all.Wait()
	return answers
}

// countAnswers counts responses by status and error code, for example "202" or "402
// insufficient_credits".
func countAnswers(answers []answer) map[string]int {
	counts := map[string]int{}
	for _, a := range answers {
		counts[strings.TrimSpace(fmt.Sprint(a.status, " ", a.code()))]++
	}
	return counts
}

// A set is a JSON object. If it is passed to workspace, it replaces default settings. The value nil
// removes a setting.
type set map[string]any

type tenant struct {
	id, agent   string
	write, read *client
	writeID     string
	operator    *client
	admin       string
}

// workspace creates a workspace that can place calls at any hour and has no credit. Its rate limit
// is high unless overrides contains another limit.
func workspace(t *testing.T, overrides ...set) *tenant {
	t.Helper()
	body := set{
		"name": t.Name(), "plan": "scale", "currency": "USD", "rate_limit_per_minute": 1_000_000,
		"calling_policy": set{"window": set{"start": "00:00", "end": "24:00"}, "timezone": "recipient"},
	}
	for _, settings := range overrides {
		for name, value := range settings {
			if body[name] = value; value == nil {
				delete(body, name)
			}
		}
	}
	w := &tenant{operator: operator(t)}
	w.id = w.operator.want(t, 201, "POST", "/admin/v1/workspaces", body).text("id")
	w.admin = "/admin/v1/workspaces/" + w.id
	w.write, w.writeID = w.key(t, "write")
	w.read, _ = w.key(t, "read")
	w.agent = w.operator.want(t, 201, "POST", w.admin+"/agents", set{"name": "Ada"}).text("id")
	return w
}

func (w *tenant) key(t *testing.T, access string) (c *client, id string) {
	t.Helper()
	made := w.operator.want(t, 201, "POST", w.admin+"/api-keys", set{"name": access, "access": access})
	return customer(t, made.text("key")), made.text("id")
}

func (w *tenant) topUp(t *testing.T, amount string) {
	t.Helper()
	w.operator.want(t, 201, "POST", w.admin+"/wallet/transactions", set{"type": "top_up", "amount": amount, "reference": uuid.NewString()})
}

// order returns the body of POST /v1/calls. members contains names and values alternately.
func (w *tenant) order(to string, members ...any) set {
	body := set{"agent_id": w.agent, "to": to}
	for i := 0; i < len(members); i += 2 {
		body[members[i].(string)] = members[i+1]
	}
	return body
}

func (w *tenant) ended(t *testing.T, id string) answer {
	t.Helper()
	var got answer
	until(t, "request "+id+" ends", func() bool {
		got = w.read.want(t, 200, "GET", "/v1/call-requests/"+id, nil)
		return got.text("status") != "queued" && got.text("status") != "dialing"
	})
	return got
}

func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if err := kit.Until(t.Context(), kit.HangTimeout, what, func() (bool, error) { return cond(), nil }); err != nil {
		t.Fatal(err)
	}
}

var numbers atomic.Int64

// number returns a new phone number. Its last two digits select the behavior of the far end
// (docs/test-numbers.md).
func number(digits int) string {
	return fmt.Sprintf("+14155%04d%02d", numbers.Add(1), digits)
}
