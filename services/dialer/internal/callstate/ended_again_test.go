package callstate_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
)

// A consumer can apply the event of EndedAgain instead of the first end event. So the event must
// have the same id until the call changes.
func TestEndEvent_RepeatedEventKeepsItsID(t *testing.T) {
	t.Parallel()
	request := uuid.New()
	ended := time.Now()
	answered := ended.Add(-time.Minute)
	c := &callstate.Call{
		CallID: uuid.New(), CallRequestID: &request, WorkspaceID: uuid.New(), Direction: callstate.Outbound,
		Status:     callstate.Completed,
		AnsweredAt: &answered, EndedAt: &ended, Version: 7,
	}
	first, second := c.EndedAgain(), c.EndedAgain()
	if first.ID != second.ID {
		t.Errorf("event ids = %s and %s, want the same", first.ID, second.ID)
	}
	if c.Version != 7 {
		t.Errorf("version of the call = %d, want 7", c.Version)
	}
	if got := first.Event.GetCall().GetVersion(); got != 7 {
		t.Errorf("version in the event = %d, want 7", got)
	}
	if got := first.Event.GetCall().GetBillableSeconds(); got != 60 {
		t.Errorf("billable seconds = %d, want 60", got)
	}
	if first.Event.GetEnded() == nil {
		t.Errorf("event = %T, want ended", first.Event.GetEvent())
	}
	if got := first.Key; got != request.String() {
		t.Errorf("key = %s, want %s", got, request)
	}
	if got := len(c.Facts()); got != 0 {
		t.Errorf("facts of the call = %d, want 0", got)
	}
}
