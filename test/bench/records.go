package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
)

var callEvents = []string{"call.ringing", "call.answered", "call.completed", "call.failed", "call.no_answer", "call.busy"}

// template is a record that the service `calls` published to call-events.v1, with its decoded
// value.
type template struct {
	headers []kgo.RecordHeader
	fact    *eventv1.CallEvent
}

func (t template) event() *eventv1.PublicEvent { return t.fact.GetPublic() }

// completingNumber is a phone number that the simulated carrier answers and completes.
const completingNumber = "+14155550101"

var errFewEvents = errors.New("the call whose events are the templates has fewer than three events")

func (h *WebhookStack) learn(ctx context.Context) ([]template, error) {
	w, err := h.Stack.NewWorkspace(ctx, "bench template", "1000")
	if err != nil {
		return nil, err
	}
	if _, err := w.Place(ctx, map[string]any{"to": completingNumber}); err != nil {
		return nil, err
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(h.broker), kgo.ConsumeTopics(kafka.CallEvents.Name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var found []template
	for {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read the events of the first call: %w", err)
		}
		for _, wire := range fetches.Records() {
			rec, err := kafka.Read(wire)
			if err != nil || rec.WorkspaceID != w.ID {
				continue
			}
			fact := &eventv1.CallEvent{}
			if err := rec.Decode(fact); err != nil {
				return nil, err
			}
			found = append(found, template{headers: wire.Headers, fact: fact})
			if fact.GetPublic().GetType() != "call.completed" {
				continue
			}
			if len(found) != 3 {
				return nil, fmt.Errorf("%w: %d", errFewEvents, len(found))
			}
			return found, nil
		}
	}
}

// completedBody returns the body of the event call.completed. The baseline loop, which sends
// webhooks without the dispatcher, sends this body.
func (h *WebhookStack) completedBody() []byte {
	return h.templates[len(h.templates)-1].event().GetBody()
}

// A call is answered when answersAfter later calls have begun, and it ends when completesAfter
// later calls have begun. So the events of one call are never next to each other.
const (
	answersAfter   = 20
	completesAfter = 60
)

// source creates the events of one workspace. The events of each call are in order. The events of
// many calls are interleaved.
type source struct {
	templates   []template
	workspaceID string
	sent        *published
	calls       []uuid.UUID
	waiting     []*kgo.Record
}

func (s *source) next() *kgo.Record {
	if len(s.waiting) == 0 {
		s.calls = append(s.calls, uuid.Must(uuid.NewV7()))
		for kind, after := range []int{0, answersAfter, completesAfter} {
			if at := len(s.calls) - 1 - after; at >= 0 {
				s.waiting = append(s.waiting, s.newRecord(s.calls[at], s.templates[kind]))
			}
		}
	}
	rec := s.waiting[0]
	s.waiting = s.waiting[1:]
	return rec
}

// newRecord returns the template's record with another call and workspace, in the form in which
// libs/outbox publishes records.
func (s *source) newRecord(call uuid.UUID, t template) *kgo.Record {
	old, now := t.event(), time.Now()
	id := uuid.NewSHA1(call, []byte(old.GetType())) // the service `calls` derives the event id in the same way
	body := old.GetBody()
	for was, is := range map[string]string{old.GetEventId(): id.String(), t.fact.GetCallId(): call.String(), t.fact.GetWorkspaceId(): s.workspaceID} {
		body = bytes.ReplaceAll(body, []byte(was), []byte(is))
	}
	fact := &eventv1.CallEvent{
		CallId: call.String(), WorkspaceId: s.workspaceID, OccurredAt: timestamppb.New(now),
		Event: &eventv1.CallEvent_Public{Public: &eventv1.PublicEvent{EventId: id.String(), Type: old.GetType(), Sequence: old.GetSequence(), Body: body}},
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(fact)
	if err != nil {
		panic(err) // cannot happen: the template was decoded from the same message
	}
	rec := &kgo.Record{Topic: kafka.CallEvents.Name, Key: []byte(call.String()), Value: value}
	for _, header := range t.headers {
		header.Value = headerValue(header, id, call, s.workspaceID, now)
		rec.Headers = append(rec.Headers, header)
	}
	return rec
}

func headerValue(header kgo.RecordHeader, id, call uuid.UUID, workspaceID string, now time.Time) []byte {
	switch header.Key {
	case kafka.HeaderID:
		return []byte(id.String())
	case kafka.HeaderSubject, kafka.HeaderKey:
		return []byte(call.String())
	case kafka.HeaderWorkspaceID:
		return []byte(workspaceID)
	case kafka.HeaderTime:
		return []byte(now.UTC().Format("2006-01-02T15:04:05.000000Z"))
	case kafka.HeaderTraceParent:
		// The header contains version, trace, span and flags. The record gets another trace id with
		// the same sampling flag.
		parts := strings.Split(string(header.Value), "-")
		if len(parts) == 4 {
			var trace [16]byte
			_, _ = rand.Read(trace[:])
			parts[1] = hex.EncodeToString(trace[:])
		}
		return []byte(strings.Join(parts, "-"))
	}
	return header.Value
}

func eventID(rec *kgo.Record) uuid.UUID {
	for _, header := range rec.Headers {
		if header.Key == kafka.HeaderID {
			id, _ := uuid.ParseBytes(header.Value)
			return id
		}
	}
	return uuid.Nil
}

// published contains the time at which Kafka acknowledged each event, and the first error of a
// publish.
type published struct {
	mu    sync.Mutex
	wg    sync.WaitGroup
	acked map[uuid.UUID]time.Time
	fault error
}

func newPublished() *published { return &published{acked: map[uuid.UUID]time.Time{}} }

func (p *published) send(ctx context.Context, bus *kafka.Client, rec *kgo.Record) {
	id := eventID(rec)
	p.wg.Add(1)
	bus.Produce(ctx, rec, func(_ *kgo.Record, err error) {
		at := time.Now()
		p.mu.Lock()
		defer p.mu.Unlock()
		defer p.wg.Done()
		p.acked[id] = at
		if err != nil {
			p.fault = err
		}
	})
}

func (p *published) wait() error {
	p.wg.Wait()
	if p.fault != nil {
		return fmt.Errorf("publish to %s: %w", kafka.CallEvents.Name, p.fault)
	}
	return nil
}

// publishEvenly publishes perSecond records per second of each source, evenly and alternately. It
// does not wait for acknowledgements. If the machine is too slow, single records are late, but the
// rate stays the same.
func (h *WebhookStack) publishEvenly(ctx context.Context, long time.Duration, perSecond float64,
	sources ...*source) error {
	every := time.Duration(float64(time.Second) / (perSecond * float64(len(sources))))
	began := time.Now()
	for n := 0; ; n++ {
		due := time.Duration(n) * every
		if due >= long {
			return nil
		}
		if err := webhookPause(ctx, due-time.Since(began)); err != nil {
			return err
		}
		from := sources[n%len(sources)]
		from.sent.send(ctx, h.bus, from.next())
	}
}

type countedRecords struct {
	arrived, missing, twice int
	// first and last are the times of the first and the last delivery, in nanoseconds of the
	// machine's clock.
	first, last int64
	// took contains for each delivery the time from Kafka's acknowledgement to the delivery's first
	// byte. It is negative if the delivery arrived before the acknowledgement.
	took []time.Duration
}

// count compares the published records to the arrivals. It ignores attempts before minAttempt.
func (p *published) count(arrivals []Arrival, minAttempt int) (c countedRecords) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[uuid.UUID]bool{}
	for _, a := range arrivals {
		acked, ours := p.acked[a.Event]
		if !ours || a.Attempt < minAttempt {
			continue
		}
		if seen[a.Event] {
			c.twice++
			continue
		}
		seen[a.Event] = true
		if c.first == 0 || a.At < c.first {
			c.first = a.At
		}
		c.last = max(c.last, a.At)
		c.took = append(c.took, time.Duration(a.At-acked.UnixNano()))
	}
	c.arrived, c.missing = len(seen), len(p.acked)-len(seen)
	return c
}

func (c countedRecords) perSecond() float64 {
	if c.last <= c.first {
		return 0
	}
	return float64(c.arrived-1) / time.Duration(c.last-c.first).Seconds()
}

func (h *WebhookStack) deliver(ctx context.Context, long time.Duration, perSecond float64, e *endpoint) (countedRecords, error) {
	e.source.sent = newPublished()
	if err := h.publishEvenly(ctx, long, perSecond, e.source); err != nil {
		return countedRecords{}, err
	}
	return h.arrived(ctx, e)
}

func (h *WebhookStack) arrived(ctx context.Context, e *endpoint) (countedRecords, error) {
	sent := e.source.sent
	if err := sent.wait(); err != nil {
		return countedRecords{}, err
	}
	e.expected += len(sent.acked)
	if err := h.awaitArrivals(ctx, e.lane, e.expected, webhooksStuck); err != nil {
		return countedRecords{}, err
	}
	arrivals, err := h.receiver.Arrivals(ctx, e.lane)
	return sent.count(arrivals, 1), err
}
