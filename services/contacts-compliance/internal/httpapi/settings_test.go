package httpapi_test

import (
	"context"
	"encoding/json"
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
	"ringfence.dev/services/contacts-compliance/internal/consumer"
	"ringfence.dev/services/contacts-compliance/internal/store"
)

// workspaceEvent returns an event of the workspace. If policy is nil, the event has no calling
// policy.
func (r *fixture) workspaceEvent(version int64, policy *eventv1.CallingPolicy) *eventv1.WorkspaceEvent {
	return &eventv1.WorkspaceEvent{
		WorkspaceId: r.workspace.String(), Version: version,
		Event: &eventv1.WorkspaceEvent_Workspace{Workspace: &eventv1.Workspace{Name: "Acme", CallingPolicy: policy}},
	}
}

// apply sends the event as the given service.
func (r *fixture) apply(ctx context.Context, caller string, event *eventv1.WorkspaceEvent) error {
	client := settingsv1.NewSettingServiceClient(http.DefaultClient, r.url,
		connect.WithInterceptors(r.peers[caller].ClientInterceptor(service)))
	_, err := client.ApplySetting(ctx, connect.NewRequest(&settingsv1.ApplySettingRequest{
		Setting: &settingsv1.ApplySettingRequest_Workspace{Workspace: event},
	}))
	return err
}

func (r *fixture) consume(t *testing.T, event *eventv1.WorkspaceEvent) error {
	t.Helper()
	value, err := proto.Marshal(event)
	if err != nil {
		t.Fatalf("encode event: %v", err)
	}
	handle := consumer.New(store.New(r.pool, chains(t)), r.packs).Handlers()[kafka.Workspaces.Name]
	return pg.InTx(t.Context(), r.pool, func(tx pgx.Tx) error {
		return kafkatest.Apply(t.Context(), tx, handle, kafka.Record{
			Topic: kafka.Workspaces.Name, Type: string(event.ProtoReflect().Descriptor().FullName()), Value: value,
		})
	})
}

func (r *fixture) policy(t *testing.T, text string) {
	t.Helper()
	r.version++
	set := &eventv1.CallingPolicy{PolicyJson: []byte(text), Operator: "ann", SetInVersion: r.version}
	if err := r.apply(t.Context(), "gateway", r.workspaceEvent(r.version, set)); err != nil {
		t.Fatalf("ApplySetting: %v", err)
	}
}

type policyRow struct {
	Version  int
	Operator string
	Start    string
	Override string // the name of the operator who set the override
}

func (r *fixture) policies(t *testing.T) []policyRow {
	t.Helper()
	rows, err := pg.Many[policyRow](t.Context(), r.pool, `SELECT version, operator, policy->'window'->>'start' AS start,
		coalesce(policy->'override'->>'operator', '') AS override FROM policies ORDER BY version`, nil)
	if err != nil {
		t.Fatalf("read policies: %v", err)
	}
	return rows
}

func TestApplySetting_RecordsAVersionForEachNewPolicy(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, text := range []string{
		``, // the empty text sets the default policy of a new workspace
		`{"window":{"start":"10:00","end":"11:00"}}`,
		// "recipient" is the default timezone, so this policy equals the policy in the line above
		`{"window":{"start":"10:00","end":"11:00"},"timezone":"recipient"}`,
		`{"packs":["us"],"window":{"start":"07:00","end":"22:00"},"override":{"reason":"staff lines"}}`,
	} {
		r.policy(t, text)
	}
	want := []policyRow{
		{Version: 1, Operator: "ann", Start: "09:00"},
		{Version: 2, Operator: "ann", Start: "10:00"},
		{Version: 3, Operator: "ann", Start: "07:00", Override: "ann"},
	}
	if diff := cmp.Diff(want, r.policies(t)); diff != "" {
		t.Errorf("recorded policies (-want +got):\n%s", diff)
	}
}

