package httpapi_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/proto/eventv1"
)

const (
	secret = "Xylophone"
	person = "+14155550100"
)

func (r *rig) erase(erasure uuid.UUID, erasures int64) {
	r.t.Helper()
	r.mustDeliver(kafka.Contacts, "person", &eventv1.ContactEvent{WorkspaceId: r.workspace.String(), Event: &eventv1.ContactEvent_Erased{Erased: &eventv1.Erased{
		ErasureId: erasure.String(), PhoneE164: person, ContactId: contactOf(person), Erasures: erasures,
	}}})
}

func contactOf(number string) string { return uuid.NewSHA1(uuid.Nil, []byte(number)).String() }

func (r *rig) countSecretRows() int {
	r.t.Helper()
	return r.count(`SELECT (SELECT count(*) FROM call_requests WHERE variables::text LIKE '%Xylophone%')
		+ (SELECT count(*) FROM calls WHERE summary::text LIKE '%Xylophone%' OR transcript::text LIKE '%Xylophone%')`)
}

func (r *rig) createWithSecret(more ...any) *account {
	r.t.Helper()
	a := r.account(r.place(append(more, "variables", map[string]any{"name": secret})...))
	a.call.ContactId = contactOf(person)
	return a
}

func (a *account) spokeSecret() *eventv1.DialEvent {
	ev := a.analysed()
	ev.GetAnalysed().SummaryJson, ev.GetAnalysed().TranscriptJson = []byte(`{"customer_name":"Xylophone"}`), []byte(`{"turns":["Xylophone"]}`)
	return ev
}

// reportedSteps returns one line for each reported erasure step, in the form "<service> <call id>:
// <next steps>". The call id is empty if the step is not about one call.
func (r *rig) reportedSteps() (steps []string) {
	r.t.Helper()
	for _, f := range outboxEvents[eventv1.ErasureReport](r, kafka.ErasureReports) {
		step := f.GetService() + " " + f.GetStepDone().GetRef() + ":"
		for _, next := range f.GetStepDone().GetNext() {
			step += " " + next.GetService() + " " + next.GetRef()
		}
		steps = append(steps, step)
	}
	return steps
}

func TestErasure_ErasesEndedLiveAndQueuedCalls(t *testing.T) {
	t.Parallel()
	r, erasure := newRig(t), newID(t)
	over, live, waiting, queued := r.createWithSecret(), r.createWithSecret(), r.createWithSecret(), r.createWithSecret()
	other := r.account(r.place("to", "+14155550199", "variables", map[string]any{"name": secret}))
	other.call.ToE164, other.call.ContactId = "+14155550199", contactOf("+14155550199")
	for _, a := range []*account{over, other} {
		a.publish(a.dialing(), a.answered(), a.ended("completed", "normal_clearing"), a.spokeSecret(), a.captured(1000))
	}
	live.publish(live.dialing(), live.answered())
	waiting.publish(waiting.dialing(), waiting.ended("completed", "normal_clearing"), waiting.spokeSecret())
	if n := r.countSecretRows(); n != 8 {
		t.Fatalf("rows with the secret before the erasure = %d, want 5 requests and 3 calls", n)
	}
	r.erase(erasure, 1)
	live.publish(live.ended("completed", "normal_clearing"), live.spokeSecret(), live.captured(1000))
	waiting.publish(waiting.captured(1000))
	if n := r.countSecretRows(); n != 2 {
		t.Errorf("rows with the secret = %d, want 2: the other person's request and call", n)
	}
	for _, a := range []*account{over, live, waiting, queued} {
		if published := r.requestEvents(a.request); !slices.Equal(published, []string{"requested", "erased"}) {
			t.Errorf("events in call-requests.v1 = %v, want requested, erased", published)
		}
	}
	if published := r.requestEvents(other.request); !slices.Equal(published, []string{"requested"}) {
		t.Errorf("events of the other request = %v, want requested", published)
	}
	got := r.want(http.StatusOK, "GET", "/v1/calls/"+live.id(), nil)
	testkit.Members(t, "call", got, map[string]any{"summary": nil, "outcome": "interested", "status": "completed"})
	r.wantErasedEvents(erasure, over, live, waiting, queued)

	r.erase(erasure, 1) // if the erasure is ordered again, the same steps must be reported
	if n := r.countSecretRows(); n != 2 {
		t.Errorf("rows with the secret after the second order = %d, want 2", n)
	}
	if steps := r.reportedSteps(); len(steps) != 2 {
		t.Errorf("steps: length of steps = %d, want 2", len(steps))
	} else if !sameSteps(steps[0], steps[1], waiting.id()) {
		t.Error("steps: sameSteps(steps[0], steps[1], waiting.id()) = false, want true")
	}
}

