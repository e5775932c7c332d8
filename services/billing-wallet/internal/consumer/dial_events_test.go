package consumer_test

import (
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/money"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/billing-wallet/internal/wallettest"
)

// If the event `ended` is lost, the next event of the ended call must settle the hold. If the lost
// event arrives later, it must change nothing.
func TestDialEvents_AnyEventOfAnEndedCallSettlesTheHoldOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, money.Credit)
	request := s.placeHold(workspace)
	ended := func(event func(*eventv1.DialEvent)) *eventv1.DialEvent {
		message := dial(request, workspace, nil, 60)
		message.Call.EndedAt = timestamppb.Now()
		event(message)
		return message
	}
	recorded := ended(func(e *eventv1.DialEvent) { e.Event = &eventv1.DialEvent_Recorded{Recorded: &eventv1.Recorded{}} })
	analysed := ended(func(e *eventv1.DialEvent) { e.Event = &eventv1.DialEvent_Analysed{Analysed: &eventv1.Analysed{}} })
	end := ended(func(e *eventv1.DialEvent) { e.Event = &eventv1.DialEvent_Ended{Ended: &eventv1.Ended{}} })
	talking := dial(request, workspace, &eventv1.Answered{}, 0)

	s.publish(kafka.DialEvents, request.String(), wallettest.ID(), talking)
	s.publish(kafka.DialEvents, request.String(), wallettest.ID(), recorded)
	const captured = `SELECT count(*) FROM holds WHERE request_id = $1 AND state = 'captured' AND captured_micro = 50000`
	s.checkCount("recorded captures the hold", captured, 1, request)

	s.publish(kafka.DialEvents, request.String(), wallettest.ID(), analysed)
	s.publish(kafka.DialEvents, request.String(), wallettest.ID(), end)
	s.waitUntil("the late ended is counted as a repeat", func() (bool, error) {
		return s.lateOutcomes("repeat") == 1,
			nil
	})
	if got := s.lateOutcomes("second_capture"); got != 0 {
		t.Errorf("second captures = %v, want 0", got)
	}
	if got := s.publishedEvents(1)[request.String()]; len(got) != 1 {
		t.Errorf("wallet events = %v, want one", got)
	}
	wallettest.Balances(t, s.store, workspace, money.Credit-50_000, 0)
}

func TestDialEvents_EventOfALiveCallSettlesNoHold(t *testing.T) {
	t.Parallel()
	s := start(t)
	workspace := wallettest.Workspace(t, s.store, money.Credit)
	request := s.placeHold(workspace)
	s.publish(kafka.DialEvents, request.String(), wallettest.ID(), dial(request, workspace, &eventv1.Answered{}, 0))
	s.publish(kafka.DialEvents, uuid.NewString(), wallettest.ID(), dial(uuid.New(), workspace, &eventv1.Answered{}, 0))
	s.checkCount("both records are applied", `SELECT count(*) FROM inbox_events`, 2)
	s.checkCount("no settlement is pending", `SELECT count(*) FROM pending_settlements`, 0)
	wallettest.Balances(t, s.store, workspace, money.Credit/2, money.Credit/2)
}