// Versions of a workspace arrive through ApplySetting and through Kafka, in any order and more than
// once.
func TestPolicy_NewestVersionIsUsedInAnyOrderOfArrival(t *testing.T) {
	t.Parallel()
	at := func(start string, version int64) *eventv1.CallingPolicy {
		return &eventv1.CallingPolicy{PolicyJson: []byte(`{"window":{"start":"` + start + `","end":"20:00"}}`),
			Operator: "ann", SetInVersion: version}
	}
	type step struct {
		kafka   bool // true if the step uses Kafka, false if it uses ApplySetting
		version int64
		policy  *eventv1.CallingPolicy
	}
	tests := []struct {
		name  string
		steps []step
		want  []string
	}{
		{name: "event after ApplySetting", want: []string{"10:00"},
			steps: []step{{version: 2, policy: at("10:00", 2)}, {kafka: true, version: 2, policy: at("10:00", 2)}}},
		{name: "ApplySetting after event", want: []string{"10:00"},
			steps: []step{{kafka: true, version: 2, policy: at("10:00", 2)}, {version: 2, policy: at("10:00", 2)}}},
		{name: "late event of an older version", want: []string{"11:00"},
			steps: []step{{version: 3, policy: at("11:00", 3)}, {kafka: true, version: 2, policy: at("10:00", 2)}}},
		{name: "late ApplySetting of an older version", want: []string{"11:00"},
			steps: []step{{kafka: true, version: 3, policy: at("11:00", 3)}, {version: 2, policy: at("10:00", 2)}}},
		{name: "change of another setting keeps the policy", want: []string{"10:00"},
			steps: []step{{version: 2, policy: at("10:00", 2)}, {version: 3, policy: at("10:00", 2)}}},
		{name: "event without a policy keeps the policy", want: []string{"10:00"},
			steps: []step{{version: 2, policy: at("10:00", 2)}, {kafka: true, version: 3}, {version: 4}}},
		{name: "event applies a policy that ApplySetting did not", want: []string{"09:30", "10:00"},
			steps: []step{{version: 1, policy: at("09:30", 1)}, {kafka: true, version: 2, policy: at("10:00", 2)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			for i, s := range tt.steps {
				event := r.workspaceEvent(s.version, s.policy)
				if s.kafka {
					if err := r.consume(t, event); err != nil && !kafka.IsSkip(err) {
						t.Errorf("step %d: the handler of workspaces.v1 = %v, want nil or a skip", i, err)
					}
					continue
				}
				if err := r.apply(t.Context(), "gateway", event); err != nil {
					t.Errorf("step %d: ApplySetting = %v, want nil", i, err)
				}
			}
			var got []string
			for _, row := range r.policies(t) {
				got = append(got, row.Start)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("window.start of the recorded policies (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWorkspaceEvent_InvalidPolicyIsParkedAndNotUsed(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.policy(t, `{"window":{"start":"10:00","end":"11:00"}}`)
	event := r.workspaceEvent(7, &eventv1.CallingPolicy{PolicyJson: []byte(`{"packs":["mars"]}`), Operator: "ann",
		SetInVersion: 7})
	if err := r.consume(t, event); !kafka.IsPark(err) {
		t.Errorf("the handler of workspaces.v1 = %v, want a park error", err)
	}
	if err := r.apply(t.Context(), "gateway", event); err == nil {
		t.Error("ApplySetting of an invalid policy = nil, want an error")
	}
	if got := len(r.policies(t)); got != 1 {
		t.Errorf("recorded policies = %d, want 1", got)
	}
	r.version = 7
	r.policy(t, `{"window":{"start":"12:00","end":"13:00"}}`)
	if got := len(r.policies(t)); got != 2 {
		t.Errorf("recorded policies after a valid change = %d, want 2", got)
	}
}

func TestApplySetting_RefusesWrongCallersAndInvalidEvents(t *testing.T) {
	t.Parallel()
	r := start(t)
	if got := connect.CodeOf(r.apply(t.Context(), "calls", r.workspaceEvent(1,
		nil))); got != connect.CodePermissionDenied {
		t.Errorf("ApplySetting by calls = %s, want permission_denied", got)
	}
	event := r.workspaceEvent(1, nil)
	event.WorkspaceId = "x"
	if got := connect.CodeOf(r.apply(t.Context(), "gateway", event)); got != connect.CodeInvalidArgument {
		t.Errorf("ApplySetting of workspace x = %s, want invalid_argument", got)
	}
	event = &eventv1.WorkspaceEvent{WorkspaceId: uuid.NewString(), Version: 1}
	if got := connect.CodeOf(r.apply(t.Context(), "gateway", event)); got != connect.CodeInvalidArgument {
		t.Errorf("ApplySetting without a state = %s, want invalid_argument", got)
	}
}

func TestCheckPolicy_ErrorNamesTheInvalidField(t *testing.T) {
	t.Parallel()
	r := start(t)
	client := settingsv1.NewPolicyServiceClient(http.DefaultClient, r.url,
		connect.WithInterceptors(r.peers["gateway"].ClientInterceptor(service)))
	const looser = `{"packs":["us"],"window":{"start":"07:00","end":"22:00"}%s}`
	tests := []struct {
		name   string
		policy string
		fault  string // the beginning of the error message; empty for a valid policy
	}{
		{name: "default", policy: ``},
		{name: "window", policy: `{"window":{"start":"10:00","end":"11:00"}}`},
		{name: "unknown pack", policy: `{"packs":["mars"]}`, fault: "calling_policy.packs[0] "},
		{name: "window wider than its pack", policy: strings.Replace(looser, "%s", "", 1), fault: "calling_policy.window "},
		{name: "override with an operator", policy: strings.Replace(looser, "%s",
			`,"override":{"reason":"x","operator":"eve"}`, 1),
			fault: "calling_policy.override.operator "},
		{name: "override with a reason", policy: strings.Replace(looser, "%s", `,"override":{"reason":"staff lines"}`, 1)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			checked, err := client.CheckPolicy(t.Context(), connect.NewRequest(
				&settingsv1.CheckPolicyRequest{PolicyJson: json.RawMessage(tt.policy)}))
			if err != nil {
				t.Fatalf("CheckPolicy: %v", err)
			}
			got := checked.Msg.GetFault()
			if !strings.HasPrefix(got, tt.fault) {
				t.Errorf("fault = %q, want it to begin with %q", got, tt.fault)
			}
			if (got == "") != (tt.fault == "") {
				t.Errorf("fault = %q, want it empty: %v", got, tt.fault == "")
			}
		})
	}
	if got := len(r.policies(t)); got != 0 {
		t.Errorf("recorded policies = %d, want 0", got)
	}
}
