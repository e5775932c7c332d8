package contract

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// dialBound is the time after the response in which a dial can still use the old setting
// (docs/reference/api/operator-api.md).
const dialBound = 2 * time.Second

// settingWrites is how often a test writes a setting.
func settingWrites() int { return sharedstack.Trials(50, 200) }

// settingTenant is a workspace. Each of its requests uses a new connection, for which the kernel
// chooses one of the two gateway replicas.
type settingTenant struct {
	*kit.Workspace
	t     *testing.T
	http  *http.Client
	demo  kit.Demo
	admin string
	block int
}

var settingBlocks atomic.Int32

func newSettingTenant(t *testing.T, credit string) *settingTenant {
	t.Helper()
	s := stack(t)
	w, err := s.NewWorkspace(t.Context(), t.Name(), credit)
	if err != nil {
		t.Fatalf("create workspace: %v", err)
	}
	return &settingTenant{
		block:     int(settingBlocks.Add(1)),
		Workspace: w, t: t, demo: s.Demo, admin: "/admin/v1/workspaces/" + w.ID,
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: kit.HangTimeout},
	}
}

type response struct {
	status int
	header http.Header
	body   []byte
}

func (r response) code() string {
	var refused struct{ Error struct{ Code string } }
	_ = json.Unmarshal(r.body, &refused)
	return refused.Error.Code
}

func (r response) member(name string) string {
	var members map[string]any
	_ = json.Unmarshal(r.body, &members)
	text, _ := members[name].(string)
	return text
}

func (w *settingTenant) send(base, key, method, path string, body any) response {
	w.t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		w.t.Fatalf("encode body: %v", err)
	}
	request, err := http.NewRequestWithContext(w.t.Context(), method, base+path, bytes.NewReader(encoded))
	if err != nil {
		w.t.Fatalf("make request: %v", err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	answer, err := w.http.Do(request)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = answer.Body.Close() }()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return response{answer.StatusCode, answer.Header, read}
}

func (w *settingTenant) write(method, path string, body any, want int) response {
	w.t.Helper()
	got := w.send(w.demo.AdminURL, w.demo.AdminToken, method, w.admin+path, body)
	if got.status != want {
		w.t.Fatalf("%s %s %v = %d %s, want %d", method, path, body, got.status, got.body, want)
	}
	return got
}

func (w *settingTenant) api(method, path string, body any) response {
	w.t.Helper()
	return w.send(w.demo.BaseURL, w.WriteKey, method, path, body)
}

// post posts a call for tomorrow, so that the dialer does not dial it.
func (w *settingTenant) post(agentID string) response {
	w.t.Helper()
	return w.api("POST", "/v1/calls", map[string]any{
		"agent_id": agentID, "to": w.number(0), "scheduled_for": time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339),
	})
}

// number returns a phone number of the workspace that the simulated carrier answers. Other tests do
// not call it.
func (w *settingTenant) number(i int) string {
	return fmt.Sprintf("+14152%04d%02d", w.block*10+i/90, i%90)
}

// values describes a setting with two values. The test writes the values alternately, and checks
// the next request after each write.
type values struct {
	name  string
	write func(w *settingTenant, i int)
	check func(w *settingTenant) response
	// status contains the expected status after a write with an even index, and after a write with
	// an odd index.
	status [2]int
	code   [2]string
}

// patchAlternately returns a function that writes the settings a and b of the workspace
// alternately.
func patchAlternately(a, b map[string]any) func(*settingTenant, int) {
	return func(w *settingTenant, i int) { w.write("PATCH", "", []map[string]any{a, b}[i%2], http.StatusOK) }
}

func get(path string) func(*settingTenant) response {
	return func(w *settingTenant) response { return w.api("GET", path, nil) }
}

func postTomorrow(w *settingTenant) response { return w.post(w.AgentID) }

