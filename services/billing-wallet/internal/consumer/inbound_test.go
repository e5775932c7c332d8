package consumer_test

import (
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/money"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/holds"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

// holdInbound makes a hold of 0.3 credits for an inbound call that costs 0.03 credits per minute.
func (s *service) holdInbound(workspace, call uuid.UUID) {
	s.Helper()
	order := holds.Order{RequestID: call, WorkspaceID: workspace, MaxCallSeconds: 600,
		Inbound: &holds.Rate{PerMinute: 30_000, IncrementSeconds: 6}}
	decisions, err := s.store.Hold(s.Context(), workspace, []holds.Order{order})
	if err != nil {
		s.Fatalf("Hold: %v", err)
	}
	if decisions[0].Err != nil {
		s.Fatalf("Hold: %v", decisions[0].Err)
	}
}

func inboundEvent(call, workspace uuid.UUID, event any, seconds int32) *eventv1.DialEvent {
	message := dial(uuid.Nil, workspace, event, seconds)
	message.CallRequestId = ""
	message.Call.CallId, message.Call.Direction, message.Call.Priced = call.String(), "inbound", true
	if _, ended := event.(*eventv1.Ended); ended {
		message.Call.EndedAt = timestamppb.Now()
	}
	return message
}

func (s *service) inboundEvents(call uuid.UUID, events ...proto.Message) {
	s.Helper()
	for _, event := range events {
		id := wallettest.ID()
		s.publish(kafka.DialEvents, call.String(), id, event)
		s.publish(kafka.DialEvents, call.String(), id, event)              // the same record again
		s.publish(kafka.DialEvents, call.String(), wallettest.ID(), event) // the same event with another id
	}
}

func TestInbound_EndOfACallSettlesItsHoldOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		seconds int32
		state   string
		charged money.Micro
	}{
		{name: "talk time is rounded up to the increment", seconds: 61, state: "captured", charged: 33_000},
		{name: "a longer call costs the hold", seconds: 601, state: "captured", charged: 300_000},
		{name: "no talk time costs nothing", seconds: 0, state: "released"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, call := start(t), wallettest.ID()
			workspace := wallettest.Workspace(t, s.store, money.Credit)
			s.holdInbound(workspace, call)
			s.inboundEvents(call, inboundEvent(call, workspace, &eventv1.Answered{}, 0))
			s.checkCount("the answer confirms the hold",
				"SELECT count(*) FROM holds WHERE confirmed_at IS NOT NULL AND state = 'held'", 1)
			s.inboundEvents(call, inboundEvent(call, workspace, &eventv1.Ended{}, tt.seconds))
			s.checkCount("the hold is settled", "SELECT count(*) FROM holds WHERE state = $1", 1, tt.state)
			s.checkCount("no settlement is pending", "SELECT count(*) FROM pending_settlements", 0)
			wallettest.Balances(t, s.store, workspace, money.Credit-tt.charged, 0)
			events := s.walletEvents(1)
			if len(events) != 1 {
				t.Fatalf("wallet events = %v, want one", events)
			}
			if got := events[0].GetCallRequestId(); got != "" {
				t.Errorf("call_request_id = %q, want it empty", got)
			}
			id, amount := events[0].GetReleased().GetCallId(), int64(0)
			if captured := events[0].GetCaptured(); captured != nil {
				id, amount = captured.GetCallId(), captured.GetAmountMicro()
			}
			if id != call.String() {
				t.Errorf("call_id = %q, want %s", id, call)
			}
			if amount != int64(tt.charged) {
				t.Errorf("amount = %d, want %d", amount, tt.charged)
			}
		})
	}
}

func TestInbound_HoldOfAnUnknownCallIsReleased(t *testing.T) {
	t.Parallel()
	s, call := start(t), wallettest.ID()
	workspace := wallettest.Workspace(t, s.store, money.Credit)
	s.holdInbound(workspace, call)
	unknown := &eventv1.DialEvent{WorkspaceId: workspace.String(), Event: &eventv1.DialEvent_CallUnknown{
		CallUnknown: &eventv1.CallUnknown{CallId: call.String()},
	}}
	s.inboundEvents(call, unknown)
	s.checkCount("the hold is released", "SELECT count(*) FROM holds WHERE state = 'released'", 1)
	wallettest.Balances(t, s.store, workspace, money.Credit, 0)
}

// A refused call often has no hold. The end of such a call must not increment the metric of ends
// without a hold, because an alert uses this metric.
func TestInbound_EndOfAFreeCallWithoutAHoldIsIgnored(t *testing.T) {
	t.Parallel()
	s, call, other := start(t), wallettest.ID(), wallettest.ID()
	workspace := wallettest.Workspace(t, s.store, money.Credit)
	s.publish(kafka.DialEvents, call.String(), wallettest.ID(), inboundEvent(call, workspace, &eventv1.Ended{}, 0))
	free := inboundEvent(other, workspace, &eventv1.Ended{}, 60)
	free.Call.Priced = false
	s.publish(kafka.DialEvents, other.String(), wallettest.ID(), free)
	s.checkCount("both records are applied", "SELECT count(*) FROM inbox_events", 2)
	s.checkCount("no settlement is pending", "SELECT count(*) FROM pending_settlements", 0)
	if got := s.lateOutcomes("unknown_hold"); got != 0 {
		t.Errorf("ends without a hold = %v, want 0", got)
	}
	wallettest.Balances(t, s.store, workspace, money.Credit, 0)
}

// If a hold is made after the end of its call, the hold stays open until the dialer publishes the
// end again.
func TestInbound_RepeatedEndReleasesAHoldMadeAfterTheEnd(t *testing.T) {
	t.Parallel()
	s, call := start(t), wallettest.ID()
	workspace := wallettest.Workspace(t, s.store, money.Credit)
	end := inboundEvent(call, workspace, &eventv1.Ended{}, 0)
	s.publish(kafka.DialEvents, call.String(), wallettest.ID(), end)
	s.checkCount("the end is applied", "SELECT count(*) FROM inbox_events", 1)
	s.holdInbound(workspace, call)
	s.publish(kafka.DialEvents, call.String(), wallettest.ID(), end)
	s.checkCount("the hold is released", "SELECT count(*) FROM holds WHERE state = 'released'", 1)
	wallettest.Balances(t, s.store, workspace, money.Credit, 0)
}

// Only the dialer handles the event InboundUnconfirmed.
func TestInbound_EventForTheDialerIsSkipped(t *testing.T) {
	t.Parallel()
	s, call := start(t), wallettest.ID()
	workspace := wallettest.Workspace(t, s.store, money.Credit)
	s.holdInbound(workspace, call)
	s.publish(kafka.CallRequests, call.String(), wallettest.ID(), &eventv1.CallRequestEvent{
		WorkspaceId: workspace.String(), Event: &eventv1.CallRequestEvent_InboundUnconfirmed{
			InboundUnconfirmed: &eventv1.InboundUnconfirmed{CallId: call.String()},
		},
	})
	s.checkCount("the record is applied", "SELECT count(*) FROM inbox_events", 1)
	s.checkCount("the record is not parked", "SELECT count(*) FROM dead_letters", 0)
	wallettest.Balances(t, s.store, workspace, money.Credit-300_000, 300_000)
}
