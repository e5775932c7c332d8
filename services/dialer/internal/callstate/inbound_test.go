package callstate_test

import (
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
)

func inbound() *callstate.Call {
	ringing := at(0)
	return &callstate.Call{
		CallID: uuid.Must(uuid.NewV7()), Direction: callstate.Inbound, Status: callstate.Ringing, RingingAt: &ringing,
		Priced: true, Admitted: true,
	}
}

func TestRefuse_EndsAnUnansweredInboundCallAsBusy(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		end   callstate.End
		want  callstate.Status
		cause callstate.Cause
	}{
		{
			name: "the carrier refuses the call", end: callstate.End{At: at(1), Cause: callstate.UserBusy, ByUs: true},
			want: callstate.Busy, cause: callstate.UserBusy,
		},
		{
			name: "a dialer of an earlier version hangs up",
			end:  callstate.End{At: at(1), Cause: callstate.OriginatorCancel, ByUs: true},
			want: callstate.Busy, cause: callstate.UserBusy,
		},
		{
			name: "the caller hangs up first", end: callstate.End{At: at(1), Cause: callstate.OriginatorCancel},
			want: callstate.Canceled, cause: callstate.OriginatorCancel,
		},
		{
			name: "the carrier does not know the call", end: callstate.EndingBusy.Unheard(at(1)),
			want: callstate.Busy, cause: callstate.UserBusy,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := inbound()
			c.Refuse()
			if c.Ending != callstate.EndingBusy {
				t.Fatalf("ending = %q, want busy", c.Ending)
			}
			if c.Admitted {
				t.Error("a refused call counts as a concurrent call")
			}
			c.End(tt.end)
			if c.Status != tt.want {
				t.Errorf("status = %s, want %s", c.Status, tt.want)
			}
			if c.HangupCause != tt.cause {
				t.Errorf("cause = %s, want %s", c.HangupCause, tt.cause)
			}
			if got := lastEvent(c).GetBillableSeconds(); got != 0 {
				t.Errorf("billable seconds = %d, want 0", got)
			}
		})
	}
}

func TestRefuse_HasNoEffectAfterTheAnswer(t *testing.T) {
	t.Parallel()
	c := inbound()
	c.Answer(at(1))
	c.Refuse()
	if c.Ending != callstate.EndingNone {
		t.Errorf("ending = %q, want none", c.Ending)
	}
	c.End(callstate.End{At: at(11), Cause: callstate.NormalClearing})
	if got := lastEvent(c).GetBillableSeconds(); got != 10 {
		t.Errorf("billable seconds = %d, want 10", got)
	}
}

func TestEvent_InboundCallWithoutAPriceHasNoBillableSeconds(t *testing.T) {
	t.Parallel()
	c := inbound()
	c.Priced = false
	c.Answer(at(1))
	c.End(callstate.End{At: at(11), Cause: callstate.NormalClearing})
	if got := lastEvent(c).GetBillableSeconds(); got != 0 {
		t.Errorf("billable seconds = %d, want 0", got)
	}
	if lastEvent(c).GetPriced() {
		t.Error("the event states that the call has a price")
	}
}
