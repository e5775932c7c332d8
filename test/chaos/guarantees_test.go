package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/money"
	"ringfence.dev/test/kit"
)

// scene is the data of a run with one call that was requested, dialed, ended, charged and reported.
type scene struct {
	j     *checker
	known observedState
	log   []kit.LogLine
	order *order
}

func aScene() *scene {
	t := &tenant{Workspace: &kit.Workspace{ID: "w1"}, name: "steady"}
	callID, at, talked := "c1", time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), int32(3)
	c := call{CallID: callID, Status: "completed", To: "+14155550101", Charged: money.Price(perMinute, talked, 1)}
	c.Timings.DialedAt, c.Timings.TalkSeconds = &at, &talked
	o := newOrder(t, "order-1", c.To)
	o.id = "r1"
	return &scene{
		j: &checker{w: &testStack{}, l: &load{orders: []*order{o}, forbiddenSpans: map[string][]span{}}, r: newReport()},
		known: observedState{
			tenant: t,
			requests: []request{
				{
					ID:           "r1",
					Status:       "completed",
					CallID:       &callID,
					To:           c.To,
					ExternalRef:  &o.name,
					ScheduledFor: at.Add(-time.Second),
				},
			},
			calls: map[string]call{callID: c},
			arrived: []kit.Delivery{
				{
					CallID:   callID,
					Type:     "call.ringing",
					EventID:  "e1",
					Sequence: 1,
					Signed:   true,
				},
				{CallID: callID, Type: "call.answered", EventID: "e2", Sequence: 2, Signed: true},
				{CallID: callID, Type: "call.completed", EventID: "e3", Sequence: 3, Signed: true},
			},
		},
		log: []kit.LogLine{
			{Kind: "originate", CallID: callID, To: c.To},
			{Kind: "ringing", CallID: callID, To: c.To},
			{
				Kind:   "answer",
				CallID: callID,
				To:     c.To,
				At:     at,
			},
			{Kind: "hangup", CallID: callID, To: c.To, At: at.Add(2500 * time.Millisecond)},
		},
		order: o,
	}
}

func (s *scene) judged() *Report {
	owned := map[string]bool{}
	for _, req := range s.known.requests {
		if req.CallID != nil {
			owned[*req.CallID] = true
		}
	}
	s.j.count(s.known)
	s.j.checkResponses(s.known, dialCounts(s.log))
	s.j.checkGates(s.known)
	s.j.checkWebhooks(s.known)
	s.j.checkCharges(s.known)
	s.j.checkTalkTimes(s.known, s.log)
	s.j.checkDials(s.log, owned)
	return s.j.r
}

func (s *scene) change(change func(*call)) {
	c := s.known.calls["c1"]
	change(&c)
	s.known.calls["c1"] = c
}

func TestConvertSippCall_RefusedAttemptIsNoSecondDial(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name     string
		call     kit.SippCall
		followed bool
		breaches int
	}{
		{"refused by a trunk that another trunk follows", kit.SippCall{Dials: 1, Refused: 503, Over: at}, true, 0},
		{"refused by the last trunk", kit.SippCall{Dials: 1, Refused: 503, Over: at}, false, 1},
		{"refused after it rang", kit.SippCall{Dials: 1, Refused: 503, Rang: at, Over: at}, true, 1},
		{"refused because of the number", kit.SippCall{Dials: 1, Refused: 404, Over: at}, true, 1},
		{"dialed twice", kit.SippCall{Dials: 2, Refused: 503, Over: at}, true, 1},
	} {
		s := aScene()
		tt.call.CallID, tt.call.To, tt.call.Begun = "c2", "+14155550101", at
		s.log = append(s.log, convertSippCall(&tt.call, tt.followed)...)
		if got := len(s.judged().Breaches[atMostOnceDialing]); got != tt.breaches {
			t.Errorf("%s: %d breaches, want %d", tt.name, got, tt.breaches)
		}
	}
}

