package httpapi_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/proto/eventv1"
)

func (r *rig) lowBalance(event uuid.UUID, sequence int32) *eventv1.WalletEvent {
	return &eventv1.WalletEvent{
		WorkspaceId: r.workspace.String(), OccurredAt: timestamppb.New(time.UnixMilli(1_780_000_000_123)),
		Event: &eventv1.WalletEvent_LowBalance{LowBalance: &eventv1.LowBalance{
			EventId: event.String(), Sequence: sequence, BalanceMicro: 9_987_654, ThresholdMicro: 10_000_000, Currency: "USD",
		}},
	}
}

// The public event must have the id of billing-wallet's event. So webhook-dispatcher delivers it
// once even if billing-wallet publishes it twice.
func TestLowBalance_BecomesAPublicEvent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	event := newID(t)
	key := r.workspace.String()
	r.rollBack(kafka.WalletEvents, key, r.lowBalance(event, 1))
	if got := r.events(); len(got) != 0 {
		t.Errorf("events of a transaction that was rolled back = %v, want none", got)
	}
	record := r.record(kafka.WalletEvents, key, r.lowBalance(event, 1))
	for range 2 {
		if err := kafkatest.Commit(t.Context(), r.pool, r.handlers[kafka.WalletEvents.Name], record); err != nil {
			t.Fatal(err)
		}
	}
	found := r.events()
	if len(found) == 0 {
		t.Fatal("events = none, want wallet.low_balance")
	}
	want := map[string]any{
		"id": event.String(), "type": "wallet.low_balance", "api_version": "2026-06-04",
		"created_at": "2026-05-28T20:26:40.123Z", "workspace_id": key, "sequence": 1.0,
		"data": map[string]any{"balance": 9.987654, "threshold": 10.0, "currency": "USD"},
	}
	for _, one := range found {
		if diff := cmp.Diff(want, one); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	}
	for _, message := range outboxEvents[eventv1.CallEvent](r, kafka.CallEvents) {
		if message.GetPublic().GetEventId() != event.String() || message.GetCallId() != key {
			t.Errorf("message = %v, want the event id %s and the call id %s", message, event, key)
		}
	}
}

func TestLowBalance_InvalidMessagesAreParked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, change := range map[string]func(*eventv1.WalletEvent){
		"no event id":     func(e *eventv1.WalletEvent) { e.GetLowBalance().EventId = "" },
		"no workspace":    func(e *eventv1.WalletEvent) { e.WorkspaceId = "" },
		"no time":         func(e *eventv1.WalletEvent) { e.OccurredAt = nil },
		"an invalid time": func(e *eventv1.WalletEvent) { e.OccurredAt = &timestamppb.Timestamp{Nanos: -1} },
	} {
		event := r.lowBalance(newID(t), 1)
		change(event)
		if err := r.applyEvent(kafka.WalletEvents, r.workspace.String(), event); !kafka.IsPark(err) {
			t.Errorf("%s: error = %v, want that the record is parked", name, err)
		}
	}
	if got := r.events(); len(got) != 0 {
		t.Errorf("events = %v, want none", got)
	}
}
