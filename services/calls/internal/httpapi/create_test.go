package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/proto/eventv1"
)

func TestCreate_StoresTheRequestAndPublishesItOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want(http.StatusOK, "PATCH", r.admin("/agents/"+r.agent.String()), map[string]any{"max_call_seconds": 90})
	body := r.want(http.StatusAccepted, "POST", "/v1/calls", r.order("external_ref", "order-1042", "variables", map[string]any{"a": 1}))
	keys := []string{}
	for k := range body {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if got, want := strings.Join(keys, " "), "agent_id call_id completed_at created_at dialed_at error_code error_detail external_ref id scheduled_for status to updated_at"; got != want {
		t.Errorf("fields = %s, want %s", got, want)
	}
	testkit.Members(t, "request", body, map[string]any{
		"status": "queued", "external_ref": "order-1042", "call_id": nil,
	})
	ordered := outboxEvents[eventv1.CallRequestEvent](r, kafka.CallRequests)
	if len(ordered) != 1 {
		t.Fatalf("events = %v, want one", ordered)
	}
	order := ordered[0].GetRequested()
	if order.GetToE164() != "+14155550100" {
		t.Errorf("order.GetToE164() = %q, want \"+14155550100\"", order.GetToE164())
	}
	if order.GetMaxCallSeconds() != 90 {
		t.Errorf("order.GetMaxCallSeconds() = %v, want 90", order.GetMaxCallSeconds())
	}
	if string(order.GetVariablesJson()) != `{"a":1}` {
		t.Errorf("order: string(order.GetVariablesJson()) = %q, want %q", string(order.GetVariablesJson()), `{"a":1}`)
	}
	if order.GetExternalRef() != "order-1042" {
		t.Errorf("order.GetExternalRef() = %q, want \"order-1042\"", order.GetExternalRef())
	}
	if order.GetAgentId() != r.agent.String() {
		t.Errorf("order.GetAgentId() = %v, want %v", order.GetAgentId(), r.agent.String())
	}
	if order.GetContactId() == "" {
		t.Errorf("order.GetContactId() is empty")
	}
	if !order.GetScheduledFor().AsTime().Equal(order.GetQueuedAt().AsTime()) {
		t.Errorf("order.GetScheduledFor().AsTime().Equal(order.GetQueuedAt().AsTime()) = false, want true")
	}
	if held := r.peers.heldIDs(); len(held) != 1 {
		t.Errorf("holds: length of held = %d, want 1", len(held))
	} else if held[0] != body["id"] {
		t.Errorf("holds: held[0] = %v, want %v", held[0], body["id"])
	}
}

