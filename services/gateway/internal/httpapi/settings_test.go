package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/settingsv1"
	"ringfence.dev/services/gateway/internal/proxy"
	"ringfence.dev/services/gateway/internal/store"
)

// settingOwner is the SettingService and PolicyService of one fake service. It records the settings
// and policies that it receives.
type settingOwner struct {
	mu      sync.Mutex
	applied []*eventv1.WorkspaceEvent
	// applyHook is called for each ApplySetting. If applyHook is nil, the setting is accepted.
	applyHook func(context.Context, *eventv1.WorkspaceEvent) error
	// policyFault is the fault that CheckPolicy returns, or "" for a valid policy.
	policyFault string
	policies    []string
}

func (o *settingOwner) handler(keys *serviceauth.Keys, rest http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(settingsv1.NewSettingServiceHandler(o, keys.AllowServices(serviceauth.Gateway)))
	mux.Handle(settingsv1.NewPolicyServiceHandler(o, keys.AllowServices(serviceauth.Gateway)))
	mux.Handle("/", rest)
	return mux
}

// ApplySetting records the workspace.
func (o *settingOwner) ApplySetting(
	ctx context.Context, req *connect.Request[settingsv1.ApplySettingRequest],
) (*connect.Response[settingsv1.ApplySettingResponse], error) {
	o.mu.Lock()
	hook := o.applyHook
	o.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, req.Msg.GetWorkspace()); err != nil {
			return nil, err
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.applied = append(o.applied, req.Msg.GetWorkspace())
	return connect.NewResponse(&settingsv1.ApplySettingResponse{}), nil
}

// CheckPolicy records the policy.
func (o *settingOwner) CheckPolicy(
	_ context.Context, req *connect.Request[settingsv1.CheckPolicyRequest],
) (*connect.Response[settingsv1.CheckPolicyResponse], error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.policies = append(o.policies, string(req.Msg.GetPolicyJson()))
	return connect.NewResponse(&settingsv1.CheckPolicyResponse{Fault: o.policyFault}), nil
}

func (o *settingOwner) versions() []int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	var versions []int64
	for _, event := range o.applied {
		versions = append(versions, event.GetVersion())
	}
	return versions
}

func (o *settingOwner) onApply(apply func(context.Context, *eventv1.WorkspaceEvent) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.applyHook = apply
}

func (r *rig) events() []*eventv1.WorkspaceEvent {
	r.t.Helper()
	rows, err := r.pool.Query(r.t.Context(), "SELECT payload FROM outbox WHERE topic = 'workspaces.v1' ORDER BY id")
	if err != nil {
		r.t.Fatalf("read outbox: %v", err)
	}
	defer rows.Close()
	var events []*eventv1.WorkspaceEvent
	for rows.Next() {
		var payload []byte
		if err := rows.Scan(&payload); err != nil {
			r.t.Fatalf("read outbox: %v", err)
		}
		var event eventv1.WorkspaceEvent
		if err := proto.Unmarshal(payload, &event); err != nil {
			r.t.Fatalf("decode event: %v", err)
		}
		events = append(events, &event)
	}
	return events
}

func TestCreateWorkspace_EveryServiceAppliesTheCommittedWorkspace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace(`"calling_policy":{"packs":["us"]},"destinations":["+1"]`)
	event := r.events()[0]
	for service, owner := range r.settings {
		if len(owner.applied) != 1 {
			t.Fatalf("%s: ApplySetting calls = %d, want 1", service, len(owner.applied))
		}
		if got := owner.applied[0]; !proto.Equal(got, event) {
			t.Errorf("%s receivedRequest %v, want the event %v", service, got, event)
		}
	}
	if got := event.GetWorkspaceId(); got != id {
		t.Errorf("workspace_id = %s, want %s", got, id)
	}
	want := &eventv1.CallingPolicy{PolicyJson: []byte(`{"packs":["us"]}`), Operator: "ada", SetInVersion: 1}
	if got := event.GetWorkspace().GetCallingPolicy(); !proto.Equal(got, want) {
		t.Errorf("calling policy = %v, want %v", got, want)
	}
	if diff := cmp.Diff([]string{`{"packs":["us"]}`}, r.settings[proxy.Contacts].policies); diff != "" {
		t.Errorf("policies that were checked (-want +got):\n%s", diff)
	}
}