// alwaysClosed returns a window that is closed for at least the next day.
func alwaysClosed() map[string]any {
	day := strings.ToLower(time.Now().UTC().AddDate(0, 0, 3).Weekday().String()[:3])
	return map[string]any{"window": map[string]any{"start": "00:00", "end": "24:00", "days": []string{day}},
		"timezone": "UTC"}
}

func open() map[string]any {
	return map[string]any{"window": map[string]any{"start": "00:00", "end": "24:00"}, "timezone": "recipient"}
}

func settingTable() []values {
	refused, accepted := http.StatusUnprocessableEntity, http.StatusAccepted
	features := func(name string) func(*settingTenant, int) {
		return patchAlternately(map[string]any{"features": map[string]any{name: false}},
			map[string]any{"features": map[string]any{name: true}})
	}
	rates := func(w *settingTenant, i int) {
		price := []string{"1000", "0.01"}[i%2]
		w.write("PUT", "/rates", []map[string]any{{"prefix": "+1", "per_minute": price, "increment_seconds": 1}},
			http.StatusOK)
	}
	optOut := func(w *settingTenant, i int) {
		if i%2 == 1 {
			w.api("DELETE", "/v1/opt-outs/"+w.number(0), nil)
			return
		}
		w.api("POST", "/v1/opt-outs", map[string]any{"phone_e164": w.number(0)})
	}
	consent := func(w *settingTenant, i int) {
		status := []string{"withdrawn", "consented"}[i%2]
		w.write("PUT", "/contacts/"+w.number(0)+"/consent", map[string]any{"status": status, "source": "form"},
			http.StatusOK)
	}
	// with the longer maximum of 3,600 s, the hold is more than the credit
	longest := func(w *settingTenant, i int) {
		w.write("PATCH", "/agents/"+w.AgentID, map[string]any{"max_call_seconds": []int{3600, 1}[i%2]}, http.StatusOK)
	}
	return []values{
		{name: "destinations", write: patchAlternately(map[string]any{"destinations": []string{"+44"}},
			map[string]any{"destinations": []string{"+1"}}),
			check: postTomorrow, status: [2]int{refused, accepted}, code: [2]string{"validation_error"}},
		{name: "calling_policy", write: patchAlternately(map[string]any{"calling_policy": alwaysClosed()},
			map[string]any{"calling_policy": open()}),
			check: postTomorrow, status: [2]int{refused, accepted}, code: [2]string{"outside_calling_hours"}},
		{name: "status", write: patchAlternately(map[string]any{"status": "suspended"}, map[string]any{"status": "active"}),
			check: get("/v1/calls"), status: [2]int{403, 200}, code: [2]string{"api_not_enabled"}},
		{name: "plan", write: patchAlternately(map[string]any{"plan": "starter"}, map[string]any{"plan": "scale"}),
			check: get("/v1/calls"), status: [2]int{403, 200}, code: [2]string{"api_not_enabled"}},
		{name: "features.api", write: features("api"), check: get("/v1/calls"), status: [2]int{403, 200},
			code: [2]string{"api_not_enabled"}},
		{name: "features.webhooks", write: features("webhooks"), check: get("/v1/webhook-subscriptions"),
			status: [2]int{403, 200},
			code:   [2]string{"webhooks_not_enabled"}},
		{name: "rates", write: rates, check: postTomorrow, status: [2]int{402, accepted},
			code: [2]string{"insufficient_credits"}},
		{name: "agent", write: longest, check: postTomorrow, status: [2]int{402, accepted},
			code: [2]string{"insufficient_credits"}},
		{name: "opt-out", write: optOut, check: postTomorrow, status: [2]int{refused, accepted},
			code: [2]string{"recipient_dnd"}},
		{name: "consent", write: consent, check: postTomorrow, status: [2]int{refused, accepted},
			code: [2]string{"consent_withdrawn"}},
	}
}

