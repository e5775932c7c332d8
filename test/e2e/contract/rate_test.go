package contract

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// waitFor waits for a time that a response or the documentation names, for example the time in the
// header Retry-After.
func waitFor(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-t.Context().Done():
	case <-time.After(d):
	}
}

type limits struct{ limit, remaining, reset int }

// Each rate-limit header must occur once, and the values must agree.
func limitsOf(t *testing.T, what string, a answer) limits {
	t.Helper()
	one := func(name string) int {
		values := a.header.Values(name)
		if len(values) != 1 {
			t.Errorf("%s: %s = %q, want one", what, name, values)
			return -1
		}
		n, err := strconv.Atoi(values[0])
		if err != nil {
			t.Errorf("%s: strconv.Atoi: %v", what, err)
		} else if n < 0 {
			t.Errorf("%s: n = %v, want at least 0; name = %s; values[0] = %q", what, n, name, values[0])
		}
		return n
	}
	l := limits{one("X-RateLimit-Limit"), one("X-RateLimit-Remaining"), one("X-RateLimit-Reset")}
	for name, want := range map[string]string{
		"RateLimit-Policy": fmt.Sprintf(`"default";q=%d;w=60`, l.limit),
		"RateLimit":        fmt.Sprintf(`"default";r=%d;t=%d`, l.remaining, l.reset),
		"Service-Version":  "2026-06-04",
	} {
		if got := a.header.Values(name); len(got) != 1 {
			t.Errorf("%s: length of got = %d, want 1; name = %s", what, len(got), name)
		} else if got[0] != want {
			t.Errorf("%s: got[0] = %v, want %v; name = %s", what, got[0], want, name)
		}
	}
	if l.remaining > l.limit {
		t.Errorf("%s: l.remaining = %v, want at most %v", what, l.remaining, l.limit)
	} else if l.reset > 60 {
		t.Errorf("%s: l.reset = %v, want at most 60", what, l.reset)
	}
	if a.status == http.StatusTooManyRequests {
		sharedstack.Equal(t, what+": X-RateLimit-Remaining of a 429", l.remaining, 0)
		sharedstack.Equal(t, what+": code of a 429", a.code(), "rate_limited")
		if a.header.Get("Retry-After") == "" {
			t.Errorf("%s: a 429 has no Retry-After", what)
		}
	}
	return l
}

func TestRateLimit_IsExactAcrossTwoReplicas(t *testing.T) {
	const limit, asked = 120, 300
	w := workspace(t, set{"plan": "growth", "rate_limit_per_minute": nil})
	clients := newClients(t, w.read.key, asked)
	begun := time.Now()
	answers := runParallel(clients, func(_ int, c *client) answer { return c.send(t, "GET", "/v1/wallet", nil) })
	refilled := int(time.Since(begun) / (time.Minute / limit))
	passed, wait := 0, 0
	for _, a := range answers {
		limitsOf(t, "GET /v1/wallet", a)
		switch a.status {
		case http.StatusOK:
			passed++
		case http.StatusTooManyRequests:
			after, err := strconv.Atoi(a.header.Get("Retry-After"))
			if err != nil {
				t.Errorf("Retry-After: strconv.Atoi: %v", err)
			} else if after != 1 {
				t.Errorf(`Retry-After: after = %v, want 1; a.header.Get("Retry-After") = %q`, after, a.header.Get("Retry-After"))
			}
			wait = max(wait, after)
		default:
			t.Errorf("GET = %d %s", a.status, a.body)
		}
	}
	if passed < limit {
		t.Errorf("passed = %v, want at least %v; asked = %d", passed, limit, asked)
	} else if passed > limit+refilled {
		t.Errorf("passed = %v, want at most %v; asked = %d", passed, limit+refilled, asked)
	}
	waitFor(t, time.Duration(wait)*time.Second)
	if got := clients[0].send(t, "GET", "/v1/wallet", nil); got.status != http.StatusOK {
		t.Errorf("after the Retry-After = %d %s, want 200", got.status, got.body)
	}
	for replica, n := range refusedBy(t) {
		// On systems other than Linux, one replica accepts all connections of a shared port.
		if n == 0 && runtime.GOOS == "linux" {
			t.Errorf("replica %d refused no request: the test reached only the other one", replica)
		}
	}
}

