package main

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
)

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

func TestSource_EventsOfACallAreOrderedAndNotAdjacent(t *testing.T) {
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
		if got, want := eventID(wire), rec.EventID; got != want {
			t.Fatalf("record %d: eventID = %s, want %s", n, got, want)
		}
		if got, want := event.GetEventId(), rec.EventID.String(); got != want {
			t.Fatalf("record %d: event id in the payload = %s, want %s", n, got, want)
		}
		if ids[rec.EventID] {
			t.Fatalf("record %d: event id %s was used before", n, rec.EventID)
		}
		if got, want := rec.WorkspaceID, s.workspaceID; got != want {
			t.Fatalf("record %d: workspace = %s, want %s", n, got, want)
		}
		if got, want := rec.Key, fact.GetCallId(); got != want {
			t.Fatalf("record %d: key = %s, want %s", n, got, want)
		}
		for _, id := range []string{event.GetEventId(), fact.GetCallId(), s.workspaceID} {
			if !bytes.Contains(event.GetBody(), []byte(id)) {
				t.Fatalf("the body %s does not carry %s", event.GetBody(), id)
			}
		}
		if got, want := event.GetSequence(), sequence[rec.Key]+1; got != want {
			t.Fatalf("record %d: sequence = %d, want %d", n, got, want)
		}
		if got := n - at[rec.Key]; sequence[rec.Key] > 0 && got < 20 {
			t.Fatalf("record %d: distance to the previous event of its call = %d records, want at least 20", n, got)
		}
		ids[rec.EventID], sequence[rec.Key], at[rec.Key] = true, event.GetSequence(), n
	}
}

func TestCount_CountsMissingAndRepeatedEventsSeparately(t *testing.T) {
	t.Parallel()
	p, start := newPublished(), time.Unix(1_780_574_400, 0)
	var ids []uuid.UUID
	for range 4 {
		ids = append(ids, uuid.New())
		p.acked[ids[len(ids)-1]] = start
	}
	ms := func(n int64) int64 { return start.UnixNano() + n*1e6 }
	got := p.count([]Arrival{
		{Event: ids[0], Attempt: 1, At: ms(1)}, {Event: ids[1], Attempt: 1, At: ms(5)}, {Event: ids[0], Attempt: 2, At: ms(9)},
		{Event: ids[2], Attempt: 1, At: ms(3)}, {Event: uuid.New(), Attempt: 1, At: ms(99)},
	}, 1)
	wantCounts(t, "first attempts", got, 3, 1, 1)
	took, want := slices.Sorted(slices.Values(got.took)), []time.Duration{1e6, 3e6, 5e6}
	if !slices.Equal(took, want) {
		t.Errorf("durations = %v, want %v", took, want)
	}
	if rate := got.perSecond(); rate != 500 { // 3 deliveries within 4 ms are two intervals
		t.Errorf("%g a second, want 500", rate)
	}
	second := p.count([]Arrival{{Event: ids[0], Attempt: 1}, {Event: ids[0], Attempt: 2}}, 2)
	wantCounts(t, "second attempts", second, 1, 3, 0)
}

func wantCounts(t *testing.T, what string, got countedRecords, arrived, missing, twice int) {
	t.Helper()
	if got.arrived != arrived {
		t.Errorf("%s: arrived = %d, want %d", what, got.arrived, arrived)
	}
	if got.missing != missing {
		t.Errorf("%s: missing = %d, want %d", what, got.missing, missing)
	}
	if got.twice != twice {
		t.Errorf("%s: twice = %d, want %d", what, got.twice, twice)
	}
}