// The test writes each setting 50 times, or 200 times with -large. The first request after each
// response must obey the new setting on both replicas.
func TestSettings_ApplyToTheNextRequest(t *testing.T) {
	t.Parallel()
	for _, setting := range settingTable() {
		t.Run(setting.name, func(t *testing.T) {
			t.Parallel()
			w := newSettingTenant(t, "2")
			w.write("PATCH", "/agents/"+w.AgentID, map[string]any{"max_call_seconds": 1}, http.StatusOK)
			failures := 0
			for i := range settingWrites() {
				setting.write(w, i)
				got := setting.check(w)
				if got.status != setting.status[i%2] || got.code() != setting.code[i%2] {
					if failures++; failures == 1 {
						t.Errorf("after write %d: %d %s, want %d %s", i, got.status, got.body, setting.status[i%2], setting.code[i%2])
					}
				}
			}
			if failures > 0 {
				t.Errorf("requests that used the old setting = %d of %d, want 0", failures, settingWrites())
			}
		})
	}
}

func TestSettings_NewAndRevokedKeysApplyToTheNextRequest(t *testing.T) {
	t.Parallel()
	w := newSettingTenant(t, "1")
	for i := range settingWrites() {
		made := w.write("POST", "/api-keys", map[string]any{"name": "test", "access": "read"}, http.StatusCreated)
		if got := w.send(w.demo.BaseURL, made.member("key"), "GET", "/v1/calls", nil); got.status != http.StatusOK {
			t.Fatalf("request %d with a new key = %d %s, want 200", i, got.status, got.body)
		}
		w.write("DELETE", "/api-keys/"+made.member("id"), nil, http.StatusOK)
		if got := w.send(w.demo.BaseURL, made.member("key"), "GET", "/v1/calls", nil); got.status != http.StatusUnauthorized {
			t.Fatalf("request %d with the revoked key = %d %s, want 401", i, got.status, got.body)
		}
	}
}

// These settings are objects that are created and deleted, so there are no two values to write
// alternately.
func TestSettings_CreatedAndDeletedObjectsApplyToTheNextRequest(t *testing.T) {
	t.Parallel()
	t.Run("rate_limit_per_minute", func(t *testing.T) {
		t.Parallel()
		w := newSettingTenant(t, "1")
		for i := range settingWrites() {
			limit := 1_000_000 - i
			w.write("PATCH", "", map[string]any{"rate_limit_per_minute": limit}, http.StatusOK)
			if got := w.api("GET", "/v1/calls", nil).header.Get("X-RateLimit-Limit"); got != strconv.Itoa(limit) {
				t.Fatalf("X-RateLimit-Limit after write %d = %s, want %d", i, got, limit)
			}
		}
	})
	t.Run("name", func(t *testing.T) {
		t.Parallel()
		w := newSettingTenant(t, "1")
		for i := range settingWrites() {
			name := fmt.Sprintf("Acme %d", i)
			w.write("PATCH", "", map[string]any{"name": name}, http.StatusOK)
			if got := w.write("GET", "", nil, http.StatusOK).member("name"); got != name {
				t.Fatalf("name after write %d = %q, want %q", i, got, name)
			}
		}
	})
	t.Run("agent", func(t *testing.T) {
		t.Parallel()
		w := newSettingTenant(t, "1000")
		for i := range settingWrites() {
			id := w.write("POST", "/agents", map[string]any{"name": "Bo"}, http.StatusCreated).member("id")
			number := map[string]any{"phone_e164": fmt.Sprintf("+1628%07d", time.Now().UnixNano()%10_000_000), "agent_id": id}
			w.write("POST", "/numbers", number, http.StatusCreated)
			if got := w.post(id); got.status != http.StatusAccepted {
				t.Fatalf("POST /v1/calls %d with a new agent = %d %s, want 202", i, got.status, got.body)
			}
			w.write("DELETE", "/agents/"+id, nil, http.StatusOK)
			if got := w.post(id); got.code() != "invalid_agent" {
				t.Fatalf("POST /v1/calls %d with the deleted agent = %d %s, want invalid_agent", i, got.status, got.body)
			}
		}
	})
	t.Run("workspace", func(t *testing.T) {
		t.Parallel()
		for range settingWrites() {
			w := newSettingTenant(t, "1")
			if got := w.api("GET", "/v1/wallet", nil); got.status != http.StatusOK {
				t.Fatalf("GET /v1/wallet of a new workspace = %d %s, want 200", got.status, got.body)
			}
		}
	})
}

