package httpapi_test

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"ringfence.dev/proto/eventv1"
)

func TestAgents_ShowRetiringModels(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.admin("/agents/" + r.agent.String())
	tests := []struct {
		name   string
		change map[string]any
		want   any
	}{
		{name: "no model named", change: map[string]any{"name": "Ada"}, want: nil},
		{
			name:   "voice and summary model",
			change: map[string]any{"model": "gpt-realtime", "summary": map[string]any{"model": "gpt-5.1"}},
			want: []any{
				map[string]any{"model": "gpt-realtime", "retires_on": "2027-01-20", "successor": "gpt-realtime-2.1"},
				map[string]any{"model": "gpt-5.1", "retires_on": "2027-04-01", "successor": nil},
			},
		},
		{name: "models without a shutdown", change: map[string]any{"model": "gpt-realtime-2.1", "summary": nil}, want: nil},
	}
	for _, tt := range tests {
		changed := r.do("PATCH", path, tt.change)
		if changed.status != http.StatusOK {
			t.Fatalf("%s: PATCH = %d %v, want 200", tt.name, changed.status, changed.body)
		}
		if diff := cmp.Diff(tt.want, changed.body["retiring_models"]); diff != "" {
			t.Errorf("%s: retiring_models of PATCH (-want +got):\n%s", tt.name, diff)
		}
		read := r.do("GET", path, nil)
		if diff := cmp.Diff(tt.want, read.body["retiring_models"]); diff != "" {
			t.Errorf("%s: retiring_models of GET (-want +got):\n%s", tt.name, diff)
		}
		// A client can send back an agent exactly as it read the agent. The member retiring_models is
		// ignored in the body of PATCH.
		back := r.do("PATCH", path, read.body)
		if back.status != http.StatusOK {
			t.Errorf("%s: PATCH with the answer of GET = %d %v, want 200", tt.name, back.status, back.body)
		}
	}
}

func TestAgents_IfMatchRefusesAnOldVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.admin("/agents/" + r.agent.String())
	read := r.do("GET", path, nil)
	tag := read.header.Get("ETag")
	if tag == "" {
		t.Fatal("GET has no ETag")
	}
	changed := r.do("PATCH", path, map[string]any{"name": "Ada 2"}, "If-Match", tag)
	if changed.status != http.StatusOK {
		t.Fatalf("PATCH with the ETag = %d %v, want 200", changed.status, changed.body)
	}
	if got := changed.header.Get("ETag"); got == tag || got == "" {
		t.Errorf("ETag of the change = %s, want another one than %s", got, tag)
	}
	for _, method := range []string{"PATCH", "DELETE"} {
		refused := r.do(method, path, map[string]any{"name": "Ada 3"}, "If-Match", tag)
		if refused.status != http.StatusPreconditionFailed {
			t.Errorf("%s with an old ETag = %d %v, want 412", method, refused.status, refused.body)
		}
	}
	if got := r.do("GET", path, nil).body["name"]; got != "Ada 2" {
		t.Errorf("name = %v, want Ada 2", got)
	}
	if got := r.do("PATCH", path, map[string]any{"name": "Ada 4"}).status; got != http.StatusOK {
		t.Errorf("PATCH without If-Match = %d, want 200", got)
	}
	if got := r.do("DELETE", path, nil, "If-Match", "*").status; got != http.StatusOK {
		t.Errorf("DELETE with If-Match: * = %d, want 200", got)
	}
}

// The change is stored, but the dialer does not respond. The client repeats it with the ETag of the
// 503.
func TestAgents_ChangeCanBeRepeatedAfterA503(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	path := r.admin("/agents/" + r.agent.String())
	tag := r.do("GET", path, nil).header.Get("ETag")
	r.peers.mu.Lock()
	r.peers.applyAgent = func(context.Context, *eventv1.AgentEvent) error {
		return connect.NewError(connect.CodeUnavailable, nil)
	}
	r.peers.mu.Unlock()
	change := map[string]any{"name": "Ada 2"}
	refused := r.do("PATCH", path, change, "If-Match", tag)
	if refused.status != http.StatusServiceUnavailable {
		t.Fatalf("PATCH while the dialer does not respond = %d %v, want 503", refused.status, refused.body)
	}
	r.peers.mu.Lock()
	r.peers.applyAgent = nil
	r.peers.mu.Unlock()
	if got := r.do("PATCH", path, change, "If-Match", refused.header.Get("ETag")); got.status != http.StatusOK {
		t.Errorf("PATCH with the ETag of the 503 = %d %v, want 200", got.status, got.body)
	}
}
