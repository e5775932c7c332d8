package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestRequireToken_RefusesEveryRouteExceptHealth(t *testing.T) {
	t.Parallel()
	network, err := New(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Journal().Close() })
	handler := requireToken("secret", network.Handler())
	routes := []struct {
		method, path string
		open         bool
	}{
		{method: "GET", path: "/log"},
		{method: "POST", path: "/inbound"},
		{method: "GET", path: "/events"},
		{method: "POST", path: "/originate"},
		{method: "POST", path: "/hangup"},
		{method: "POST", path: "/answer"},
		{method: "GET", path: "/calls/019234f6-0000-7000-8000-000000000000"},
		{method: "POST", path: "/faults"},
		{method: "GET", path: "/healthz", open: true},
	}
	for _, route := range routes {
		for _, header := range []string{"", "Bearer", "Bearer other", "Bearer secret ", "secret", "Basic secret",
			"Bearer secret"} {
			req := httptest.NewRequestWithContext(t.Context(), route.method, route.path, http.NoBody)
			if header != "" {
				req.Header.Set("Authorization", header)
			}
			resp := httptest.NewRecorder()
			handler.ServeHTTP(resp, req)
			wantRefused := !route.open && header != "Bearer secret"
			if refused := resp.Code == http.StatusUnauthorized; refused != wantRefused {
				t.Errorf("%s %s with Authorization %q = %d, refused %v, want %v",
					route.method, route.path, header, resp.Code, refused, wantRefused)
			}
		}
	}
}

func TestCheckToken_IsOptionalOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	tests := []struct {
		addr, token string
		wantError   bool
	}{
		{addr: "127.0.0.1:8090"},
		{addr: "localhost:8090"},
		{addr: "[::1]:8090"},
		{addr: ":8090", wantError: true},
		{addr: "0.0.0.0:8090", wantError: true},
		{addr: "10.1.2.3:8090", wantError: true},
		{addr: "simcarrier:8090", wantError: true},
		{addr: ":8090", token: "secret"},
	}
	for _, tt := range tests {
		err := Config{Addr: tt.addr, Token: tt.token}.checkToken()
		if (err != nil) != tt.wantError {
			t.Errorf("checkToken of address %s with token %q = %v, want an error: %v", tt.addr, tt.token, err, tt.wantError)
		}
	}
}
