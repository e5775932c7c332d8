package httpapi_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/callrequests"
)

func (r *rig) reportOverdueCalls() {
	r.t.Helper()
	if err := callrequests.NewOverdueJob(r.store, 15*time.Minute, func() {}).Once(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) overdueCalls() (ids []string) {
	r.t.Helper()
	for _, event := range outboxEvents[eventv1.CallRequestEvent](r, kafka.CallRequests) {
		if overdue := event.GetCallOverdue(); overdue != nil {
			ids = append(ids, overdue.GetCall().GetCallId())
		}
	}
	return ids
}

// A call is overdue 15 minutes after its maximum duration, which is 10 minutes here.
func TestOverdueCalls_AreReportedToTheDialer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old, young, ended := r.account(uuid.Nil), r.account(uuid.Nil), r.account(uuid.Nil)
	for _, a := range []*account{old, young, ended} {
		a.publish(a.ringing(), a.answered())
	}
	ended.publish(ended.ended("completed", "normal_clearing"))
	ofRequest := r.account(r.place())
	ofRequest.publish(ofRequest.fenced(), ofRequest.dialing())
	r.exec(`UPDATE calls SET answered_at = now() - interval '24 minutes', dialed_at = now() - interval '24 minutes'`)
	r.reportOverdueCalls()
	if got := r.overdueCalls(); len(got) != 0 {
		t.Errorf("reported calls before 25 minutes = %v, want none", got)
	}
	r.exec(`UPDATE calls SET answered_at = now() - interval '26 minutes', dialed_at = now() - interval '26 minutes'
		WHERE id <> $1`, uuid.MustParse(young.id()))
	r.reportOverdueCalls()
	r.reportOverdueCalls()
	want := []string{old.id(), ofRequest.id()}
	got := r.overdueCalls()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("reported calls = %v, want %v once", got, want)
	}
	for _, event := range outboxEvents[eventv1.CallRequestEvent](r, kafka.CallRequests) {
		overdue := event.GetCallOverdue()
		// Only an inbound call can have a price.
		if want := overdue.GetCall().GetCallId() == old.id(); overdue != nil && overdue.GetCall().GetPriced() != want {
			t.Errorf("call %s: priced = %t, want %t", overdue.GetCall().GetCallId(), !want, want)
		}
	}
	r.exec(`UPDATE calls SET end_requested_at = now() - interval '16 minutes' WHERE id = $1`, uuid.MustParse(old.id()))
	r.reportOverdueCalls()
	if got, want := len(r.overdueCalls()), 3; got != want {
		t.Errorf("reports after the interval = %d, want %d", got, want)
	}
}