// Some bodies contain two faults. The response must report the fault that comes first in the order
// of checks of the API reference.
func TestCreate_RefusedRequestStoresNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.mustDeliver(kafka.Workspaces, r.workspace.String(), &eventv1.WorkspaceEvent{
		WorkspaceId: r.workspace.String(), Version: 3,
		Event: &eventv1.WorkspaceEvent_Workspace{Workspace: &eventv1.Workspace{Currency: "USD", Destinations: []string{"+1", "+44"}}},
	})
	other := newID(t)
	broke := func(*billingv1.HoldRequest) (*billingv1.HoldResponse, error) {
		return &billingv1.HoldResponse{Result: &billingv1.HoldResponse_Insufficient{Insufficient: &billingv1.Insufficient{Message: "Top up."}}}, nil
	}
	tests := []struct {
		name, code, field string
		status            int
		body              any
		set               func(*fakePeers)
	}{
		{name: "truncated JSON", status: 422, code: "validation_error", body: `{"agent_id":`},
		{name: "an array", status: 422, code: "validation_error", body: `[]`},
		{name: "no body", status: 422, code: "validation_error", body: ``},
		{name: "an empty idempotency key",
			status: 422, code: "validation_error", field: "idempotency_key", body: map[string]any{"idempotency_key": ""}},
		{name: "an idempotency key that is a number",
			status: 422, code: "validation_error", field: "idempotency_key", body: map[string]any{"idempotency_key": 5}},
		{name: "an idempotency key with an umlaut",
			status: 422, code: "validation_error", field: "idempotency_key", body: map[string]any{"idempotency_key": "ü"}},
		{name: "an idempotency key of 256 characters",
			status: 422, code: "validation_error", field: "idempotency_key",
			body: map[string]any{"idempotency_key": strings.Repeat("k", 256)}},
		{name: "no agent", status: 422, code: "validation_error", field: "agent_id", body: map[string]any{"to": "+1"}},
		{name: "an agent_id that is no UUID",
			status: 422, code: "validation_error", field: "agent_id", body: map[string]any{"to": "+1", "agent_id": "x"}},
		{name: "no phone number",
			status: 422, code: "validation_error", field: "to", body: map[string]any{"agent_id": other}},
		{name: "a phone number that is a JSON number",
			status: 422, code: "validation_error", field: "to", body: map[string]any{"agent_id": other, "to": 14155550100}},
		{name: "a contact_id that is no UUID",
			status: 422, code: "validation_error", field: "contact_id", body: r.order("contact_id", "x")},
		{name: "variables that are no object", status: 422, code: "validation_error", field: "variables", body: r.order("variables", []int{1})},
		{name: "an external_ref over 255 characters",
			status: 422, code: "validation_error", field: "external_ref",
			body: r.order("external_ref", strings.Repeat("x", 256))},
		{name: "scheduled_for without an offset",
			status: 422, code: "validation_error", field: "scheduled_for",
			body: r.order("scheduled_for", "2026-06-04T09:00:00")},
		{name: "scheduled_for 367 days ahead",
			status: 422, code: "validation_error", field: "scheduled_for",
			body: r.order("scheduled_for", time.Now().AddDate(0, 0, 367))},
		{name: "schedule_if_outside_hours that is a string",
			status: 422, code: "validation_error", field: "schedule_if_outside_hours",
			body: r.order("schedule_if_outside_hours", "yes")},
		{name: "an invalid field is reported before a malformed number", status: 422, code: "validation_error",
			field: "variables", body: r.order("to", "123", "variables", 1)},
		{name: "a malformed number is reported before an unknown agent", status: 422, code: "invalid_phone",
			body: r.order("to", "14155550100", "agent_id", other)},
		{name: "a premium number is reported before an unknown agent", status: 422, code: "validation_error", field: "to",
			body: r.order("to", "+19005550100", "agent_id", other)},
		{name: "a forbidden destination is reported before an unknown agent",
			status: 422, code: "validation_error", field: "to",
			body: r.order("to", "+4915112345678", "agent_id", other)},
		{name: "an unknown agent is reported before a refusing gate", status: 422, code: "invalid_agent",
			body: r.order("agent_id", other), set: func(p *fakePeers) { p.preCheck = refuse("recipient_dnd") }},
		{name: "an unknown contact", status: 422, code: "invalid_contact", body: r.order(),
			set: func(p *fakePeers) { p.preCheck = refuse("invalid_contact") }},
		{name: "a refusing gate is reported before an empty wallet", status: 422, code: "recipient_dnd", body: r.order(),
			set: func(p *fakePeers) { p.preCheck, p.hold = refuse("recipient_dnd"), broke }},
		{name: "an empty wallet", status: 402, code: "insufficient_credits", body: r.order(),
			set: func(p *fakePeers) { p.hold = broke }},
		{name: "contacts-compliance down", status: 503, code: "unavailable", body: r.order(),
			set: func(p *fakePeers) { p.preCheck = down[compliancev1.PreCheckRequest, compliancev1.PreCheckResponse] }},
		{name: "billing-wallet down", status: 503, code: "unavailable", body: r.order(),
			set: func(p *fakePeers) { p.hold = down[billingv1.HoldRequest, billingv1.HoldResponse] }},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.peers.set(func(p *fakePeers) {
				p.preCheck, p.hold = allow, held
				if tt.set != nil {
					tt.set(p)
				}
			})
			key := fmt.Sprintf("key-%d", i)
			a := r.do("POST", "/v1/calls", tt.body, "Idempotency-Key", key)
			if a.status != tt.status {
				t.Errorf("answer: a.status = %v, want %v", a.status, tt.status)
			}
			if a.code() != tt.code {
				t.Errorf("answer: a.code() = %v, want %v", a.code(), tt.code)
			}
			if !strings.HasPrefix(a.message(), tt.field) {
				t.Errorf("answer: a.message() = %q, want it to begin with %q", a.message(), tt.field)
			}
			if n := r.count(`SELECT count(*) FROM call_requests`); n != 0 {
				t.Fatalf("requests after the refusals = %d, want 0", n)
			}
			if (a.header.Get("Retry-After") != "") != (tt.status == 503) {
				t.Errorf("Retry-After = %q with %d", a.header.Get("Retry-After"), a.status)
			}
			r.peers.set(func(p *fakePeers) { p.preCheck, p.hold = allow, held })
			if a = r.do("POST", "/v1/calls", r.order(), "Idempotency-Key", key); a.status != http.StatusAccepted {
				t.Errorf("the key again, now good = %d %v, want 202: the refusal used it up", a.status, a.body)
			}
			r.exec(`DELETE FROM call_requests`)
			r.exec(`DELETE FROM idempotency_keys`)
		})
	}
}

