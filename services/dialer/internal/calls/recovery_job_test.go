package calls

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
)

// silentCarrier accepts each refusal, but publishes no end event.
type silentCarrier struct {
	carrier.Carrier
	refused int
}

func (s *silentCarrier) Refuse(context.Context, uuid.UUID) (carrier.CallStatus, error) {
	s.refused++
	return carrier.CallStatus{}, nil
}

func TestRecoverer_RefusedCallEndsAsBusyWithoutAnEndEvent(t *testing.T) {
	t.Parallel()
	r, silent := newReaderFixture(t), &silentCarrier{}
	r.exec(`
		UPDATE calls SET call_request_id = NULL, direction = 'inbound', status = 'ringing', ringing_at = now(),
			ending = 'busy', hangup_at = now()`)
	st := r.store()
	recoverer := NewRecoverer(st, nil, carrier.Carriers{Live: silent}, nil, prometheus.NewRegistry())
	hangUp := func() (status, cause string) {
		t.Helper()
		if err := recoverer.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := recoverer.hangUpDue(t.Context()); err != nil {
			t.Fatal(err)
		}
		const read = "SELECT status, hangup_cause FROM calls WHERE call_id = $1"
		if err := r.pool.QueryRow(t.Context(), read, r.callID).Scan(&status, &cause); err != nil {
			t.Fatal(err)
		}
		return status, cause
	}
	if status, _ := hangUp(); status != string(callstate.Ringing) {
		t.Errorf("status before the deadline = %q, want ringing", status)
	}
	r.exec("UPDATE calls SET deadline_at = now(), hangup_at = now()")
	status, cause := hangUp()
	if status != string(callstate.Busy) {
		t.Errorf("status after the deadline = %q, want busy", status)
	}
	if cause != string(callstate.UserBusy) {
		t.Errorf("hangup cause = %q, want user_busy", cause)
	}
	if silent.refused != 2 {
		t.Errorf("refusals at the carrier = %d, want 2", silent.refused)
	}
	r.wantPublished("ringing", "ended")
}
