package httpapi_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
)

// The limits count characters, not bytes.
func TestLimits_AcceptTheMaximumAndRefuseMoreThanTheMaximum(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	home := "/admin/v1/workspaces/" + id
	prefixes := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`"+1%03d"`, i)
		}
		return "[" + strings.Join(list, ",") + "]"
	}
	policy := func(n int) string { return `{"x":"` + strings.Repeat("x", n-len(`{"x":""}`)) + `"}` }
	for _, row := range []struct{ name, method, path, body, field, at, one string }{
		{
			"name of a new workspace", "POST", "/admin/v1/workspaces", `{"plan":"growth","currency":"USD",%s}`, "name",
			`"` + strings.Repeat("é", 200) + `"`, `"` + strings.Repeat("é", 201) + `"`,
		},
		{
			"name of a changed workspace", "PATCH", home, `{%s}`, "name", `"` + strings.Repeat("é", 200) + `"`,
			`"` + strings.Repeat("é", 201) + `"`,
		},
		{
			"name of a key", "POST", home + "/api-keys", `{"access":"read",%s}`, "name",
			`"` + strings.Repeat("é", 200) + `"`, `"` + strings.Repeat("é", 201) + `"`,
		},
		{"number of destinations", "PATCH", home, `{%s}`, "destinations", prefixes(300), prefixes(301)},
		{"size of a calling policy", "PATCH", home, `{%s}`, "calling_policy", policy(16 << 10), policy(16<<10 + 1)},
		{"maximum of a number", "PATCH", home, `{%s}`, "max_live_calls", "1000000", "1000001"},
		{"minimum of a number", "PATCH", home, `{%s}`, "calls_per_second", "1", "0"},
	} {
		if got := r.operator(row.method, row.path, fmt.Sprintf(row.body, `"`+row.field+`":`+row.at)); got.status >= 300 {
			t.Errorf("%s at the limit = %d %.200s", row.name, got.status, got.body)
		}
		got := r.operator(row.method, row.path, fmt.Sprintf(row.body, `"`+row.field+`":`+row.one))
		if got.status != 422 {
			t.Errorf("%s past the limit: got.status = %v, want 422", row.name, got.status)
		}
		if got.code() != "validation_error" {
			t.Errorf("%s past the limit: got.code() = %q, want \"validation_error\"", row.name, got.code())
		}
		if !strings.Contains(got.body, `"message":"`+row.field+" ") {
			t.Errorf("%s past the limit: got.body = %q, want it to contain %q", row.name, got.body, `"message":"`+row.field+" ")
		}
	}
}

func TestAdmin_HostileRequestsNeverGive500(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	home := "/admin/v1/workspaces/" + r.workspace("")
	for _, row := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"a policy with a number that jsonb refuses", "PATCH", home, `{"calling_policy":{"x":1e400000}}`, 200},
		{
			"a new workspace with a policy that jsonb refuses", "POST", "/admin/v1/workspaces",
			`{"name":"a","plan":"growth","currency":"USD","calling_policy":{"x":1e400000}}`, 201,
		},
		{"a NUL in the path of a change", "PUT", home + "/contacts/%00/consent", `{}`, 200},
		{"invalid UTF-8 in the path of a change", "PUT", home + "/contacts/%ff/consent", `{}`, 200},
		{"a malformed query", "GET", "/admin/v1/workspaces?limit=%zz", ``, 422},
		{"a malformed query of a list in another service", "GET", home + "/consent-records?phone=%zz", ``, 422},
		{"a parameter twice", "GET", "/admin/v1/workspaces?limit=1&limit=2", ``, 422},
		{"an unknown parameter twice", "GET", "/admin/v1/workspaces?x=1&x=2", ``, 200},
		{"an unknown workspace with an invalid body", "PATCH", "/admin/v1/workspaces/" + anID, `{`, 404},
		{"keys of an unknown workspace with an invalid body", "POST", "/admin/v1/workspaces/" + anID + "/api-keys", `{`, 404},
	} {
		if got := r.operator(row.method, row.path, row.body); got.status != row.status {
			t.Errorf("%s: got.status = %v, want %v; got.body = %s", row.name, got.status, row.status, got.body)
		} else if row.status >= 400 && got.code() == "" {
			t.Errorf("%s: got.code() is empty, want a value; got.body = %s", row.name, got.body)
		}
	}
	if kept := r.operator("GET", home, "").body; !strings.Contains(kept, `"x":1e400000`) {
		t.Errorf("workspace = %s, want its policy as it was sent", kept)
	}
	for _, path := range []string{"/", "/nothing", "/admin", "/admin/v2/workspaces", "//admin/v1/workspaces"} {
		if got := send(t, "GET", r.admin.URL+path, "", "", nil); got.status != 401 {
			t.Errorf("%s without a token: got.status = %v, want 401; got.body = %s", path, got.status, got.body)
		} else if got.code() != "invalid_api_key" {
			t.Errorf(`%s without a token: got.code() = %q, want "invalid_api_key"; got.body = %s`, path, got.code(), got.body)
		}
	}
}

func TestServer_IncompleteBodiesAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	key, _ := r.key(id, "write")
	for name, at := range map[string]struct{ addr, line, bearer string }{
		"the public API":   {r.public.Listener.Addr().String(), "POST /v1/calls", key},
		"the operator API": {r.admin.Listener.Addr().String(), "POST /admin/v1/workspaces", operatorToken},
		"the operator API, route of another service": {
			r.admin.Listener.Addr().String(), "POST /admin/v1/workspaces/" + id + "/agents", operatorToken,
		},
	} {
		conn, err := net.Dial("tcp", at.addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(testkit.Timeout))
		_, _ = io.WriteString(conn, at.line+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+at.bearer+"\r\nContent-Length: 100\r\n\r\n{\"name\":")
		if half, ok := conn.(*net.TCPConn); ok {
			_ = half.CloseWrite()
		}
		response, err := io.ReadAll(conn)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasPrefix(string(response), "HTTP/1.1 422 ") {
			t.Errorf("%s: response = %q, want it to begin with %q", name, string(response), "HTTP/1.1 422 ")
		}
		if !strings.Contains(string(response), `"code":"validation_error"`) {
			t.Errorf("%s: response = %q, want it to contain %q", name, string(response), `"code":"validation_error"`)
		}
		_ = conn.Close()
	}
	if n := len(r.requestsTo("calls")); n != 0 {
		t.Errorf("calls received %d requests", n)
	}
	if got := r.customer(http.MethodGet, "/v1/calls", key, ""); got.status != http.StatusOK {
		t.Errorf("afterwards = %d", got.status)
	}
}