// stoppingSetting is a setting that must prevent the dial of a queued request.
type stoppingSetting struct {
	name string
	// each is true if the setting is written once for each request. Otherwise it is written once
	// for all requests.
	each  bool
	write func(w *settingTenant, i int, agentID string)
	code  string
}

// The setting is written while call requests become due one after the other. No call request may be
// dialed later than 2 s after the response to the write.
func TestSettings_ApplyToTheNextDial(t *testing.T) {
	t.Parallel()
	patch := func(body map[string]any) func(*settingTenant, int, string) {
		return func(w *settingTenant, _ int, _ string) { w.write("PATCH", "", body, http.StatusOK) }
	}
	for _, setting := range []stoppingSetting{
		{name: "destinations", write: patch(map[string]any{"destinations": []string{"+44"}}),
			code: "destination_not_allowed"},
		{name: "calling_policy", write: patch(map[string]any{"calling_policy": alwaysClosed()}),
			code: "outside_calling_hours"},
		{name: "status", write: patch(map[string]any{"status": "suspended"}), code: "api_not_enabled"},
		{name: "plan", write: patch(map[string]any{"plan": "starter"}), code: "api_not_enabled"},
		{name: "features.api", write: patch(map[string]any{"features": map[string]any{"api": false}}),
			code: "api_not_enabled"},
		{name: "agent", each: true, code: "invalid_agent", write: func(w *settingTenant, _ int, agentID string) {
			w.write("DELETE", "/agents/"+agentID, nil, http.StatusOK)
		}},
		{name: "opt-out", each: true, code: "recipient_dnd", write: func(w *settingTenant, i int, _ string) {
			w.api("POST", "/v1/opt-outs", map[string]any{"phone_e164": w.number(i)})
		}},
	} {
		t.Run(setting.name, func(t *testing.T) {
			t.Parallel()
			w := newSettingTenant(t, "1000")
			agents := make([]string, settingWrites())
			inParallel(settingWrites(), func(i int) {
				agents[i] = w.AgentID
				if setting.name == "agent" {
					agents[i] = w.write("POST", "/agents", map[string]any{"name": "Bo"}, http.StatusCreated).member("id")
				}
			})
			due := func(i int) time.Duration { // the requests become due within 4 s
				return time.Second + time.Duration(i)*4*time.Second/time.Duration(settingWrites())
			}
			w.place(settingWrites(), due, func(i int) string { return agents[i] })
			answered := make([]time.Time, settingWrites())
			for i := settingWrites() - 1; i >= 0; i-- { // the last request is due last
				if setting.each || i == settingWrites()-1 {
					setting.write(w, i, agents[i])
					answered[i] = time.Now()
				} else {
					answered[i] = answered[i+1]
				}
			}
			checkStopped(t, w, setting, answered)
		})
	}
}

// place posts n call requests. due(i) is the delay of request i after its POST.
func (w *settingTenant) place(n int, due func(i int) time.Duration, agentID func(i int) string) {
	w.t.Helper()
	faults := make([]error, n)
	inParallel(n, func(i int) {
		_, faults[i] = w.Place(w.t.Context(), map[string]any{
			"agent_id": agentID(i), "to": w.number(i),
			"scheduled_for": time.Now().Add(due(i)).UTC().Format(time.RFC3339Nano),
		})
	})
	if err := errors.Join(faults...); err != nil {
		w.t.Fatalf("place requests: %v", err)
	}
}