// The order to erase must follow the events that were published before the erasure. Each later
// event must be marked as an event of an erased person.
func (r *rig) wantErasedEvents(erasure uuid.UUID, over, live, waiting, queued *account) {
	r.t.Helper()
	published := map[string][]string{}
	for _, f := range outboxEvents[eventv1.CallEvent](r, kafka.CallEvents) {
		word := "erased"
		if public := f.GetPublic(); public != nil {
			word = public.GetType()
			if public.GetErased() {
				word += " of an erased person"
			}
			if strings.Contains(string(public.GetBody()), secret) {
				word += " with the secret"
			}
		} else if len(f.GetErased().GetEventIds()) != 8 {
			r.t.Errorf("the erasure names %v", f.GetErased().GetEventIds())
		}
		published[f.GetCallId()] = append(published[f.GetCallId()], word)
	}
	for a, want := range map[*account]string{
		over: "call.answered, call.completed with the secret, erased", live: "call.answered, erased, call.completed of an erased person",
		waiting: "call.completed of an erased person",
	} {
		if got := strings.Join(published[a.id()], ", "); got != want {
			r.t.Errorf("events in call-events.v1 = %q, want %q", got, want)
		}
	}
	want := []string{"calls", ":"}
	for _, a := range []*account{over, live, waiting, queued} {
		want = append(want, "dialer "+a.request.String())
	}
	steps := r.reportedSteps()
	if len(steps) != 1 {
		r.t.Fatalf("reported %q", steps)
	}
	for _, part := range append(want, "webhook-dispatcher "+over.id(), "webhook-dispatcher "+live.id()) {
		if !strings.Contains(steps[0], part) {
			r.t.Errorf("reported %q, want %q in it", steps[0], part)
		}
	}
	if len(strings.Fields(steps[0])) != 2+2*6 {
		r.t.Errorf("reported %q", steps[0])
	}
}

// sameSteps compares two reports. It ignores the steps of startedCall, because that call published
// its first event between the two reports.
func sameSteps(first, second, startedCall string) bool {
	a, b := strings.Fields(first), strings.Fields(strings.ReplaceAll(second, " webhook-dispatcher "+startedCall, ""))
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// The pre-check allows the second request after the erasure, but the order to erase arrives later.
// This order must not erase the second request.
func TestErasure_KeepsARequestCreatedAfterTheErasure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := r.createWithSecret()
	r.peers.set(func(p *fakePeers) { p.preCheck = allowAfter(1) })
	since := r.createWithSecret()
	r.erase(newID(t), 1)
	if n := r.countSecretRows(); n != 1 {
		t.Errorf("kept: n = %v, want 1", n)
	} else if !slices.Equal(r.requestEvents(since.request), []string{"requested"}) {
		t.Errorf("kept: published events = %v, want %v", r.requestEvents(since.request), []string{"requested"})
	}
	since.publish(since.dialing(), since.ended("completed", "normal_clearing"), since.spokeSecret())
	before.publish(before.dialing(), before.ended("completed", "normal_clearing"), before.spokeSecret())
	if n := r.countSecretRows(); n != 2 {
		t.Errorf("%d rows hold the secret, want request and call since", n)
	}
	r.erase(newID(t), 2)
	if n := r.countSecretRows(); n != 0 {
		t.Errorf("%d rows hold the secret after the second erasure", n)
	}
}

func allowAfter(erasures int64) func(*compliancev1.PreCheckRequest) (*compliancev1.PreCheckResponse, error) {
	return func(q *compliancev1.PreCheckRequest) (*compliancev1.PreCheckResponse, error) {
		answer, err := allow(q)
		answer.GetAllowed().Erasures = erasures
		return answer, err
	}
}

