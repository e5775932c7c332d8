package calls

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
)

func (r *readerFixture) newLiveCallCheck(ended func()) *LiveCallCheck {
	reader := r.reader()
	r.mustRead(reader)
	return NewLiveCallCheck(reader.store, r.stream, nil, time.Second, ended)
}

func (r *readerFixture) endedAt(seconds int) carrier.CallStatus {
	end := r.begun.Add(time.Duration(seconds) * time.Second)
	return carrier.CallStatus{DialedAt: &r.begun, AnsweredAt: &r.begun, EndedAt: &end, Cause: callstate.NormalClearing}
}

func TestLiveCallCheck_EndsACallWithoutAnEndEvent(t *testing.T) {
	t.Parallel()
	r := newReaderFixture(t)
	r.add(r.callID, carrier.Answered, 0)
	ends := 0
	looker := r.newLiveCallCheck(func() { ends++ })
	live, err := looker.store.LiveCalls(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uuid.UUID{r.callID}, live); diff != "" {
		t.Fatalf("live calls (-want +got):\n%s", diff)
	}
	if endedAtCarrier := looker.endedAtCarrier(t.Context(), live); len(endedAtCarrier) > 0 {
		t.Errorf("ended calls while the carrier does not know the call = %v, want none", endedAtCarrier)
	}
	r.stream.known[r.callID] = r.endedAt(5)
	endedAtCarrier := looker.endedAtCarrier(t.Context(), live)
	for range 2 { // the second run must change nothing
		if err := looker.endCalls(t.Context(), endedAtCarrier); err != nil {
			t.Fatalf("settle: %v", err)
		}
	}
	r.wantPublished("dialing", "answered", "ended", "analysed")
	if ends != 1 {
		t.Errorf("notifications of ends = %d, want 1", ends)
	}
}

// The end event contains more details than the carrier's status, so the reader must end the call.
func TestLiveCallCheck_DoesNotEndACallWhoseEndEventIsUnread(t *testing.T) {
	t.Parallel()
	r := newReaderFixture(t)
	r.add(r.callID, carrier.Answered, 0)
	looker := r.newLiveCallCheck(func() {})
	missing := uuid.New()
	found := func() map[uuid.UUID]carrier.CallStatus {
		return map[uuid.UUID]carrier.CallStatus{r.callID: r.endedAt(5), missing: r.endedAt(2)}
	}
	for _, step := range []struct {
		name   string
		change func()
		want   []uuid.UUID
	}{
		{name: "all events are read", change: func() {}, want: []uuid.UUID{r.callID, missing}},
		{name: "an event between the ends of the two calls is unread",
			change: func() { r.add(r.callID, carrier.Utterance, 4) },
			want:   []uuid.UUID{missing}},
		{name: "the carrier has started a new stream", change: func() { r.stream.name = "b" }},
		{name: "another process is the reader", change: func() {
			r.stream.name, r.stream.events = "a", nil
			r.exec("UPDATE carrier_cursors SET reader = gen_random_uuid()")
		}},
	} {
		step.change()
		endedAtCarrier := found()
		if err := looker.removeUnread(t.Context(), endedAtCarrier); err != nil {
			t.Fatalf("%s: removeUnread: %v", step.name, err)
		}
		got := slices.SortedFunc(
			maps.Keys(endedAtCarrier),
			func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) },
		)
		slices.SortFunc(step.want, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: ends that are applied (-want +got):\n%s", step.name, diff)
		}
	}
}

var _ carrier.EventStream = (*fakeStream)(nil)
