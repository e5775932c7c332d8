package httpapi_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/proto/eventv1"
)

// The first POST fails between its hold and its commit. Then the agent's max_call_seconds is
// increased. For the second POST, billing-wallet returns the first hold, so the call must not
// become longer.
func TestCreate_RepeatedIdempotencyKeyKeepsMaxCallSecondsOfTheHold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.setMaxCallSeconds(60)
	wallet := map[string]int32{} // maps each request id to the seconds of its first hold
	var mu sync.Mutex
	interrupted := true
	r.peers.set(func(p *fakePeers) {
		p.hold = func(q *billingv1.HoldRequest) (*billingv1.HoldResponse, error) {
			mu.Lock()
			defer mu.Unlock()
			if _, ok := wallet[q.GetCallRequestId()]; !ok {
				wallet[q.GetCallRequestId()] = q.GetMaxCallSeconds()
			}
			if interrupted {
				return nil, connect.NewError(connect.CodeUnknown, errors.New("the response is lost"))
			}
			return &billingv1.HoldResponse{Result: &billingv1.HoldResponse_Held{Held: &billingv1.Held{
				AmountMicro: 500_000, Currency: "USD", MaxCallSeconds: wallet[q.GetCallRequestId()],
			}}}, nil
		}
	})
	r.want(http.StatusServiceUnavailable, http.MethodPost, "/v1/calls", r.order("idempotency_key", "k"))
	r.setMaxCallSeconds(600)
	mu.Lock()
	interrupted = false
	mu.Unlock()
	id := r.want(http.StatusAccepted, http.MethodPost, "/v1/calls", r.order("idempotency_key", "k"))["id"]

	requested := outboxEvents[eventv1.CallRequestEvent](r, kafka.CallRequests)
	if len(requested) != 1 {
		t.Fatalf("call request events = %d, want 1", len(requested))
	}
	if got := requested[0].GetCallRequestId(); got != id {
		t.Errorf("event's request = %s, want %v", got, id)
	}
	if got := requested[0].GetRequested().GetMaxCallSeconds(); got != 60 {
		t.Errorf("max_call_seconds of the order = %d, want the held 60", got)
	}
	if got := r.count(`SELECT max_call_seconds FROM call_requests WHERE id = $1`, id); got != 60 {
		t.Errorf("max_call_seconds of the request = %d, want the held 60", got)
	}
}

func (r *rig) setMaxCallSeconds(seconds int) {
	r.t.Helper()
	r.want(http.StatusOK, http.MethodPatch, r.admin("/agents/"+r.agent.String()),
		map[string]any{"max_call_seconds": seconds})
}
