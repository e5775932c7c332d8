package main

import (
	"fmt"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
)

type receivedFacts struct {
	mu    sync.Mutex
	facts []eventRecord
}

// eventRecord is one record of dial-events.v1.
type eventRecord struct {
	id    uuid.UUID
	key   string
	name  string
	event *eventv1.DialEvent
}

func (r *rig) listen(cfg kafka.Config) {
	client, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...), kgo.ConsumeTopics(kafka.DialEvents.Name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return
	}
	defer client.Close()
	for r.t.Context().Err() == nil {
		fetched := client.PollFetches(r.t.Context())
		fetched.EachRecord(func(wire *kgo.Record) {
			rec, err := kafka.Read(wire)
			event := &eventv1.DialEvent{}
			if err != nil || rec.Decode(event) != nil {
				return
			}
			name := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", event.GetEvent()), "*eventv1.DialEvent_"))
			r.receivedFacts.mu.Lock()
			defer r.receivedFacts.mu.Unlock()
			r.receivedFacts.facts = append(r.receivedFacts.facts, eventRecord{rec.EventID, rec.Key, name, event})
		})
	}
}

// factsOf returns the records of a call request or of an inbound call.
func (r *rig) factsOf(id string) (facts []eventRecord) {
	r.receivedFacts.mu.Lock()
	defer r.receivedFacts.mu.Unlock()
	seen := map[uuid.UUID]bool{}
	for _, f := range r.receivedFacts.facts {
		if f.key == id && !seen[f.id] {
			seen[f.id] = true
			facts = append(facts, f)
		}
	}
	return facts
}

func names(facts []eventRecord) string {
	var all []string
	for _, f := range facts {
		all = append(all, f.name)
	}
	return strings.Join(all, " ")
}

func (r *rig) ends(id uuid.UUID) []eventRecord {
	r.t.Helper()
	var facts []eventRecord
	defer func() {
		if r.t.Failed() {
			r.t.Logf("facts of %s: %s", id, names(facts))
		}
	}()
	await(r.t, "request "+id.String()+" ends", func() bool {
		facts = r.factsOf(id.String())
		for i, f := range facts {
			switch f.name {
			case "blocked", "failed", "withdrawn", "analysed":
				return true
			case "ended":
				if f.event.GetCall().GetStatus() != "completed" {
					return i >= 0
				}
			}
		}
		return false
	})
	return facts
}

func last(facts []eventRecord) *eventv1.DialEvent { return facts[len(facts)-1].event }