// refusedBy returns how many requests each gateway replica answered with 429.
func refusedBy(t *testing.T) map[int]int {
	t.Helper()
	var state struct{ Ports map[string]int }
	data, err := os.ReadFile(filepath.Join(stack(t).Home, "state.json"))
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	if got := json.Unmarshal(data, &state); got != nil {
		t.Fatalf("json.Unmarshal(data, &state) = %v, want nil", got)
	}
	counted := regexp.MustCompile(`(?m)^ringfence_http_request_duration_seconds_count\{.*status="429".*\} (\d+)$`)
	refused := map[int]int{}
	for replica := 1; replica <= 2; replica++ {
		private := &client{base: fmt.Sprintf("http://127.0.0.1:%d", state.Ports[fmt.Sprintf("gateway private %d", replica)]), http: http.DefaultClient}
		refused[replica] = 0
		for _, match := range counted.FindAllStringSubmatch(private.want(t, 200, "GET", "/metrics", nil).body, -1) {
			n, _ := strconv.Atoi(match[1])
			refused[replica] += n
		}
	}
	return refused
}

func TestRateLimit_BurstOfTheWholeLimitPasses(t *testing.T) {
	// less than the number of database connections, so that all requests are counted concurrently
	const limit = 20
	w := workspace(t, set{"rate_limit_per_minute": limit})
	for range 10 {
		fresh, _ := w.key(t, "read")
		answers := runParallel(newClients(t, fresh.key, limit),
			func(_ int, c *client) answer { return c.send(t, "GET", "/v1/wallet", nil) })
		for _, a := range answers {
			limitsOf(t, "one of 20", a)
		}
		sharedstack.Equal(t, "answers", countAnswers(answers), map[string]int{"200": limit})
	}
}

func TestRateLimit_EachKeyHasTheLimitOfPlanOrOverride(t *testing.T) {
	growth := workspace(t, set{"plan": "growth", "rate_limit_per_minute": nil})
	scale := workspace(t, set{"rate_limit_per_minute": nil})
	tight := workspace(t, set{"rate_limit_per_minute": 3})
	for _, row := range []struct {
		name  string
		w     *tenant
		limit int
	}{{"growth", growth, 120}, {"scale", scale, 600}, {"override", tight, 3}} {
		got := limitsOf(t, row.name, row.w.read.want(t, 200, "GET", "/v1/wallet", nil))
		sharedstack.Equal(t, row.name+": got.limit", got.limit, row.limit)
		sharedstack.Equal(t, row.name+": got.remaining", got.remaining, row.limit-1)
		sharedstack.Equal(t, row.name+": got.reset", got.reset, max(1, (60+row.limit-1)/row.limit))
	}
	// Requests that fail for other reasons count toward the limit. Each key has its own limit.
	tight.read.refused(t, 404, "not_found", "GET", "/v1/nothing", nil)
	tight.read.refused(t, 404, "not_found", "GET", "/v1/calls/x", nil)
	limitsOf(t, "the fourth of 3", tight.read.refused(t, 429, "rate_limited", "GET", "/v1/wallet", nil))
	if got := limitsOf(t, "another key", tight.write.want(t, 200, "GET", "/v1/wallet", nil)); got.remaining != 2 {
		t.Errorf("another key of the workspace has %+v, want its own limit", got)
	}
	tight.operator.want(t, 200, "PATCH", tight.admin, set{"rate_limit_per_minute": 100})
	third, _ := tight.key(t, "read")
	ask := func(_ int, c *client) answer { return c.send(t, "GET", "/v1/wallet", nil) }
	for _, a := range runParallel(newClients(t, third.key, 8), ask) {
		sharedstack.Equal(t, "X-RateLimit-Limit after the PATCH", a.header.Get("X-RateLimit-Limit"), "100")
	}
	until(t, "a key above the old limit is admitted at the new limit's pace", func() bool {
		return tight.read.send(t, "GET", "/v1/wallet", nil).status == 200
	})
}

