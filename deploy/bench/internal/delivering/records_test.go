package delivering

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/deploy/bench/internal/catching"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
)

// templates are of a call with three events.
func templates() (made []template) {
	call, workspace := uuid.NewString(), uuid.NewString()
	for n, kind := range []string{"call.ringing", "call.answered", "call.completed"} {
		id := uuid.NewString()
		made = append(made, template{
			headers: []kgo.RecordHeader{
				{Key: kafka.HeaderID, Value: []byte(id)}, {Key: kafka.HeaderKey, Value: []byte(call)}, {Key: kafka.HeaderWorkspaceID, Value: []byte(workspace)},
				{Key: kafka.HeaderType, Value: []byte((&eventv1.CallEvent{}).ProtoReflect().Descriptor().FullName())}, {Key: kafka.HeaderTraceParent, Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")},
			},
			fact: &eventv1.CallEvent{CallId: call, WorkspaceId: workspace, Event: &eventv1.CallEvent_Public{Public: &eventv1.PublicEvent{
				EventId: id, Type: kind, Sequence: int32(n + 1), Body: []byte(`{"id":"` + id + `","workspace_id":"` + workspace + `","data":{"call_id":"` + call + `"}}`),
			}}},
		})
	}
	return made
}

func TestSource_EachCallsEventsComeInOrderAndApart(t *testing.T) {
	t.Parallel()
	s := &source{templates: templates(), workspaceID: uuid.NewString()}
	ids, sequence, at := map[uuid.UUID]bool{}, map[string]int32{}, map[string]int{}
	for n := range 1000 {
		wire := s.next()
		rec, err := kafka.Read(wire)
		if err != nil {
			t.Fatal(err)
		}
		var fact eventv1.CallEvent
		if err := rec.Decode(&fact); err != nil {
			t.Fatal(err)
		}
		event := fact.GetPublic()
		if rec.EventID != eventID(wire) || event.GetEventId() != rec.EventID.String() || ids[rec.EventID] || rec.WorkspaceID != s.workspaceID || rec.Key != fact.GetCallId() {
			t.Fatalf("record %d of call %s: ids %s and %s, workspace %s", n, rec.Key, rec.EventID, event.GetEventId(), rec.WorkspaceID)
		}
		for _, id := range []string{event.GetEventId(), fact.GetCallId(), s.workspaceID} {
			if !bytes.Contains(event.GetBody(), []byte(id)) {
				t.Fatalf("the body %s does not carry %s", event.GetBody(), id)
			}
		}
		if event.GetSequence() != sequence[rec.Key]+1 || sequence[rec.Key] > 0 && n-at[rec.Key] < 20 {
			t.Fatalf("record %d is event %d of its call, after event %d at record %d", n, event.GetSequence(), sequence[rec.Key], at[rec.Key])
		}
		ids[rec.EventID], sequence[rec.Key], at[rec.Key] = true, event.GetSequence(), n
	}
}

func TestCount_TellsMissingFromTwice(t *testing.T) {
	t.Parallel()
	p, start := newPublished(), time.Unix(1_780_574_400, 0)
	var ids []uuid.UUID
	for range 4 {
		ids = append(ids, uuid.New())
		p.acked[ids[len(ids)-1]] = start
	}
	ms := func(n int64) int64 { return start.UnixNano() + n*1e6 }
	got := p.count([]catching.Arrival{
		{Event: ids[0], Attempt: 1, At: ms(1)}, {Event: ids[1], Attempt: 1, At: ms(5)}, {Event: ids[0], Attempt: 2, At: ms(9)},
		{Event: ids[2], Attempt: 1, At: ms(3)}, {Event: uuid.New(), Attempt: 1, At: ms(99)},
	}, 1)
	if got.arrived != 3 || got.missing != 1 || got.twice != 1 || len(got.took) != 3 || got.took[1] != 5*time.Millisecond {
		t.Errorf("counted %+v, want 3 arrived, 1 missing, 1 twice, and 5 ms for the second", got)
	}
	if rate := got.perSecond(); rate != 500 { // two intervals in 4 ms
		t.Errorf("%g a second, want 500", rate)
	}
	if second := p.count([]catching.Arrival{{Event: ids[0], Attempt: 1}, {Event: ids[0], Attempt: 2}}, 2); second.arrived != 1 || second.twice != 0 || second.missing != 3 {
		t.Errorf("of second attempts counted %+v, want 1 arrived and 3 missing", second)
	}
}