func TestChangeWorkspace_CommitsBeforeServicesApplyTheChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	var stored string
	r.settings[proxy.Calls].onApply(func(ctx context.Context, _ *eventv1.WorkspaceEvent) error {
		return r.pool.QueryRow(ctx, "SELECT destinations::text FROM workspaces WHERE id = $1", id).Scan(&stored)
	})
	if got := r.operator("PATCH", "/admin/v1/workspaces/"+id, `{"destinations":["+44"]}`); got.status != http.StatusOK {
		t.Fatalf("PATCH = %d %s, want 200", got.status, got.body)
	}
	if want := "{+44}"; stored != want {
		t.Errorf("destinations in the database when calls receivedRequest the change = %q, want %q", stored, want)
	}
}

func TestChangeWorkspace_OnlyServicesThatUseTheSettingMustConfirm(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	if got := r.operator("PATCH", "/admin/v1/workspaces/"+id, `{"destinations":["+44"]}`); got.status != http.StatusOK {
		t.Fatalf("PATCH = %d %s, want 200", got.status, got.body)
	}
	want := map[string][]int64{
		proxy.Calls: {1, 2}, proxy.Dialer: {1, 2}, proxy.Contacts: {1}, proxy.Wallet: {1}, proxy.Webhooks: {1},
	}
	for service, owner := range r.settings {
		if diff := cmp.Diff(want[service], owner.versions()); diff != "" {
			t.Errorf("versions that %s receivedRequest (-want +got):\n%s", service, diff)
		}
	}
}

func TestChangeWorkspace_FailedCommitAppliesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	owner := pgtest.Owner(t, r.pool, store.Schema)
	if _, err := owner.Exec(t.Context(), "ALTER TABLE outbox ADD CHECK (false) NOT VALID"); err != nil {
		t.Fatalf("make commits fail: %v", err)
	}
	got := r.operator("PATCH", "/admin/v1/workspaces/"+id,
		`{"calling_policy":{"window":{"start":"00:00","end":"24:00"}}}`)
	if got.status != http.StatusInternalServerError {
		t.Errorf("PATCH = %d %s, want 500", got.status, got.body)
	}
	if diff := cmp.Diff([]int64{1}, r.settings[proxy.Contacts].versions()); diff != "" {
		t.Errorf("versions that contacts-compliance receivedRequest (-want +got):\n%s", diff)
	}
}

func TestChangeWorkspace_UnavailableServiceGives503AndStoresTheChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	r.owners[proxy.Calls].Close()
	got := r.operator("PATCH", "/admin/v1/workspaces/"+id, `{"destinations":["+44"]}`)
	if got.status != http.StatusServiceUnavailable {
		t.Errorf("PATCH = %d %s, want 503", got.status, got.body)
	}
	if got.code() != "unavailable" {
		t.Errorf("code = %q, want unavailable", got.code())
	}
	want := "The change is stored and will be in force later: calls did not confirm it within 2 s."
	if !strings.Contains(got.body, want) {
		t.Errorf("body = %s, want the message %q", got.body, want)
	}
	if after := got.header.Get("Retry-After"); after != "2" {
		t.Errorf("Retry-After = %q, want 2", after)
	}
	if diff := cmp.Diff([]int64{1, 2}, r.settings[proxy.Dialer].versions()); diff != "" {
		t.Errorf("versions that dialer receivedRequest (-want +got):\n%s", diff)
	}
	events := r.events()
	if len(events) != 2 {
		t.Fatalf("events = %d, want 2", len(events))
	}
	if diff := cmp.Diff([]string{"+44"}, events[1].GetWorkspace().GetDestinations()); diff != "" {
		t.Errorf("destinations of the event (-want +got):\n%s", diff)
	}
	if newest := r.audit(id)[0]; newest.Outcome != "done" {
		t.Errorf("outcome of the audit row = %q, want done", newest.Outcome)
	}
	if got := r.operator("PATCH", "/admin/v1/workspaces/"+id, `{"name":"Other"}`); got.status != http.StatusOK {
		t.Errorf("PATCH of a setting that calls does not act on = %d %s, want 200", got.status, got.body)
	}
	if got := r.operator("PATCH", "/admin/v1/workspaces/"+id,
		`{"destinations":["+44"]}`); got.status != http.StatusServiceUnavailable {
		t.Errorf("the same PATCH again while calls is down = %d %s, want 503", got.status, got.body)
	}
}