func TestRateLimit_HeadersAreInEveryResponse(t *testing.T) {
	w := workspace(t, set{"rate_limit_per_minute": 100})
	w.topUp(t, holdOfOneCall)
	starter := workspace(t, set{"plan": "starter"})
	anonymous := customer(t, "")
	ahead := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	body := w.order(number(1), "idempotency_key", "k", "scheduled_for", ahead)
	used, begun := 0, time.Now()
	for _, row := range []struct {
		status       int
		c            *client
		method, path string
		body         any
	}{
		{202, w.write, "POST", "/v1/calls", body},
		{200, w.write, "POST", "/v1/calls", body},
		{402, w.write, "POST", "/v1/calls", w.order(number(1))},
		{200, w.write, "HEAD", "/v1/wallet", nil},
		{404, w.write, "GET", "/v1/nothing", nil},
		{404, w.write, "GET", "/v1/calls/x", nil},
		{405, w.write, "PUT", "/v1/calls", nil},
		{405, w.write, "BREW", "/v1/calls", nil},
		{409, w.write, "POST", "/v1/call-requests/{id}/cancel", nil},
		{413, w.write, "POST", "/v1/calls", strings.Repeat(" ", 256<<10+1)},
		{422, w.write, "POST", "/v1/calls", "{"},
		{422, w.write, "GET", "/v1/calls?limit=0", nil},
		{201, w.write, "POST", "/v1/contacts", set{"phone_e164": number(1)}},
		{403, w.read, "POST", "/v1/calls", body},
		{403, starter.read, "GET", "/v1/calls", nil},
		{401, anonymous, "GET", "/v1/calls", nil},
		{401, customer(t, "rf_live_x"), "GET", "/v1/calls", nil},
		{401, anonymous, "GET", "/v1/nothing", nil},
		{200, anonymous, "GET", "/readyz", nil},
	} {
		if strings.Contains(row.path, "{id}") {
			canceled := w.write.want(t, 200, "POST", "/v1/calls", body).text("id")
			row.path = strings.Replace(row.path, "{id}", canceled, 1)
			w.write.want(t, 200, "POST", row.path, nil)
			used += 2
		}
		got := row.c.send(t, row.method, row.path, row.body)
		if got.status != row.status {
			t.Errorf("%s %s = %d %s, want %d", row.method, row.path, got.status, got.body, row.status)
		}
		limits := limitsOf(t, fmt.Sprint(row.method, " ", row.path, " ", row.status), got)
		if (got.header.Get("Retry-After") != "") != (row.status == 429) {
			t.Errorf("%s %s: Retry-After = %q", row.method, row.path, got.header.Get("Retry-After"))
		}
		if row.c == w.write {
			back := int(time.Since(begun) / (time.Minute / 100))
			used++
			sharedstack.Equal(t, "limits.limit", limits.limit, 100)
			if limits.remaining < 100-used {
				t.Errorf("limits.remaining = %v, want at least %v", limits.remaining, 100-used)
			}
			if limits.remaining > min(99, 100-used+back) {
				t.Errorf("limits.remaining = %v, want at most %v", limits.remaining, min(99, 100-used+back))
			}
		}
	}
	for request, status := range map[string]int{
		"GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n": 400,
		"GET / HTTP/1.1\r\n\r\n":               400,
		"nonsense\r\n\r\n":                     400,
		"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n":     431,
		"POST /v1/calls HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: nonsense\r\n\r\n":       501,
		"GET /v1/calls HTTP/1.1\r\nHost: x\r\nExpect: more\r\nContent-Length: 0\r\n\r\n":  417,
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n":                                           401,
		"GET http://127.0.0.1/v1/wallet HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n": 401,
		"GET /v1/wallet HTTP/1.0\r\n\r\n":                                                 401,
	} {
		line, _, _ := strings.Cut(request, "\r\n")
		got := sendRaw(t, request)
		if got.status != status {
			t.Errorf("%s: got.status = %v, want %v; got.body = %s", line, got.status, status, got.body)
		} else if got.code() == "" {
			t.Errorf("%s: got.code() is empty, want a value; got.body = %s", line, got.body)
		}
		limitsOf(t, line, got)
	}
}

// sendRaw sends bytes that need not be a valid request.
func sendRaw(t *testing.T, request string) answer {
	t.Helper()
	to, err := url.Parse(stack(t).Demo.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("tcp", to.Host, kit.HangTimeout)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(kit.HangTimeout))
	// The response can arrive before the whole request is sent.
	go func() { _, _ = io.WriteString(conn, request) }()
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Errorf("read the answer to %.40q: %v", request, err)
		return answer{}
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(body)}
}
