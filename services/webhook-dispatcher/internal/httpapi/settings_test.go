package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/pg"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/settingsv1"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// Versions of a workspace arrive in calls of ApplySetting and in the topic workspaces.v1, in any
// order.
func TestApplySetting_NewestVersionIsStoredInAnyOrder(t *testing.T) {
	t.Parallel()
	type step struct {
		consumer  bool // true if the step uses the consumer of workspaces.v1, false if it uses ApplySetting
		version   int64
		suspended bool
	}
	tests := []struct {
		name  string
		steps []step
		want  bool
	}{
		{name: "ApplySetting", steps: []step{{version: 2, suspended: true}}, want: true},
		{name: "event after ApplySetting", want: true,
			steps: []step{{version: 2, suspended: true}, {consumer: true, version: 2, suspended: true}}},
		{name: "ApplySetting after event", want: true,
			steps: []step{{consumer: true, version: 2, suspended: true}, {version: 2, suspended: true}}},
		{name: "late event of an older version",
			steps: []step{{version: 3}, {consumer: true, version: 2, suspended: true}}},
		{name: "late ApplySetting of an older version",
			steps: []step{{consumer: true, version: 3}, {version: 2, suspended: true}}},
	}
	h := newFixture(t)
	server := httptest.NewServer(h.handler)
	t.Cleanup(server.Close)
	client := settingsv1.NewSettingServiceClient(http.DefaultClient, server.URL,
		connect.WithInterceptors(h.gateway.ClientInterceptor("webhook-dispatcher")))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id := uuid.New()
			for i, s := range tt.steps {
				state := &eventv1.Workspace{Status: "active", WebhooksEnabled: true}
				if s.suspended {
					state.Status = "suspended"
				}
				event := &eventv1.WorkspaceEvent{
					WorkspaceId: id.String(), Version: s.version, Event: &eventv1.WorkspaceEvent_Workspace{Workspace: state},
				}
				if s.consumer {
					h.setWorkspace(t, event)
					continue
				}
				_, err := client.ApplySetting(t.Context(), connect.NewRequest(&settingsv1.ApplySettingRequest{
					Setting: &settingsv1.ApplySettingRequest_Workspace{Workspace: event},
				}))
				if err != nil {
					t.Errorf("step %d: ApplySetting = %v, want nil", i, err)
				}
			}
			var got bool
			if err := h.pool.QueryRow(t.Context(), "SELECT suspended FROM workspaces WHERE id = $1",
				id).Scan(&got); err != nil {
				t.Fatalf("read workspace: %v", err)
			}
			if got != tt.want {
				t.Errorf("suspended = %v, want %v", got, tt.want)
			}
		})
	}
	_, err := client.ApplySetting(t.Context(), connect.NewRequest(&settingsv1.ApplySettingRequest{}))
	if got := connect.CodeOf(err); got != connect.CodeInvalidArgument {
		t.Errorf("ApplySetting without a workspace = %s, want invalid_argument", got)
	}
}

func (h *fixture) setWorkspace(t *testing.T, event *eventv1.WorkspaceEvent) {
	t.Helper()
	workspace, err := store.WorkspaceOf(event)
	if err != nil {
		t.Fatalf("WorkspaceOf: %v", err)
	}
	err = pg.InTx(t.Context(), h.pool, func(tx pgx.Tx) error {
		_, err := h.store.SetWorkspace(t.Context(), tx, workspace)
		return err
	})
	if err != nil {
		t.Errorf("SetWorkspace = %v, want nil", err)
	}
}
