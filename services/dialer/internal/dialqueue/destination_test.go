package dialqueue_test

import (
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/phone"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

func TestCheck_ForbiddenDestinationIsRefused(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	workspace, agent := &dialqueue.Workspace{Status: "active", APIEnabled: true}, &dialqueue.Agent{WorkspaceID: id}
	tests := []struct {
		name   string
		number phone.Number
		want   string
	}{
		{name: "ordinary number", number: "+14155550100", want: ""},
		{name: "impossible number of an assigned country code", number: "+9107061479", want: ""},
		{name: "unassigned country code", number: "+999123456789", want: dialqueue.CodeDestination},
		{name: "premium number", number: "+19005550100", want: dialqueue.CodeDestination},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			refused, known := dialqueue.Request{WorkspaceID: id, To: tt.number}.Check(workspace, agent, false)
			if !known {
				t.Fatal("Check did not decide")
			}
			got := ""
			if refused != nil {
				got = refused.Code
			}
			if got != tt.want {
				t.Errorf("Check of a request to %s = %q, want %q", tt.number, got, tt.want)
			}
		})
	}
}

func TestCheck_RequestOfAPersonNeedsNoAPIAccess(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	tests := []struct {
		name      string
		workspace dialqueue.Workspace
		byPerson  bool
		want      string
	}{
		{name: "key, with API access", workspace: dialqueue.Workspace{Status: "active", APIEnabled: true}, want: ""},
		{
			name: "key, without API access", workspace: dialqueue.Workspace{Status: "active"},
			want: dialqueue.CodeAPINotEnabled,
		},
		{name: "person, without API access", workspace: dialqueue.Workspace{Status: "active"}, byPerson: true, want: ""},
		{
			name: "person, suspended", workspace: dialqueue.Workspace{Status: "suspended", APIEnabled: true}, byPerson: true,
			want: dialqueue.CodeAPINotEnabled,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := dialqueue.Request{WorkspaceID: id, To: "+14155550100", ByPerson: tt.byPerson}
			refused, known := r.Check(&tt.workspace, &dialqueue.Agent{WorkspaceID: id}, false)
			if !known {
				t.Fatal("Check did not decide")
			}
			got := ""
			if refused != nil {
				got = refused.Code
			}
			if got != tt.want {
				t.Errorf("code = %q, want %q", got, tt.want)
			}
		})
	}
}