func TestErasure_ConcurrentRequestIsErasedOrNotCreated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.peers.set(func(p *fakePeers) {
		p.preCheck = func(q *compliancev1.PreCheckRequest) (*compliancev1.PreCheckResponse, error) {
			answer, err := allow(q)
			r.erase(newID(t), 1) // the erasure arrives between the pre-check and the commit
			return answer, err
		}
	})
	for _, key := range []string{"", "order-1"} {
		a := r.do("POST", "/v1/calls", r.order("variables", map[string]any{"name": secret}, "idempotency_key", orNil(key)))
		if a.status != http.StatusUnprocessableEntity {
			t.Errorf("with key %q: a.status = %v, want %v; a.body = %v", key, a.status, http.StatusUnprocessableEntity, a.body)
		} else if a.code() != "consent_withdrawn" {
			t.Errorf(`with key %q: a.code() = %q, want "consent_withdrawn"; a.body = %v`, key, a.code(), a.body)
		}
	}
	if n := r.count("SELECT count(*) FROM call_requests") + r.count("SELECT count(*) FROM outbox WHERE topic = 'call-requests.v1'"); n != 0 {
		t.Errorf("%d requests and orders were written", n)
	}
	r.peers.set(func(p *fakePeers) { p.preCheck = allowAfter(1) })
	r.place("idempotency_key", "order-1")

	r.peers.set(func(p *fakePeers) { p.preCheck = allowAfter(1) })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { r.do("POST", "/v1/calls", r.order("variables", map[string]any{"name": secret})) })
	}
	r.erase(newID(t), 2)
	all.Wait()
	if n := r.countSecretRows(); n != 0 {
		t.Errorf("%d requests of an erased person were placed", n)
	}
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// The first call was stored before the erasure was ordered. The events of the second call arrive
// after the order. The third call began after the erasure and must not be erased.
func TestErasure_ErasesCallsOfAnInboundCaller(t *testing.T) {
	t.Parallel()
	r, erasure := newRig(t), newID(t)
	known, late, since := r.account(uuid.Nil), r.account(uuid.Nil), r.account(uuid.Nil)
	for _, a := range []*account{known, late, since} {
		a.call.From = person
	}
	known.publish(known.ringing(), known.answered(), known.ended("completed", "normal_clearing"), known.spokeSecret())
	r.erase(erasure, 1)
	forgotten := func(a *account) *eventv1.DialEvent {
		return a.event(func(*eventv1.Call) {}, func(ev *eventv1.DialEvent) {
			ev.Event = &eventv1.DialEvent_Erased{Erased: &eventv1.CallErased{ErasureId: erasure.String()}}
		})
	}
	// the dialer reports the erasure of each call after the other events of the call
	for _, a := range []*account{known, late} {
		if a == late {
			a.publish(a.ringing(), a.answered(), a.ended("completed", "normal_clearing"), a.spokeSecret())
		}
		a.publish(forgotten(a))
	}
	since.publish(since.ringing(), since.answered(), since.ended("completed", "normal_clearing"), since.spokeSecret())
	if n := r.countSecretRows(); n != 1 {
		t.Errorf("kept: n = %v, want 1", n)
	} else if got := r.count("SELECT count(*) FROM calls WHERE id = $1 AND erased_at IS NULL", since.id()); got != 1 {
		t.Errorf("kept: r.count = %v, want 1", got)
	}
	r.erase(erasure, 1)
	if n := r.countSecretRows(); n != 1 {
		t.Errorf("calls with the secret after the second order = %d, want the newer one", n)
	}
	steps := strings.Join(r.reportedSteps(), "\n")
	for _, want := range []string{
		"calls : webhook-dispatcher " + known.id(), "calls " + known.id() + ": webhook-dispatcher " + known.id(),
		"calls " + late.id() + ": webhook-dispatcher " + late.id(),
	} {
		if !strings.Contains(steps, want) {
			t.Errorf("reported\n%s\nwant %q", steps, want)
		}
	}
}

// The erasure and one event of the call are applied at the same time. Different rounds use
// different events.
func TestErasure_ConcurrentCallEventsLeaveNoPersonalData(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for round := range 40 {
		r.peers.set(func(p *fakePeers) { p.preCheck = allowAfter(int64(round)) })
		a := r.createWithSecret()
		events := []*eventv1.DialEvent{a.dialing(), a.ringing(), a.answered(), a.ended("completed", "normal_clearing"),
			a.spokeSecret()}
		var both sync.WaitGroup
		begin := make(chan struct{}) // closing this channel starts the erasure and the event at the same time
		both.Go(func() {
			for n, event := range events {
				if n == round%len(events) {
					close(begin)
				}
				if err := r.applyEvent(kafka.DialEvents, a.request.String(), event); err != nil && !kafka.IsSkip(err) {
					t.Errorf("round %d: %v", round, err)
				}
			}
			if err := r.applyEvent(kafka.WalletEvents, a.request.String(), a.captured(1000)); err != nil && !kafka.IsSkip(err) {
				t.Errorf("round %d: %v", round, err)
			}
		})
		both.Go(func() {
			<-begin
			order := &eventv1.ContactEvent{WorkspaceId: r.workspace.String(), Event: &eventv1.ContactEvent_Erased{Erased: &eventv1.Erased{
				ErasureId: uuid.NewString(), PhoneE164: person, ContactId: contactOf(person), Erasures: int64(round) + 1,
			}}}
			if err := r.applyEvent(kafka.Contacts, "person", order); err != nil {
				t.Errorf("round %d: %v", round, err)
			}
		})
		both.Wait()
		if n := r.countSecretRows(); n != 0 {
			t.Fatalf("round %d: %d rows hold the secret", round, n)
		}
	}
	gone := map[string]bool{}
	for _, f := range outboxEvents[eventv1.CallEvent](r, kafka.CallEvents) {
		gone[f.GetCallId()] = gone[f.GetCallId()] || f.GetErased() != nil
		if body := string(f.GetPublic().GetBody()); gone[f.GetCallId()] && strings.Contains(body, secret) {
			t.Errorf("event after the erasure contains the secret: %s", body)
		}
	}
}
