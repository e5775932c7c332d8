package eventstream

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/openapi"
)

// turns produces records on call-turns.v1, which the replicas read.
type turns struct {
	f      *fixture
	cfg    kafka.Config
	client *kafka.Client
}

func (f *fixture) turns() *turns {
	f.t.Helper()
	p := &turns{f: f, cfg: kafkatest.New(f.t)}
	var err error
	if p.client, err = kafka.NewClient(p.cfg, "test", nil); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(p.client.Close)
	return p
}

// read makes a replica read call-turns.v1 until the test ends.
func (p *turns) read(r *replica) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.f.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- NewTurnReader(p.cfg, r.hub).Run(ctx) }()
	p.f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			p.f.t.Errorf("Run: %v", err)
		}
	})
}

func (p *turns) produce(id uuid.UUID, turn *eventv1.CallTurn) {
	value, err := proto.Marshal(turn)
	if err != nil {
		p.f.t.Errorf("encode turn: %v", err)
	}
	record := &kgo.Record{Topic: kafka.CallTurns.Name, Key: []byte(turn.GetCallId()), Value: value}
	record.Headers = []kgo.RecordHeader{
		{Key: kafka.HeaderID, Value: []byte(id.String())},
		{Key: kafka.HeaderType, Value: []byte("ringfence.event.v1.CallTurn")},
	}
	if err := p.client.ProduceSync(context.WithoutCancel(p.f.t.Context()), record).FirstErr(); err != nil {
		p.f.t.Errorf("produce: %v", err)
	}
}

// repeat produces a turn repeatedly until the test ends, because a reader ignores records from
// before its start.
func (p *turns) repeat(id uuid.UUID, turn *eventv1.CallTurn) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			p.produce(id, turn)
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	p.f.t.Cleanup(func() { close(stop); <-stopped })
}

func (f *fixture) open(r *replica, query string) *bufio.Scanner {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, r.url+"?"+query, http.NoBody)
	if err != nil {
		f.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = response.Body.Close() })
	return bufio.NewScanner(response.Body)
}

func (f *fixture) readUntil(lines *bufio.Scanner, last string) (all []string) {
	f.t.Helper()
	for lines.Scan() {
		if all = append(all, lines.Text()); lines.Text() == last {
			return all
		}
	}
	f.t.Fatalf("the stream ended before the line %q: %v", last, lines.Err())
	return nil
}

// A turn is not stored, so it must not change the position of a stream.
func TestTurns_AreSentToStreamsOfTheirWorkspaceThatRequestTurns(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	topic := f.turns()
	fast := func(h *Hub) { h.commentInterval = 10 * time.Millisecond }
	first, second := f.replica(fast), f.replica(fast)
	topic.read(first)
	topic.read(second)
	id, call, agentID := uuid.New(), uuid.New(), uuid.New()
	topic.repeat(id, &eventv1.CallTurn{
		CallId: call.String(), WorkspaceId: ws.String(), AgentId: agentID.String(), Number: 3, Role: "person",
		Text: "Hello?\n</script>", SpokenAt: timestamppb.New(time.Date(2026, 6, 4, 9, 0, 0, 0, time.UTC)),
	})
	want := `data: {"id":"` + id.String() + `","type":"call.turn","api_version":"2026-06-04",` +
		`"created_at":"2026-06-04T09:00:00.000Z","workspace_id":"` + ws.String() + `","sequence":3,"data":{"call_id":"` +
		call.String() + `","call_request_id":null,"agent_id":"` + agentID.String() +
		`","role":"person","text":"Hello?\n\u003c/script\u003e","at":"2026-06-04T09:00:00.000Z"}}`
	for _, r := range []*replica{first, second} {
		lines := f.readUntil(f.open(r, "turns&workspace="+ws.String()), want)
		if got := lines[len(lines)-2]; got != "event: call.turn" {
			t.Errorf("line before the data = %q, want the type", got)
		}
		if got := lines[len(lines)-3]; got != "" {
			t.Errorf("first line of the message before the type = %q, want none", got)
		}
		for _, line := range lines {
			if strings.HasPrefix(line, "id: ") && line != "id: "+f.start.EventID.String() {
				t.Errorf("line %q, want only the id before all events", line)
			}
		}
	}
	// These streams are open while turns arrive. They must receive only the stored event.
	for name, query := range map[string]string{
		"other workspace": "turns&workspace=", "no turns": "workspace=",
	} {
		owner := ws
		if name == "other workspace" {
			owner = uuid.New()
		}
		lines := f.open(first, query+owner.String())
		f.readUntil(lines, ": keep-alive")
		ev := newEvent(owner, "{}")
		f.ingest(ev)
		for _, line := range f.readUntil(lines, "data: {}") {
			if line == "event: call.turn" {
				t.Errorf("%s: the stream received a turn", name)
			}
		}
	}
}

// The topic can contain records of later versions.
func TestTurns_UnreadableRecordsAreSkipped(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	topic, r := f.turns(), f.replica()
	topic.read(r)
	lines := f.open(r, "turns&workspace="+ws.String())
	topic.repeat(uuid.New(), &eventv1.CallTurn{CallId: "x", WorkspaceId: ws.String(), AgentId: "x"})
	topic.repeat(uuid.New(), &eventv1.CallTurn{WorkspaceId: "x"})
	topic.repeat(uuid.New(), &eventv1.CallTurn{
		CallId: uuid.NewString(), CallRequestId: uuid.NewString(), WorkspaceId: ws.String(), AgentId: uuid.NewString(),
	})
	f.readUntil(lines, "event: call.turn")
}

// The test reads no message of the stream.
func TestHub_SendTurnDoesNotWaitForASlowStream(t *testing.T) {
	t.Parallel()
	f, ws := newFixture(t), uuid.New()
	r := f.replica()
	stream, err := r.hub.Open(t.Context(), ws, f.start, Filter{Turns: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close(t.Context())
	for range 2 * maxTurns {
		r.hub.sendTurn(ws, []byte("x"))
	}
	if got := len(stream.turns); got != maxTurns {
		t.Errorf("messages that wait = %d, want %d", got, maxTurns)
	}
}

// The console API description has a schema for the messages.
func TestTurnEvent_HasTheMembersOfItsSchema(t *testing.T) {
	t.Parallel()
	var document struct {
		StreamEvents map[string]struct {
			Ref string `json:"$ref"`
		} `json:"x-stream-events"`
		Components struct {
			Schemas map[string]struct{ Required []string }
		}
	}
	if err := json.Unmarshal(openapi.ConsoleDescription, &document); err != nil {
		t.Fatal(err)
	}
	if got, want := document.StreamEvents[TurnType].Ref, "#/components/schemas/CallTurnEvent"; got != want {
		t.Errorf("schema of %s = %q, want %q", TurnType, got, want)
	}
	event, err := newTurnEvent(uuid.New(), uuid.New(), &eventv1.CallTurn{
		CallId: uuid.NewString(), AgentId: uuid.NewString(), Role: "person", SpokenAt: timestamppb.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for schema, value := range map[string]any{"CallTurnEvent": event, "CallTurn": event.Data} {
		body, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]any
		if err := json.Unmarshal(body, &members); err != nil {
			t.Fatal(err)
		}
		want := slices.Sorted(slices.Values(document.Components.Schemas[schema].Required))
		if got := slices.Sorted(maps.Keys(members)); !slices.Equal(got, want) {
			t.Errorf("members of %s = %v, want %v", schema, got, want)
		}
	}
}
