package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/settingsv1"
	"ringfence.dev/services/dialer/internal/consumer"
	"ringfence.dev/services/dialer/internal/store"
)

type settingStep struct {
	kafka   bool
	version int64
	value   int32 // max_live_calls of a workspace, or max_call_seconds of an agent
}

func (o fixture) send(t *testing.T, url string, topic kafka.Topic, step settingStep, event proto.Message) error {
	t.Helper()
	if step.kafka {
		value, err := proto.Marshal(event)
		if err != nil {
			t.Fatalf("encode event: %v", err)
		}
		wakes := consumer.Wakes{Dialing: func() {}, Relay: func() {}}
		handlers := consumer.New(
			store.New(o.pool, uuid.New(), store.Timing{}),
			wakes,
			prometheus.NewRegistry(),
		).Handlers()
		return pg.InTx(t.Context(), o.pool, func(tx pgx.Tx) error {
			return kafkatest.Apply(t.Context(), tx, handlers[topic.Name], kafka.Record{
				Topic: topic.Name, Type: string(event.ProtoReflect().Descriptor().FullName()), Value: value,
			})
		})
	}
	request := &settingsv1.ApplySettingRequest{}
	switch setting := event.(type) {
	case *eventv1.WorkspaceEvent:
		request.Setting = &settingsv1.ApplySettingRequest_Workspace{Workspace: setting}
	case *eventv1.AgentEvent:
		request.Setting = &settingsv1.ApplySettingRequest_Agent{Agent: setting}
	}
	client := settingsv1.NewSettingServiceClient(http.DefaultClient, url,
		connect.WithInterceptors(o.gateway.ClientInterceptor("dialer")))
	_, err := client.ApplySetting(t.Context(), connect.NewRequest(request))
	return err
}

// A version arrives by ApplySetting, from Kafka, or both, possibly after a newer version. The
// newest version must be kept.
func TestSetting_NewestVersionIsKeptInAnyOrderOfArrival(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		steps []settingStep
		want  int32
	}{
		{name: "ApplySetting only", steps: []settingStep{{version: 2, value: 20}}, want: 20},
		{name: "ApplySetting, then the event of the same version", want: 20,
			steps: []settingStep{{version: 2, value: 20}, {kafka: true, version: 2, value: 20}}},
		{name: "event, then ApplySetting of the same version", want: 20,
			steps: []settingStep{{kafka: true, version: 2, value: 20}, {version: 2, value: 20}}},
		{name: "ApplySetting, then the event of an older version", want: 30,
			steps: []settingStep{{version: 3, value: 30}, {kafka: true, version: 2, value: 20}}},
		{name: "event, then ApplySetting of an older version", want: 30,
			steps: []settingStep{{kafka: true, version: 3, value: 30}, {version: 2, value: 20}}},
	}
	o := open(t)
	server := httptest.NewServer(o.handler)
	t.Cleanup(server.Close)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id := uuid.New()
			for i, s := range tt.steps {
				workspace := &eventv1.WorkspaceEvent{WorkspaceId: id.String(), Version: s.version,
					Event: &eventv1.WorkspaceEvent_Workspace{
						Workspace: &eventv1.Workspace{Status: "active", ApiEnabled: true,
							MaxLiveCalls: s.value},
					}}
				if err := o.send(t, server.URL, kafka.Workspaces, s, workspace); err != nil {
					t.Errorf("step %d, workspace = %v, want nil", i, err)
				}
				agent := &eventv1.AgentEvent{AgentId: id.String(), WorkspaceId: id.String(), Version: s.version,
					Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{Name: "Ada", MaxCallSeconds: s.value}}}
				if err := o.send(t, server.URL, kafka.Agents, s, agent); err != nil {
					t.Errorf("step %d, agent = %v, want nil", i, err)
				}
			}
			var got [2]int32
			const stored = `SELECT (SELECT max_live_calls FROM workspaces WHERE workspace_id = $1),
				(SELECT max_call_seconds FROM agents WHERE agent_id = $1)`
			if err := o.pool.QueryRow(t.Context(), stored, id).Scan(&got[0], &got[1]); err != nil {
				t.Fatalf("read settings: %v", err)
			}
			if diff := cmp.Diff([2]int32{tt.want, tt.want}, got); diff != "" {
				t.Errorf("max_live_calls and max_call_seconds (-want +got):\n%s", diff)
			}
		})
	}
}

func TestApplySetting_RefusesAnEmptyRequest(t *testing.T) {
	t.Parallel()
	o := open(t)
	server := httptest.NewServer(o.handler)
	t.Cleanup(server.Close)
	for _, event := range []proto.Message{nil, &eventv1.WorkspaceEvent{WorkspaceId: "x"},
		&eventv1.AgentEvent{AgentId: "x"}} {
		if got := connect.CodeOf(o.send(t, server.URL, kafka.Workspaces, settingStep{},
			event)); got != connect.CodeInvalidArgument {
			t.Errorf("ApplySetting of %v = %s, want invalid_argument", event, got)
		}
	}
}