func down[Q, A any](*Q) (*A, error) {
	return nil, connect.NewError(connect.CodeUnknown, errors.New("its database is away"))
}

func TestCreate_RepeatedKeyReturnsTheOriginalRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.want(http.StatusAccepted, "POST", "/v1/calls", r.order("idempotency_key", "order-1042"))
	tests := []struct {
		name, header string
		body         any
	}{
		{"the same body", "", r.order("idempotency_key", "order-1042")},
		{"other fields of the body are not checked", "", map[string]any{"idempotency_key": "order-1042", "to": 5}},
		{"another number still returns the original", "", r.order("idempotency_key", "order-1042", "to", "+14155550199")},
		{"the header is used if the body has no key", "order-1042", r.order()},
		{"a null key in the body counts as absent", "order-1042", r.order("idempotency_key", nil)},
		{"the key in the body has precedence over the header", "another", r.order("idempotency_key", "order-1042")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			header := []string{}
			if tt.header != "" {
				header = []string{"Idempotency-Key", tt.header}
			}
			if a := r.do("POST", "/v1/calls", tt.body, header...); a.status != http.StatusOK {
				t.Errorf("answer: a.status = %v, want %v; a.body = %v", a.status, http.StatusOK, a.body)
			} else if got := a.id(); got != first["id"] {
				t.Errorf("answer: a.id() = %v, want %v; a.body = %v", got, first["id"], a.body)
			}
		})
	}
	r.want(http.StatusOK, "POST", "/v1/call-requests/"+first["id"].(string)+"/cancel", nil)
	if a := r.do("POST", "/v1/calls", r.order("idempotency_key", "order-1042")); a.body["status"] != "canceled" {
		t.Errorf("replay = %v, want the request as it is now", a.body)
	}
	if a := r.doAs(newID(t), "POST", "/v1/calls", r.order("idempotency_key", "order-1042")); a.code() != "invalid_agent" {
		t.Errorf("another workspace's POST = %d %v, want its own try", a.status, a.body)
	}
	if n := len(r.peers.heldIDs()); n != 1 {
		t.Errorf("%d holds, want 1", n)
	}
}

func TestCreate_FiftyConcurrentPOSTsCreateOneRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	statuses, ids := make([]int, 50), make([]string, 50)
	var all sync.WaitGroup
	for i := range statuses {
		all.Go(func() {
			a := r.do("POST", "/v1/calls", r.order("idempotency_key", "k"))
			statuses[i], ids[i] = a.status, a.id()
			want := map[int]string{http.StatusOK: "true", http.StatusAccepted: ""}[a.status]
			if got := a.header.Get(replayed); got != want {
				t.Errorf("%s beside %d = %q, want %q", replayed, a.status, got, want)
			}
		})
	}
	all.Wait()
	slices.Sort(statuses)
	if statuses[48] != http.StatusOK {
		t.Errorf("statuses[48] = %v, want %v", statuses[48], http.StatusOK)
	}
	if statuses[49] != http.StatusAccepted {
		t.Errorf("statuses[49] = %v, want %v", statuses[49], http.StatusAccepted)
	}
	if statuses[0] != http.StatusOK {
		t.Errorf("statuses[0] = %v, want %v", statuses[0], http.StatusOK)
	}
	if slices.Sort(ids); ids[0] != ids[49] {
		t.Errorf("ids = %v, want one", ids)
	}
	if n := r.count(`SELECT count(*) FROM outbox WHERE topic = 'call-requests.v1'`); n != 1 {
		t.Errorf("%d orders, want 1", n)
	}
}

