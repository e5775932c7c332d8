package httpapi_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
)

func (r *rig) pricedCall() *account {
	r.t.Helper()
	a := r.account(uuid.Nil)
	a.call.Priced = true
	return a
}

// The events of different topics can arrive in any order.
func TestInbound_ShowsTheFirstChargeInAnyOrderOfEvents(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		events func(*account) []proto.Message
		want   any
	}{
		{
			name: "the charge arrives after the end", want: 0.005,
			events: func(a *account) []proto.Message {
				return []proto.Message{a.ended("completed", "normal_clearing"), a.analysed(), a.captured(5000)}
			},
		},
		{
			name: "the charge arrives before the first event of the call", want: 0.005,
			events: func(a *account) []proto.Message {
				return []proto.Message{a.captured(5000), a.ended("completed", "normal_clearing"), a.analysed()}
			},
		},
		{
			name: "the charge arrives before the first event, which was published without a price", want: 0.005,
			events: func(a *account) []proto.Message {
				a.call.Priced = false
				return []proto.Message{a.captured(5000), a.ended("completed", "normal_clearing"), a.analysed()}
			},
		},
		{
			name: "nothing is charged", want: nil,
			events: func(a *account) []proto.Message {
				return []proto.Message{a.ended("completed", "normal_clearing"), a.analysed(), a.released()}
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.pricedCall()
			a.publish(tt.events(a)...)
			if got := r.types(); !slices.Equal(got, []string{"call.completed"}) {
				t.Errorf("events = %v, want call.completed", got)
			}
			if got := a.read()["credits_charged"]; got != tt.want {
				t.Errorf("credits_charged = %v, want %v", got, tt.want)
			}
			a.publish(a.captured(9000), a.released())
			if got := a.read()["credits_charged"]; got != tt.want && tt.want != nil {
				t.Errorf("credits_charged after a second charge = %v, want %v", got, tt.want)
			}
			var waiting int
			if err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM inbound_charges").Scan(&waiting); err != nil {
				t.Fatal(err)
			}
			if waiting != 0 {
				t.Errorf("stored charges without a call = %d, want 0", waiting)
			}
		})
	}
}

func TestInbound_ChargeOfAnotherWorkspaceIsNotShown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.pricedCall()
	foreign := a.captured(9000)
	foreign.WorkspaceId = newID(t).String()
	a.publish(foreign) // the call is not known yet
	a.publish(a.ended("completed", "normal_clearing"), a.analysed())
	if err := r.applyEvent(kafka.WalletEvents, a.id(), foreign); !kafka.IsPark(err) {
		t.Errorf("charge of a known call: %v, want it parked", err)
	}
	if got := a.read()["credits_charged"]; got != nil {
		t.Errorf("credits_charged = %v, want null", got)
	}
	a.publish(a.captured(5000))
	if got := a.read()["credits_charged"]; got != 0.005 {
		t.Errorf("credits_charged = %v, want 0.005", got)
	}
}

func TestInbound_CompletedEventWaitsForTheCharge(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.pricedCall()
	a.publish(a.ringing(), a.answered(), a.ended("completed", "normal_clearing"), a.analysed())
	if got := r.types(); !slices.Equal(got, []string{"call.ringing", "call.answered"}) {
		t.Errorf("events before the charge = %v, want call.ringing and call.answered", got)
	}
	a.publish(a.captured(5000))
	if got := r.types(); !slices.Equal(got, []string{"call.ringing", "call.answered", "call.completed"}) {
		t.Errorf("events = %v, want call.completed at the end", got)
	}
}

func TestInbound_RefusedCallIsListedAsBusy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.pricedCall()
	a.publish(a.ringing(), a.ended("busy", "user_busy"))
	if got := r.types(); !slices.Equal(got, []string{"call.ringing", "call.busy"}) {
		t.Errorf("events = %v, want call.ringing and call.busy", got)
	}
	page := r.want(200, "GET", "/v1/calls?direction=inbound&status=busy", nil)["data"].([]any)
	if len(page) != 1 {
		t.Fatalf("busy inbound calls = %d, want 1", len(page))
	}
	if got := a.read()["credits_charged"]; got != nil {
		t.Errorf("credits_charged = %v, want null", got)
	}
}

// billing-wallet does not know how the call of a hold ended. The dialer has to publish the end
// again.
func TestInbound_UnconfirmedHoldIsForwardedToTheDialer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.pricedCall()
	a.publish(&eventv1.WalletEvent{WorkspaceId: r.workspace.String(), Event: &eventv1.WalletEvent_Unconfirmed{
		Unconfirmed: &eventv1.Unconfirmed{CallId: a.id()},
	}})
	var payload []byte
	const query = "SELECT payload FROM outbox WHERE topic = $1 AND convert_from(key, 'UTF8') = $2"
	if err := r.pool.QueryRow(t.Context(), query, kafka.CallRequests.Name, a.id()).Scan(&payload); err != nil {
		t.Fatal(err)
	}
	var event eventv1.CallRequestEvent
	if err := proto.Unmarshal(payload, &event); err != nil {
		t.Fatal(err)
	}
	if got := event.GetInboundUnconfirmed().GetCallId(); got != a.id() {
		t.Errorf("call_id = %q, want %s", got, a.id())
	}
	if got := event.GetWorkspaceId(); got != r.workspace.String() {
		t.Errorf("workspace_id = %q, want %s", got, r.workspace)
	}
	var abandoned int
	if err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM abandoned_requests").Scan(&abandoned); err != nil {
		t.Fatal(err)
	}
	if abandoned != 0 {
		t.Errorf("abandoned requests = %d, want 0", abandoned)
	}
}
