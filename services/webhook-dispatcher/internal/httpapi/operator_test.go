package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

func operatorPath(workspace uuid.UUID, id string) string {
	return "/admin/v1/workspaces/" + workspace.String() + "/webhook-subscriptions/" + id
}

func (h *fixture) operator(workspace uuid.UUID, method, path, body string) response {
	h.t.Helper()
	return h.do(serviceauth.Caller{WorkspaceID: workspace, Operator: "ann"}, method, path, body)
}

func TestOperator_CanPauseResumeAndDeleteASubscription(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	path := operatorPath(p.ws, p.sub)
	queued := p.event(uuid.New(), 1)

	for _, step := range []struct{ status, delivery string }{
		{status: "paused", delivery: "held"},
		{status: "active", delivery: "queued"},
	} {
		got := p.fixture.operator(p.ws, http.MethodPatch, path, `{"status":"`+step.status+`"}`)
		if got.status != http.StatusOK {
			t.Fatalf("PATCH to %s = %d %v, want 200", step.status, got.status, got.body)
		}
		if got.text("status") != step.status {
			t.Errorf("status after PATCH = %q, want %q", got.text("status"), step.status)
		}
		row := p.fixture.operator(p.ws, http.MethodGet, path+"/deliveries/"+queued.String(), "")
		if row.text("status") != step.delivery {
			t.Errorf("delivery of a subscription set to %s = %q, want %q", step.status, row.text("status"), step.delivery)
		}
	}

	got := p.fixture.operator(p.ws, http.MethodDelete, path, "")
	if got.status != http.StatusOK {
		t.Fatalf("DELETE = %d %v, want 200", got.status, got.body)
	}
	if got.text("id") != p.sub {
		t.Errorf("id of the deleted subscription = %q, want %q", got.text("id"), p.sub)
	}
	if got.body["deleted"] != true {
		t.Errorf("deleted = %v, want true", got.body["deleted"])
	}
	if after := p.fixture.operator(p.ws, http.MethodGet, path, ""); after.status != http.StatusNotFound {
		t.Errorf("GET after DELETE = %d, want 404", after.status)
	}
}

func TestOperator_ReplayWorksAfterResumingAFailedSubscription(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	p.event(uuid.New(), 1)
	p.sendAll(deliveries.OutcomeFailed)
	const fail = `
		UPDATE subscriptions SET status = 'failed', failed_at = now(), failed_reason = 'test' WHERE id = $1`
	if _, err := p.pool.Exec(t.Context(), fail, p.sub); err != nil {
		t.Fatal(err)
	}
	replay := `{"status":"failed",` + longAgo + `}`
	if got := p.replay(replay); got.code() != "subscription_not_active" {
		t.Fatalf("replay to a failed subscription = %d %v, want subscription_not_active", got.status, got.body)
	}

	resumed := p.fixture.operator(p.ws, http.MethodPatch, operatorPath(p.ws, p.sub), `{"status":"active"}`)
	if resumed.status != http.StatusOK {
		t.Fatalf("PATCH to active = %d %v, want 200", resumed.status, resumed.body)
	}
	if resumed.body["flag"] != nil {
		t.Errorf("flag after the resumption = %v, want null", resumed.body["flag"])
	}
	if got := p.replay(replay); got.body["replayed"] != 1.0 {
		t.Errorf("replay after the resumption = %d %v, want 1 replayed", got.status, got.body)
	}
}

func TestOperator_InvalidStatusChangesAreRejected(t *testing.T) {
	t.Parallel()
	h, ws := newFixture(t), uuid.New()
	id, _ := h.create(ws)
	for range 4 {
		h.create(ws)
	}
	tests := []struct {
		name      string
		workspace uuid.UUID
		id, body  string
		status    int
		code      string
	}{
		{name: "body without a status", workspace: ws, id: id, body: `{}`, status: 422, code: "validation_error"},
		{name: "empty body", workspace: ws, id: id, body: ``, status: 422, code: "validation_error"},
		{name: "status failed", workspace: ws, id: id, body: `{"status":"failed"}`, status: 422, code: "invalid_action"},
		{name: "unknown status", workspace: ws, id: id, body: `{"status":"on"}`, status: 422, code: "invalid_status"},
		{name: "status null", workspace: ws, id: id, body: `{"status":null}`, status: 422, code: "invalid_status"},
		{name: "status that is a number", workspace: ws, id: id, body: `{"status":1}`, status: 422, code: "invalid_status"},
		{name: "subscription of another workspace", workspace: uuid.New(), id: id, body: `{`, status: 404, code: "not_found"},
		{name: "subscription id that is not a UUID", workspace: ws, id: "nope", body: `{`, status: 404, code: "not_found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := h.operator(tt.workspace, http.MethodPatch, operatorPath(tt.workspace, tt.id), tt.body)
			if got.status != tt.status {
				t.Errorf("PATCH %s = %d, want %d", tt.body, got.status, tt.status)
			}
			if got.code() != tt.code {
				t.Errorf("PATCH %s: code = %q, want %q", tt.body, got.code(), tt.code)
			}
		})
	}

	path := operatorPath(ws, id)
	if got := h.operator(ws, http.MethodPatch, path, `{"status":"paused"}`); got.status != http.StatusOK {
		t.Fatalf("pause = %d %v, want 200", got.status, got.body)
	}
	h.create(ws)
	if got := h.operator(ws, http.MethodPatch, path, `{"status":"active"}`); got.code() != "subscription_limit_reached" {
		t.Errorf("resumption of a sixth subscription = %d %v, want subscription_limit_reached", got.status, got.body)
	}
	for _, method := range []string{http.MethodPatch, http.MethodDelete} {
		if got := h.customer(ws, method, path, `{"status":"active"}`); got.status != http.StatusUnauthorized {
			t.Errorf("%s with a customer's token = %d, want 401", method, got.status)
		}
	}
}

func TestSetWorkspace_KeepsTheFailureCountersOfSubscriptions(t *testing.T) {
	t.Parallel()
	p := newReplayFixture(t)
	p.event(uuid.New(), 1)
	p.sendAll(deliveries.OutcomeDelivered)
	p.event(uuid.New(), 2)
	p.sendAll(deliveries.OutcomeFailed)
	p.event(uuid.New(), 3) // this delivery is held while the subscription is paused, and then queued again
	health := func() string {
		view := p.fixture.operator(p.ws, http.MethodGet, operatorPath(p.ws, p.sub), "").body
		return fmt.Sprint(view["consecutive_failures"], view["last_success_at"], view["last_failure_at"], view["last_error"])
	}
	want := health()
	for version, suspended := range []bool{true, false} {
		err := pgx.BeginFunc(t.Context(), p.pool, func(tx pgx.Tx) error {
			workspace := store.Workspace{ID: p.ws, Version: int64(version + 1), Suspended: suspended, Webhooks: true}
			_, err := p.store.SetWorkspace(t.Context(), tx, workspace)
			return err
		})
		if err != nil {
			t.Fatalf("SetWorkspace with suspended %v: %v", suspended, err)
		}
		if got := health(); got != want {
			t.Errorf("health with suspended %v = %s, want %s", suspended, got, want)
		}
	}
}