// contacts-compliance stores the decision about a refused destination. This pre-check must not
// change the contact, so the pre-check contains no variables.
func TestCreate_RefusedDestinationStoresADecision(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.mustDeliver(kafka.Workspaces, r.workspace.String(), &eventv1.WorkspaceEvent{
		WorkspaceId: r.workspace.String(),
		Version:     3,
		Event: &eventv1.WorkspaceEvent_Workspace{
			Workspace: &eventv1.Workspace{Currency: "USD", Destinations: []string{"+1"}},
		},
	})
	for _, tt := range []struct{ name, to string }{
		{name: "a premium number", to: "+19005550100"},
		{name: "outside of the destinations", to: "+4915112345678"},
	} {
		r.peers.set(func(p *fakePeers) { p.preChecks = nil })
		a := r.do("POST", "/v1/calls", r.order("to", tt.to, "variables", map[string]any{"a": 1}))
		if a.code() != "validation_error" {
			t.Errorf("%s: code = %q, want validation_error", tt.name, a.code())
		}
		asked := r.peers.preChecks
		if len(asked) != 1 {
			t.Fatalf("%s: pre-checks = %d, want 1", tt.name, len(asked))
		}
		if asked[0].GetToE164() != tt.to {
			t.Errorf("%s: number of the pre-check = %q, want %q", tt.name, asked[0].GetToE164(), tt.to)
		}
		if got := asked[0].GetDestinations().GetPrefixes(); len(got) == 0 {
			t.Errorf("%s: destinations of the pre-check = %v, want those of the workspace", tt.name, got)
		}
		if got := asked[0].GetVariablesJson(); len(got) != 0 {
			t.Errorf("%s: variables of the pre-check = %s, want none", tt.name, got)
		}
	}
	r.peers.set(func(p *fakePeers) { p.preCheck = down[compliancev1.PreCheckRequest, compliancev1.PreCheckResponse] })
	a := r.do("POST", "/v1/calls", r.order("to", "+19005550100"))
	if a.status != http.StatusServiceUnavailable {
		t.Errorf("status while contacts-compliance is down = %d, want 503", a.status)
	}
}

func TestCreate_WaitingPOSTClaimsTheKeyAfterARefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	entered, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.peers.set(func(p *fakePeers) {
		p.preCheck = func(q *compliancev1.PreCheckRequest) (*compliancev1.PreCheckResponse, error) {
			first := false
			once.Do(func() { first = true })
			if !first {
				return allow(q)
			}
			close(entered)
			<-release
			return refuse("recipient_dnd")(q)
		}
	})
	answers := make(chan answer, 2)
	post := func() { answers <- r.do("POST", "/v1/calls", r.order("idempotency_key", "k")) }
	go post()
	<-entered
	go post()
	close(release)
	got := []int{(<-answers).status, (<-answers).status}
	slices.Sort(got)
	if !slices.Equal(got, []int{202, 422}) {
		t.Errorf("statuses = %v, want the first refused and the waiter accepted", got)
	}
}

func TestCreate_TooLongWaitForAnotherPOSTReturns503(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *settings) { s.intake.Wait = 50 * time.Millisecond })
	r.claimKey("k", newID(t), time.Minute)
	a := r.do("POST", "/v1/calls", r.order("idempotency_key", "k"))
	if a.status != http.StatusServiceUnavailable {
		t.Errorf("answer: a.status = %v, want %v", a.status, http.StatusServiceUnavailable)
	}
	if a.code() != "unavailable" {
		t.Errorf("answer: a.code() = %q, want \"unavailable\"", a.code())
	}
	if a.header.Get("Retry-After") == "" {
		t.Errorf("answer: Retry-After is empty")
	}
}