func TestCreateWorkspace_UnavailableServiceGives503WithTheWorkspaceID(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.owners[proxy.Wallet].Close()
	got := r.operator("POST", "/admin/v1/workspaces", `{"name":"Acme","plan":"growth","currency":"USD"}`)
	if got.status != http.StatusServiceUnavailable {
		t.Errorf("POST = %d %s, want 503", got.status, got.body)
	}
	want := fmt.Sprintf("Workspace %s is stored and will be in force later: billing-wallet did not confirm it within 2 s.",
		r.events()[0].GetWorkspaceId())
	if !strings.Contains(got.body, want) {
		t.Errorf("body = %s, want the message %q", got.body, want)
	}
}

func TestWorkspace_InvalidCallingPolicyIsRefusedAndNotStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	const fault = "calling_policy.window.start must be before window.end (24:00 ends a day)."
	r.settings[proxy.Contacts].policyFault = fault
	for method, path := range map[string]string{"POST": "/admin/v1/workspaces", "PATCH": "/admin/v1/workspaces/" + id} {
		got := r.operator(method, path, `{"name":"B","plan":"growth","currency":"USD","calling_policy":{"window":{}}}`)
		if got.status != http.StatusUnprocessableEntity {
			t.Errorf("%s = %d %s, want 422", method, got.status, got.body)
		}
		if got.code() != "validation_error" {
			t.Errorf("%s: code = %q, want validation_error", method, got.code())
		}
		if !strings.Contains(got.body, fault) {
			t.Errorf("%s: body = %s, want the message %q", method, got.body, fault)
		}
	}
	r.owners[proxy.Contacts].Close()
	got := r.operator("PATCH", "/admin/v1/workspaces/"+id, `{"calling_policy":{"window":{}}}`)
	if got.status != http.StatusServiceUnavailable {
		t.Errorf("PATCH while contacts-compliance is down = %d %s, want 503", got.status, got.body)
	}
	if n := r.count("workspaces"); n != 1 {
		t.Errorf("workspaces = %d, want 1", n)
	}
	if n := len(r.audit(id)); n != 1 {
		t.Errorf("audit rows = %d, want 1, of the creation", n)
	}
	if n := len(r.events()); n != 1 {
		t.Errorf("events = %d, want 1, of the creation", n)
	}
}

func TestChangeWorkspace_ConcurrentChangesAreAllStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.workspace("")
	bodies := []string{
		`{"name":"N"}`, `{"max_live_calls":9}`, `{"calling_policy":{"window":{"start":"01:00"}}}`,
		`{"calling_policy":{"window":{"start":"02:00"}}}`,
	}
	var all sync.WaitGroup
	for _, body := range bodies {
		all.Go(func() {
			if got := r.operator("PATCH", "/admin/v1/workspaces/"+id, body); got.status != http.StatusOK {
				t.Errorf("PATCH %s = %d %s, want 200", body, got.status, got.body)
			}
		})
	}
	all.Wait()
	var stored struct {
		Name          string
		MaxLiveCalls  int             `json:"max_live_calls"`
		CallingPolicy json.RawMessage `json:"calling_policy"`
	}
	if err := json.Unmarshal([]byte(r.operator("GET", "/admin/v1/workspaces/"+id, "").body), &stored); err != nil {
		t.Fatalf("decode the workspace: %v", err)
	}
	if stored.Name != "N" {
		t.Errorf("name = %q, want N", stored.Name)
	}
	if stored.MaxLiveCalls != 9 {
		t.Errorf("max_live_calls = %d, want 9", stored.MaxLiveCalls)
	}
	var newest *eventv1.WorkspaceEvent
	for _, event := range r.settings[proxy.Contacts].applied {
		if event.GetVersion() > newest.GetVersion() {
			newest = event
		}
	}
	if got := string(newest.GetWorkspace().GetCallingPolicy().GetPolicyJson()); got != string(stored.CallingPolicy) {
		t.Errorf("policy of the newest version that contacts-compliance receivedRequest = %s, want the stored %s", got,
			stored.CallingPolicy)
	}
	if n := len(r.audit(id)); n != 1+len(bodies) {
		t.Errorf("audit rows = %d, want %d", n, 1+len(bodies))
	}
}

