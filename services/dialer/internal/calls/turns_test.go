package calls

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/carrier"
)

func turnAt(callID uuid.UUID, number int, text string) Turn {
	return Turn{CallID: callID, Number: number, Turn: agent.Turn{Role: agent.RolePerson, Text: text, At: time.Now()}}
}

// startPublisher runs a publisher until the test ends.
func (r *readerFixture) startPublisher(cfg kafka.Config) *TurnPublisher {
	r.t.Helper()
	p, err := NewTurnPublisher(cfg, r.store(), prometheus.NewRegistry())
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	})
	return p
}

func TestTurnPublisher_PublishesTurnsOfCallsThatAreNotErased(t *testing.T) {
	t.Parallel()
	r, cfg := newReaderFixture(t), kafkatest.New(t)
	erased := uuid.Must(uuid.NewV7())
	r.exec(`
		INSERT INTO calls (call_id, call_request_id, workspace_id, direction, from_number, to_e164, agent_id, status,
			max_call_seconds, deadline_at, erased)
		VALUES ($1, $1, $1, 'outbound', '+15005550006', '+14155550102', $1, 'fenced', 600, now() + interval '1 hour', true)`,
		erased)
	p := r.startPublisher(cfg)
	p.Add(turnAt(erased, 1, "secret"), turnAt(uuid.New(), 1, "unknown call"), turnAt(r.callID, 1, "Hello?"))
	p.Add(turnAt(r.callID, 2, "Who is there?"))

	client, err := kafka.NewClient(cfg, "test", nil, kgo.ConsumeTopics(kafka.CallTurns.Name))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var got []string
	for len(got) < 2 {
		fetched := client.PollFetches(t.Context())
		for all := fetched.RecordIter(); !all.Done(); {
			rec, err := kafka.Read(all.Next())
			if err != nil {
				t.Fatal(err)
			}
			var turn eventv1.CallTurn
			if err := rec.Decode(&turn); err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(turn.GetNumber(), turn.GetRole(), turn.GetText()))
			if rec.Key != r.callID.String() {
				t.Errorf("key = %s, want %s", rec.Key, r.callID)
			}
			if turn.GetWorkspaceId() != r.callID.String() { // the fixture uses the call id as workspace id
				t.Errorf("workspace = %s, want %s", turn.GetWorkspaceId(), r.callID)
			}
		}
	}
	if want := []string{"1personHello?", "2personWho is there?"}; !slices.Equal(got, want) {
		t.Errorf("turns = %q, want %q", got, want)
	}
}

// No broker listens at the configured address. Add must not wait for a broker.
func TestTurnPublisher_DropsTurnsIfKafkaIsNotAvailable(t *testing.T) {
	t.Parallel()
	r := newReaderFixture(t)
	p := r.startPublisher(kafka.Config{Brokers: []string{"127.0.0.1:1"}})
	testkit.Until(t, "turns are dropped", func() bool {
		for number := range 10 * maxTurns {
			p.Add(turnAt(r.callID, number, "Hello?"))
		}
		return testutil.ToFloat64(p.lost) > 0
	})
}

func TestApplier_ReportsTurnsOfTheScriptedAgent(t *testing.T) {
	t.Parallel()
	r := newReaderFixture(t)
	st := r.store()
	applier := NewApplier(st, nil, nil)
	var spoken []Turn
	listeners := applier.listeners
	listeners.Spoken = func(turns ...Turn) { spoken = append(spoken, turns...) }
	applier.Listen(listeners)
	r.add(r.callID, carrier.Answered, 1)
	r.add(r.callID, carrier.Utterance, 2)
	r.stream.events[1].Text = "Hello?"
	// Only the utterances of SIP calls have a Role. The applier must not report them, because a SIP
	// call reports its turns itself.
	r.add(r.callID, carrier.Utterance, 3)
	r.stream.events[2].Role, r.stream.events[2].Text = agent.RoleAgent, "Good morning."
	r.mustRead(NewEventReader(st, r.stream, applier))
	if len(spoken) != 2 {
		t.Fatalf("turns = %+v, want the person's and the scripted agent's", spoken)
	}
	for i, role := range []string{agent.RolePerson, agent.RoleAgent} {
		if spoken[i].CallID != r.callID {
			t.Errorf("turn %d: call = %s, want %s", i, spoken[i].CallID, r.callID)
		}
		if spoken[i].Number != i+1 {
			t.Errorf("turn %d: number = %d, want %d", i, spoken[i].Number, i+1)
		}
		if spoken[i].Role != role {
			t.Errorf("turn %d: role = %s, want %s", i, spoken[i].Role, role)
		}
	}
}
