package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/settingsv1"
)

func (r *rig) applyWorkspace(event *eventv1.WorkspaceEvent) error {
	client := settingsv1.NewSettingServiceClient(http.DefaultClient, r.server.URL,
		connect.WithInterceptors(r.gateway.ClientInterceptor("calls")))
	_, err := client.ApplySetting(r.t.Context(), connect.NewRequest(&settingsv1.ApplySettingRequest{
		Setting: &settingsv1.ApplySettingRequest_Workspace{Workspace: event},
	}))
	return err
}

func (r *rig) consumeWorkspace(event *eventv1.WorkspaceEvent) error {
	value, err := proto.Marshal(event)
	if err != nil {
		r.t.Fatalf("encode event: %v", err)
	}
	return pg.InTx(r.t.Context(), r.pool, func(tx pgx.Tx) error {
		return kafkatest.Apply(r.t.Context(), tx, r.handlers[kafka.Workspaces.Name], kafka.Record{
			Topic: kafka.Workspaces.Name, Type: string(event.ProtoReflect().Descriptor().FullName()), Value: value,
		})
	})
}

// Versions of a workspace arrive in calls of ApplySetting and in Kafka, in different orders.
func TestWorkspace_NewestVersionIsUsedInAnyOrderOfArrival(t *testing.T) {
	t.Parallel()
	type step struct {
		kafka       bool // true if the step uses Kafka, false if it uses ApplySetting
		version     int64
		destination string
	}
	tests := []struct {
		name  string
		steps []step
		want  string
	}{
		{name: "ApplySetting", want: "{+44}", steps: []step{{version: 2, destination: "+44"}}},
		{name: "event after ApplySetting", want: "{+44}",
			steps: []step{{version: 2, destination: "+44"}, {kafka: true, version: 2, destination: "+44"}}},
		{name: "ApplySetting after event", want: "{+44}",
			steps: []step{{kafka: true, version: 2, destination: "+44"}, {version: 2, destination: "+44"}}},
		{name: "late event of an older version", want: "{+49}",
			steps: []step{{version: 3, destination: "+49"}, {kafka: true, version: 2, destination: "+44"}}},
		{name: "late ApplySetting of an older version", want: "{+49}",
			steps: []step{{kafka: true, version: 3, destination: "+49"}, {version: 2, destination: "+44"}}},
	}
	r := newRig(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id := uuid.New()
			for i, s := range tt.steps {
				event := &eventv1.WorkspaceEvent{
					WorkspaceId: id.String(), Version: s.version,
					Event: &eventv1.WorkspaceEvent_Workspace{Workspace: &eventv1.Workspace{Currency: "USD",
						Destinations: []string{s.destination}}},
				}
				send := r.applyWorkspace
				if s.kafka {
					send = r.consumeWorkspace
				}
				if err := send(event); err != nil {
					t.Errorf("step %d = %v, want nil", i, err)
				}
			}
			var got string
			if err := r.pool.QueryRow(t.Context(), "SELECT destinations::text FROM workspaces WHERE id = $1",
				id).Scan(&got); err != nil {
				t.Fatalf("read destinations: %v", err)
			}
			if got != tt.want {
				t.Errorf("destinations = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestApplySetting_RefusesAMessageWithoutAValidWorkspace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if got := connect.CodeOf(r.applyWorkspace(
		&eventv1.WorkspaceEvent{WorkspaceId: "x"})); got != connect.CodeInvalidArgument {
		t.Errorf("ApplySetting of workspace x = %s, want invalid_argument", got)
	}
	if got := connect.CodeOf(r.applyWorkspace(nil)); got != connect.CodeInvalidArgument {
		t.Errorf("ApplySetting without a workspace = %s, want invalid_argument", got)
	}
}

// A change of an agent is committed, and then the dialer stores the agent. The client must get its
// response only after both steps.
func TestAgent_IsStoredByTheDialerBeforeTheHTTPResponse(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var committed []int64
	r.peers.set(func(p *fakePeers) {
		p.applyAgent = func(ctx context.Context, event *eventv1.AgentEvent) error {
			var version int64
			err := r.pool.QueryRow(ctx, "SELECT version FROM agents WHERE id = $1", event.GetAgentId()).Scan(&version)
			committed = append(committed, version)
			return err
		}
	})
	id := r.want(http.StatusCreated, "POST", r.admin("/agents"), map[string]any{"name": "Bo"})["id"].(string)
	r.want(http.StatusOK, "PATCH", r.admin("/agents/"+id), map[string]any{"max_call_seconds": 60})
	r.want(http.StatusOK, "DELETE", r.admin("/agents/"+id), nil)
	if diff := cmp.Diff([]int64{1, 2, 3}, committed); diff != "" {
		t.Errorf("versions in the database when the dialer received the agent (-want +got):\n%s", diff)
	}
	received := r.peers.agents[len(r.peers.agents)-3:]
	if got := received[1].GetAgent().GetMaxCallSeconds(); got != 60 {
		t.Errorf("max_call_seconds that the dialer received = %d, want 60", got)
	}
	if !received[2].GetAgent().GetDeleted() {
		t.Error("deleted that the dialer received = false, want true")
	}
}

func TestAgent_ChangeWithTheDialerDownIsStoredAndReturns503(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.peers.set(func(p *fakePeers) {
		p.applyAgent = func(context.Context, *eventv1.AgentEvent) error {
			return connect.NewError(connect.CodeUnavailable, errors.New("the database is unavailable"))
		}
	})
	answer := r.want(http.StatusServiceUnavailable, "PATCH", r.admin("/agents/"+r.agent.String()),
		map[string]any{"max_call_seconds": 60})
	refused, _ := answer["error"].(map[string]any)
	message, _ := refused["message"].(string)
	want := "The change is stored and will be in force later: dialer did not confirm it within 2 s."
	if !strings.HasPrefix(message, want) {
		t.Errorf("message = %q, want %q", message, want)
	}
	read := r.want(http.StatusOK, "GET", r.admin("/agents/"+r.agent.String()), nil)
	if got := read["max_call_seconds"]; got != 60.0 {
		t.Errorf("stored max_call_seconds = %v, want 60", got)
	}
	var events int
	const ofAgent = "SELECT count(*) FROM outbox WHERE topic = 'agents.v1' AND key = $1"
	if err := r.pool.QueryRow(t.Context(), ofAgent, r.agent.String()).Scan(&events); err != nil {
		t.Fatalf("count events: %v", err)
	}
	if events != 2 {
		t.Errorf("events of the agent = %d, want 2, of the creation and the change", events)
	}
}