func TestChecker_ReportsEachViolatedGuarantee(t *testing.T) {
	t.Parallel()
	if r := aScene().judged(); !r.Holds() {
		t.Fatalf("a good run is found broken:\n%s", r)
	}
	tests := []struct {
		name     string
		fault    func(*scene)
		violated guarantee
		names    string
	}{
		{
			"the carrier received two originates of one call",
			func(s *scene) { s.log = append(s.log, s.log[0]) },
			atMostOnceDialing,
			"c1",
		},
		{"a call request had two calls", func(s *scene) {
			s.log = append(s.log, kit.LogLine{Kind: "originate", CallID: "c2", To: "+14155550101"})
		}, atMostOnceDialing, "c2"},
		{"a call has no call request",
			func(s *scene) {
				s.known.calls["c3"] = call{CallID: "c3", Status: "busy"}
				s.tell("c3",
					"call.busy")
			}, atMostOnceDialing, "c3"},
		{"dialed before its time", func(s *scene) {
			s.known.requests[0].ScheduledFor = s.known.requests[0].ScheduledFor.Add(time.Minute)
		}, dialTimeCompliance, "c1"},
		{"dialed after an opt-out", func(s *scene) {
			s.j.l.forbiddenSpans["w1 +14155550101"] = []span{{from: s.known.calls["c1"].Timings.DialedAt.Add(-time.Second)}}
		}, dialTimeCompliance, "c1"},
		{"an answered call is not charged", func(s *scene) { s.change(func(c *call) { c.Charged = 0 }) }, exactMoney, "c1"},
		{"a failed call is charged", func(s *scene) {
			s.change(func(c *call) { c.Status = "failed" })
			s.known.arrived[2].Type = "call.failed"
		}, exactMoney, "c1"},
		{"a call is charged for less than its talk time", func(s *scene) { s.log[3].At = s.log[3].At.Add(time.Second) },
			exactMoney, "c1"},
		{"an unanswered call is charged", func(s *scene) { s.log = slices.Delete(s.log, 2, 3) }, exactMoney, "c1"},
		{"a request never ends", func(s *scene) { s.known.requests[0].Status = "dialing" }, everyRequestEnds, "steady"},
		{
			"a call has two terminal events",
			func(s *scene) { s.known.arrived[0].Type = "call.failed" },
			everyRequestEnds,
			"c1",
		},
		{"wrong terminal event", func(s *scene) { s.known.arrived[2].Type = "call.busy" }, everyRequestEnds, "c1"},
		{"no terminal event", func(s *scene) { s.known.arrived = s.known.arrived[:2] }, noLostEvent, "c1"},
		{"no terminal event, although the ringing event is recorded", func(s *scene) {
			s.known.tenant.pausesWebhooks, s.known.arrived = true, s.known.arrived[1:2]
			s.addSkipped("call.ringing", 1)
		}, noLostEvent, "c1"},
		{"a call has two terminal events, one of them skipped",
			func(s *scene) { s.known.tenant.pausesWebhooks = true; s.addSkipped("call.failed", 3) }, everyRequestEnds, "c1"},
		{"an event was skipped without a pause", func(s *scene) {
			s.known.arrived = s.known.arrived[1:]
			s.addSkipped("call.ringing", 1)
		}, noLostEvent, "never paused"},
		{
			"an event before the terminal event is missing",
			func(s *scene) { s.known.arrived = s.known.arrived[1:] },
			noLostEvent,
			"event 1 of call c1",
		},
		{"an event is not signed", func(s *scene) { s.known.arrived[0].Signed = false }, noLostEvent, "not signed"},
		{"an event of another workspace's call", func(s *scene) { s.tell("c9", "call.busy") }, tenantIsolation, "c9"},
		{"one idempotency key created two call requests", func(s *scene) {
			s.known.requests = append(s.known.requests, request{ID: "r2", Status: "blocked", ExternalRef: &s.order.name})
		}, trueResponses, "r2"},
		{"an accepted call request does not exist", func(s *scene) { s.order.id = "r9" }, durability, "r9"},
		{"the call of a call request does not exist", func(s *scene) { s.known.calls = map[string]call{} }, durability, "c1"},
		{"a cancel returned 200 and did not cancel", func(s *scene) { s.order.cancelStatus = 200 }, trueResponses, "r1"},
		{"a cancel returned 409 and canceled",
			func(s *scene) { s.order.cancelStatus, s.known.requests[0].Status = 409, "canceled" }, trueResponses, "r1"},
		{"a canceled request was dialed", func(s *scene) { s.known.requests[0].Status = "canceled" }, trueResponses, "r1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := aScene()
			test.fault(s)
			r := s.judged()
			if !strings.Contains(strings.Join(r.Breaches[test.violated], "\n"), test.names) || r.Holds() {
				says, _ := test.violated.describe()
				t.Errorf("not found under %q:\n%s", says, r)
			}
		})
	}
}

func (s *scene) tell(callID, kind string) {
	s.known.arrived = append(
		s.known.arrived,
		kit.Delivery{CallID: callID, Type: kind, EventID: "e " + callID, Sequence: 1, Signed: true},
	)
}

// addSkipped adds an event that was skipped because the subscription was paused.
func (s *scene) addSkipped(kind string, sequence int) {
	callID := "c1"
	s.known.deliveries = append(
		s.known.deliveries,
		delivery{ID: "d1", EventID: "e " + kind, Type: kind, CallID: &callID, Sequence: sequence, Status: "skipped"},
	)
}