// claimKey stores the state that remains if a POST is killed after it claimed its key.
func (r *rig) claimKey(key string, id uuid.UUID, lease time.Duration) {
	r.t.Helper()
	// Create a request with r.order(), so that the INSERT below can copy its fingerprint.
	a := r.do("POST", "/v1/calls", r.order("idempotency_key",
		"shape of "+key))
	if a.status != http.StatusAccepted {
		r.t.Fatal(a.body)
	}
	r.exec(`INSERT INTO idempotency_keys (workspace_id, key, request_id, fingerprint, epoch, leased_until)
		SELECT workspace_id, $1, $2, fingerprint, 1, now() + $3::interval FROM idempotency_keys WHERE key = 'shape of ' || $1`, key, id, lease)
	r.exec(`DELETE FROM call_requests WHERE id = $1`, a.id())
	r.exec(`DELETE FROM idempotency_keys WHERE request_id = $1`, a.id())
	r.exec(`DELETE FROM outbox WHERE topic = 'call-requests.v1'`)
	r.peers.set(func(p *fakePeers) { p.holds, p.preChecks = nil, nil })
}

func TestCreate_ExpiredClaimIsTakenOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	died := newID(t)
	r.claimKey("k", died, 300*time.Millisecond)
	first := r.want(http.StatusAccepted, "POST", "/v1/calls", r.order("idempotency_key", "k"))
	if first["id"] != died.String() {
		t.Errorf(`first["id"] = %q, want %q`, first["id"], died.String())
	} else if !slices.Equal(r.peers.heldIDs(), []string{died.String()}) {
		t.Errorf("r.peers.heldIDs() = %v, want %v", r.peers.heldIDs(), []string{died.String()})
	}
	r.claimKey("other", newID(t), -time.Second)
	second := r.want(http.StatusAccepted, "POST", "/v1/calls", r.order("idempotency_key", "other", "to", "+14155550177"))
	if n := r.count(`SELECT count(*) FROM idempotency_keys WHERE key = 'other' AND request_id = $1 AND done`,
		second["id"]); n != 1 {
		t.Errorf("count: n = %v, want 1", n)
	} else if second["to"] != "+14155550177" {
		t.Errorf(`count: second["to"] = %q, want "+14155550177"`, second["to"])
	}
}

func TestCreate_RepeatedPOSTAfterAFailedHoldUsesTheSameRequestID(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.peers.set(func(p *fakePeers) { p.hold = down[billingv1.HoldRequest, billingv1.HoldResponse] })
	if a := r.do("POST", "/v1/calls", r.order("idempotency_key", "k")); a.status != http.StatusServiceUnavailable {
		t.Fatalf("answer = %d, want 503", a.status)
	}
	r.peers.set(func(p *fakePeers) { p.hold = held })
	again := r.want(http.StatusAccepted, "POST", "/v1/calls", r.order("idempotency_key", "k"))
	for _, id := range r.peers.heldIDs() {
		if id != again["id"] {
			t.Errorf("request ids of holds = %v, want only %v", r.peers.heldIDs(), again["id"])
		}
	}
}

func TestCreate_POSTThatLostItsClaimStoresNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.peers.set(func(p *fakePeers) {
		p.hold = func(q *billingv1.HoldRequest) (*billingv1.HoldResponse, error) {
			// another POST takes over the key during the hold
			r.exec(`UPDATE idempotency_keys SET request_id = gen_random_uuid()`)
			return held(q)
		}
	})
	if a := r.do("POST", "/v1/calls", r.order("idempotency_key", "k")); a.status != http.StatusServiceUnavailable {
		t.Errorf("answer = %d %v, want 503", a.status, a.body)
	}
	if n := r.count(`SELECT (SELECT count(*) FROM call_requests) + (SELECT count(*) FROM outbox WHERE topic = 'call-requests.v1')`); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