// awaitRequests waits until n call requests have ended. It uses the operator API, because the
// setting can block the workspace's own keys.
func (w *settingTenant) awaitRequests(n int) (requests []kit.Request) {
	w.t.Helper()
	err := kit.Until(w.t.Context(), kit.HangTimeout, "every request has ended", func() (done bool, err error) {
		requests, err = kit.All(w.t.Context(), w.Admin, w.admin+"/call-requests", nil,
			func(r kit.Request) string { return r.ID })
		unfinished := func(r kit.Request) bool { return !r.Final() }
		return len(requests) == n && !slices.ContainsFunc(requests, unfinished), err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return requests
}

func (w *settingTenant) carrierLog(n int) []kit.LogLine {
	w.t.Helper()
	lines, err := stack(w.t).CarrierLog(w.t.Context())
	if err != nil {
		w.t.Fatalf("read carrier log: %v", err)
	}
	numbers := map[string]bool{}
	for i := range n {
		numbers[w.number(i)] = true
	}
	return slices.DeleteFunc(lines, func(line kit.LogLine) bool { return !numbers[line.To] })
}

// inParallel calls do with the numbers from 0 to n-1, eight at a time.
func inParallel(n int, do func(i int)) {
	var all sync.WaitGroup
	for first := range 8 {
		all.Go(func() {
			for i := first; i < n; i += 8 {
				do(i)
			}
		})
	}
	all.Wait()
}

// checkStopped checks that no request was dialed later than dialBound after the response to the
// setting that stops it.
func checkStopped(t *testing.T, w *settingTenant, setting stoppingSetting, answered []time.Time) {
	t.Helper()
	blocked := map[string]int{}
	for _, request := range w.awaitRequests(settingWrites()) {
		if request.ErrorCode != nil {
			blocked[*request.ErrorCode]++
		}
	}
	t.Logf("%s: refused at the dial: %v of %d", setting.name, blocked, settingWrites())
	if blocked[setting.code] == 0 {
		t.Errorf("requests blocked with %s = 0, want at least 1", setting.code)
	}
	numbers := map[string]int{}
	for i := range settingWrites() {
		numbers[w.number(i)] = i
	}
	for _, line := range w.carrierLog(settingWrites()) {
		i := numbers[line.To]
		if line.Kind == "originate" && line.At.After(answered[i].Add(dialBound)) {
			t.Errorf("request %d was dialed %s after the answer, want at most %s", i, line.At.Sub(answered[i]), dialBound)
		}
	}
}

// limitedDials is the number of call requests in the tests of limits. It is small, because the
// limits slow the dials down.
const limitedDials = 30

func (w *settingTenant) placeForLimits() {
	w.t.Helper()
	due := func(int) time.Duration { return 4 * time.Second }
	w.place(limitedDials, due, func(int) string { return w.AgentID })
}

// From 2 s after the response to the change of max_live_calls, no call of the workspace begins
// while another call is live.
func TestSettings_MaxLiveCallsAppliesToTheNextDial(t *testing.T) {
	t.Parallel()
	w := newSettingTenant(t, "1000")
	w.placeForLimits()
	w.write("PATCH", "", map[string]any{"max_live_calls": 1}, http.StatusOK)
	answered := time.Now()
	w.awaitRequests(limitedDials)
	live, checked := map[string]bool{}, 0
	for _, line := range w.carrierLog(limitedDials) {
		switch line.Kind {
		case "originate":
			if line.At.After(answered.Add(dialBound)) {
				if checked++; len(live) != 0 {
					t.Errorf("live calls at the dial %s after the answer = %d, want 0", line.At.Sub(answered), len(live))
				}
			}
			live[line.CallID] = true
		case "hangup":
			delete(live, line.CallID)
		}
	}
	t.Logf("dials later than %s after the answer: %d of %d", dialBound, checked, limitedDials)
	if checked == 0 {
		t.Errorf("dials later than %s after the answer = 0, want at least 1", dialBound)
	}
}

// From 2 s after the response to the change of calls_per_second, the workspace dials at the new
// rate. The test permits twice the limit, because the time from the claim to the dial varies.
func TestSettings_CallsPerSecondAppliesToTheNextDial(t *testing.T) {
	t.Parallel()
	const perSecond = 4
	w := newSettingTenant(t, "1000")
	w.placeForLimits()
	w.write("PATCH", "", map[string]any{"calls_per_second": perSecond}, http.StatusOK)
	answered := time.Now()
	w.awaitRequests(limitedDials)
	var dials []time.Time
	for _, line := range w.carrierLog(limitedDials) {
		if line.Kind == "originate" && line.At.After(answered.Add(dialBound)) {
			dials = append(dials, line.At)
		}
	}
	t.Logf("dials later than %s after the answer: %d of %d", dialBound, len(dials), limitedDials)
	if len(dials) < 5*perSecond {
		t.Fatalf("dials later than %s after the answer = %d, want at least %d", dialBound, len(dials), 5*perSecond)
	}
	lasted := dials[len(dials)-1].Sub(dials[0])
	if least := time.Duration(len(dials)-1) * time.Second / (2 * perSecond); lasted < least {
		t.Errorf("%d dials at %d a second lasted %s, want at least %s", len(dials), perSecond, lasted, least)
	}
}

// After each write of a subscription, the test requests a test delivery. The delivery must have the
// URL and the secret of this write or of a later write.
func TestSettings_ApplyToTheNextDelivery(t *testing.T) {
	t.Parallel()
	w, hooks := newSettingTenant(t, "1"), stack(t).Hooks
	made := w.api("POST", "/v1/webhook-subscriptions", map[string]any{
		"name": "test", "url": hooks.URL + "/" + w.ID, "events": []string{"call.completed"},
	})
	if made.status != http.StatusCreated {
		t.Fatalf("POST subscription = %d %s, want 201", made.status, made.body)
	}
	path := "/v1/webhook-subscriptions/" + made.member("id")
	at := func(i int) string { return "/" + w.ID + "/" + strconv.Itoa(i) }
	// writes maps the id of each test delivery to the number of the setting change that preceded it
	secrets, writes := make([]string, settingWrites()), map[string]int{}
	for i := range settingWrites() {
		if got := w.api("PATCH", path, map[string]any{"url": hooks.URL + at(i)}); got.status != http.StatusOK {
			t.Fatalf("PATCH %d = %d %s, want 200", i, got.status, got.body)
		}
		rotated := w.api("POST", path+"/rotate-secret", nil)
		if secrets[i] = rotated.member("signing_secret"); secrets[i] == "" {
			t.Fatalf("rotate-secret %d = %d %s, want a secret", i, rotated.status, rotated.body)
		}
		tested := w.api("POST", path+"/test", nil)
		if tested.status != http.StatusAccepted {
			t.Fatalf("test %d = %d %s, want 202", i, tested.status, tested.body)
		}
		writes[tested.member("delivery_id")] = i
	}
	arrived := map[int]kit.Delivery{}
	err := kit.Until(t.Context(), kit.HangTimeout, "every test delivery has arrived", func() (bool, error) {
		for i := range settingWrites() {
			for _, d := range hooks.Deliveries(w.ID + "/" + strconv.Itoa(i)) {
				arrived[writes[d.DeliveryID]] = d
			}
		}
		return len(arrived) == settingWrites(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range arrived {
		url, err := strconv.Atoi(d.Path[strings.LastIndexByte(d.Path, '/')+1:])
		if err != nil {
			t.Fatalf("path of a delivery: %v", err)
		}
		if url < i {
			t.Errorf("delivery after write %d went to the URL of write %d", i, url)
		}
		if signer := signedWith(secrets, d); signer < i {
			t.Errorf("delivery after write %d was signed with the secret of write %d", i, signer)
		}
	}
}

func signedWith(secrets []string, d kit.Delivery) int {
	stamp, signature := "", ""
	for part := range strings.SplitSeq(d.Signature, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "t":
			stamp = value
		case "v1":
			signature = value
		}
	}
	for i, secret := range secrets {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(stamp + "."))
		mac.Write(d.Body)
		if hex.EncodeToString(mac.Sum(nil)) == signature {
			return i
		}
	}
	return -1
}
