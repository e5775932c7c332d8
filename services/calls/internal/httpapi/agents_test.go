package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		// A client can send an agent back in the form in which it read the agent. The member
		// retiring_models is then ignored.
		back := r.do("PATCH", path, read.body)
		if back.status != http.StatusOK {
			t.Errorf("%s: PATCH with the answer of GET = %d %v, want 200", tt.name, back.status, back.body)
		}
	}
}