func TestCreate_SlowPOSTAndItsTakeoverCreateOneRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *settings) { s.intake.Lease = 50 * time.Millisecond })
	var first sync.Once
	release := make(chan struct{})
	r.peers.set(func(p *fakePeers) {
		p.hold = func(q *billingv1.HoldRequest) (*billingv1.HoldResponse, error) {
			slow := false
			first.Do(func() { slow = true })
			if slow {
				<-release
			}
			return held(q)
		}
	})
	slow := make(chan answer, 1)
	go func() { slow <- r.do("POST", "/v1/calls", r.order("idempotency_key", "k")) }()
	testkit.Until(t, "the first hold", func() bool { return len(r.peers.heldIDs()) == 1 })
	quick := r.want(http.StatusAccepted, "POST", "/v1/calls", r.order("idempotency_key", "k"))
	close(release)
	if a := <-slow; a.status != http.StatusOK {
		t.Errorf("the slow one: a.status = %v, want %v; a.body = %v", a.status, http.StatusOK, a.body)
	} else if got := a.id(); got != quick["id"] {
		t.Errorf("the slow one: a.id() = %v, want %v; a.body = %v", got, quick["id"], a.body)
	}
	if n := r.count(`SELECT count(*) FROM call_requests`); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

func TestCreate_IsRefusedWhileEventsCannotBePublished(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.backlog.Store(int64(9 * time.Minute))
	r.place()
	r.backlog.Store(int64(11 * time.Minute))
	if a := r.do("POST", "/v1/calls", r.order()); a.status != http.StatusServiceUnavailable {
		t.Errorf("answer = %d %v, want 503", a.status, a.body)
	}
	r.want(http.StatusOK, "GET", "/v1/calls", nil)
}

func TestDeleteExpiredKeys_KeepsKeysOfRecentRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	young, old := r.place("idempotency_key", "young"), r.place("idempotency_key", "old")
	r.want(http.StatusOK, "POST", "/v1/call-requests/"+young.String()+"/cancel", nil)
	r.want(http.StatusOK, "POST", "/v1/call-requests/"+old.String()+"/cancel", nil)
	r.exec(`UPDATE call_requests SET completed_at = now() - interval '31 days' WHERE id = $1`, old)
	r.exec(`UPDATE idempotency_keys SET leased_until = now() - interval '1 second'`)
	freed, err := r.store.DeleteExpiredKeys(t.Context(), uuid.Max, 30*24*time.Hour, 10)
	if err != nil {
		t.Fatal(err)
	}
	if freed != 1 {
		t.Errorf("freed = %v, want 1", freed)
	}
	if r.count(`SELECT count(*) FROM idempotency_keys WHERE key = 'young'`) != 1 {
		t.Errorf("r.count(`SELECT count(*) FROM idempotency_keys WHERE key = 'young'`) = %v, want 1",
			r.count(`SELECT count(*) FROM idempotency_keys WHERE key = 'young'`))
	}
	if _, err = r.store.KeyState(t.Context(), r.workspace, "old"); !errors.Is(err, pg.ErrNotFound) {
		t.Errorf("old key: %v, want it free", err)
	}
}

// The dialer does not apply the features of the workspace's plan to a request that a person placed.
func TestCreate_EventStatesWhetherAPersonPlacedTheRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ofKey := r.place()
	token, err := r.gateway.SignCaller("calls", serviceauth.Caller{
		WorkspaceID: r.workspace, RequestID: newID(t), Access: serviceauth.Write, Operator: "person:" + newID(t).String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	placed := r.want(http.StatusAccepted, "POST", "/v1/calls", r.order("to", number(2)), serviceauth.CallerHeader, token)
	ofPerson := uuid.MustParse(placed["id"].(string))
	r.exec(`UPDATE call_requests SET scheduled_for = now() - interval '1 hour'`)
	r.republish(15 * time.Minute)
	got := map[string][]bool{}
	for _, event := range outboxEvents[eventv1.CallRequestEvent](r, kafka.CallRequests) {
		got[event.GetCallRequestId()] = append(got[event.GetCallRequestId()], event.GetRequested().GetByPerson())
	}
	want := map[string][]bool{ofKey.String(): {false, false}, ofPerson.String(): {true, true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by_person of the events of each request (-want +got):\n%s", diff)
	}
}