// Each change is made on one replica of the gateway. The next request on another replica must use
// the changed settings, although an earlier request has filled the caches of that replica.
func TestPublic_NextRequestOnAnotherReplicaObeysTheChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other, _ := r.replica(nil)
	request := func(key, method, path string) answered { return send(t, method, other.URL+path, key, "", nil) }
	patch := func(body string) func(id string) answered {
		return func(id string) answered { return r.operator("PATCH", "/admin/v1/workspaces/"+id, body) }
	}
	tests := []struct {
		name    string
		members string // members of the request body that creates the workspace
		path    string
		change  func(id string) answered
		before  int
		after   int
	}{
		{name: "suspend the workspace", path: "/v1/calls", change: patch(`{"status":"suspended"}`), before: 200, after: 403},
		{
			name: "remove the API feature", path: "/v1/calls", change: patch(`{"features":{"api":false}}`), before: 200,
			after: 403,
		},
		{name: "add the API feature", members: `"features":{"api":false}`, path: "/v1/calls",
			change: patch(`{"features":{"api":true}}`),
			before: 403, after: 200},
		{
			name: "change to a plan without the API", path: "/v1/calls", change: patch(`{"plan":"starter"}`), before: 200,
			after: 403,
		},
		{name: "remove the webhooks feature", path: "/v1/webhook-subscriptions",
			change: patch(`{"features":{"webhooks":false}}`),
			before: 200, after: 403},
		{name: "lower the rate limit", path: "/v1/calls", change: patch(`{"rate_limit_per_minute":1}`), before: 200,
			after: 429},
		{name: "raise the rate limit of a key above its limit", members: `"rate_limit_per_minute":1`, path: "/v1/calls",
			change: patch(`{"rate_limit_per_minute":1000000}`), before: 429, after: 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			id := r.workspace(tt.members)
			key, _ := r.key(id, "read")
			request(key, "GET", tt.path) // this request uses up the rate limit of 1 per minute
			if got := request(key, "GET", tt.path); got.status != tt.before {
				t.Fatalf("GET before the change = %d %s, want %d", got.status, got.body, tt.before)
			}
			if got := tt.change(id); got.status != http.StatusOK {
				t.Fatalf("change = %d %s, want 200", got.status, got.body)
			}
			if got := request(key, "GET", tt.path); got.status != tt.after {
				t.Errorf("GET after the change = %d %s, want %d", got.status, got.body, tt.after)
			}
		})
	}
	t.Run("revoke a key", func(t *testing.T) {
		t.Parallel()
		id := r.workspace("")
		key, keyID := r.key(id, "read")
		if got := request(key, "GET", "/v1/calls"); got.status != http.StatusOK {
			t.Fatalf("GET before the revocation = %d %s, want 200", got.status, got.body)
		}
		if got := r.operator("DELETE", "/admin/v1/workspaces/"+id+"/api-keys/"+keyID, ""); got.status != http.StatusOK {
			t.Fatalf("DELETE = %d %s, want 200", got.status, got.body)
		}
		if got := request(key, "GET", "/v1/calls"); got.status != http.StatusUnauthorized {
			t.Errorf("GET after the revocation = %d %s, want 401", got.status, got.body)
		}
	})
	t.Run("revoke a key above its rate limit", func(t *testing.T) {
		t.Parallel()
		id := r.workspace(`"rate_limit_per_minute":1`)
		key, keyID := r.key(id, "read")
		request(key, "GET", "/v1/calls")
		if got := request(key, "GET", "/v1/calls"); got.status != http.StatusTooManyRequests {
			t.Fatalf("second GET = %d %s, want 429", got.status, got.body)
		}
		if got := r.operator("DELETE", "/admin/v1/workspaces/"+id+"/api-keys/"+keyID, ""); got.status != http.StatusOK {
			t.Fatalf("DELETE = %d %s, want 200", got.status, got.body)
		}
		if got := request(key, "GET", "/v1/calls"); got.status != http.StatusUnauthorized {
			t.Errorf("GET after the revocation = %d %s, want 401", got.status, got.body)
		}
	})
}
