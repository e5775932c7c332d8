package httpapi_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/calls/internal/callstate"
)

// account publishes the events of the dialer and of billing-wallet for one request.
type account struct {
	r       *rig
	request uuid.UUID // uuid.Nil for an inbound call
	call    *eventv1.Call
	began   time.Time
}

func (r *rig) account(request uuid.UUID) *account {
	r.t.Helper()
	a := &account{r: r, request: request, began: time.Now().UTC().Truncate(time.Millisecond)}
	a.call = &eventv1.Call{
		CallId: newID(r.t).String(), Direction: "outbound", From: "+15005550006", ToE164: "+14155550100", AgentId: r.agent.String(),
		ContactId: newID(r.t).String(), Status: "initiated", QueuedAt: a.at(0), DialedAt: a.at(1), Version: 1,
	}
	if request == uuid.Nil {
		a.call.Direction, a.call.Status, a.call.From, a.call.ContactId, a.call.QueuedAt = "inbound", "ringing", "anonymous", "", nil
	}
	return a
}

func (a *account) at(seconds int) *timestamppb.Timestamp {
	return timestamppb.New(a.began.Add(time.Duration(seconds) * time.Second))
}

func (a *account) id() string { return a.call.GetCallId() }

// event returns a dial event. If change is nil, the event contains no call.
func (a *account) event(change func(*eventv1.Call), set func(*eventv1.DialEvent)) *eventv1.DialEvent {
	ev := &eventv1.DialEvent{WorkspaceId: a.r.workspace.String(), OccurredAt: a.at(5)}
	if a.request != uuid.Nil {
		ev.CallRequestId = a.request.String()
	}
	set(ev)
	if change == nil {
		return ev
	}
	change(a.call)
	ev.Call = proto.CloneOf(a.call)
	a.call.Version++
	return ev
}

func (a *account) fenced() *eventv1.DialEvent {
	return a.event(nil, func(ev *eventv1.DialEvent) { ev.Event = &eventv1.DialEvent_Dialing{Dialing: &eventv1.Dialing{}} })
}

func (a *account) dialing() *eventv1.DialEvent {
	return a.event(func(*eventv1.Call) {}, func(ev *eventv1.DialEvent) { ev.Event = &eventv1.DialEvent_Dialing{Dialing: &eventv1.Dialing{}} })
}

func (a *account) ringing() *eventv1.DialEvent {
	return a.event(func(c *eventv1.Call) { c.Status, c.RingingAt = "ringing", a.at(2) },
		func(ev *eventv1.DialEvent) { ev.Event = &eventv1.DialEvent_Ringing{Ringing: &eventv1.Ringing{}} })
}

func (a *account) answered() *eventv1.DialEvent {
	return a.event(func(c *eventv1.Call) { c.Status, c.AnsweredAt, c.RingSeconds = "in_progress", a.at(3), proto.Int32(1) },
		func(ev *eventv1.DialEvent) { ev.Event = &eventv1.DialEvent_Answered{Answered: &eventv1.Answered{}} })
}

func (a *account) ended(status, cause string) *eventv1.DialEvent {
	return a.event(func(c *eventv1.Call) {
		c.Status, c.HangupCause, c.EndedAt, c.TotalSeconds, c.Disposition = status, cause, a.at(9), proto.Int32(8), "human"
		if status == "completed" {
			c.TalkSeconds = proto.Int32(6)
		}
		if status == "completed" && (a.request != uuid.Nil || c.Priced) {
			c.BillableSeconds = 6
		}
		if status == "failed" {
			c.ErrorCode, c.ErrorDetail = "invalid_number", "The number is not assigned."
		}
	}, func(ev *eventv1.DialEvent) { ev.Event = &eventv1.DialEvent_Ended{Ended: &eventv1.Ended{}} })
}

func (a *account) analysed() *eventv1.DialEvent {
	return a.event(func(*eventv1.Call) {}, func(ev *eventv1.DialEvent) {
		ev.Event = &eventv1.DialEvent_Analysed{Analysed: &eventv1.Analysed{
			Outcome: "interested", SummaryJson: []byte(`{"outcome":"interested","confidence":0.9}`), TranscriptJson: []byte(`{"turns":[]}`),
		}}
	})
}

func (a *account) captured(micro int64) *eventv1.WalletEvent {
	return &eventv1.WalletEvent{CallRequestId: a.requestID(), WorkspaceId: a.r.workspace.String(),
		Event: &eventv1.WalletEvent_Captured{Captured: &eventv1.Captured{CallId: a.id(), AmountMicro: micro, Currency: "USD"}}}
}

// requestID is empty for an inbound call.
func (a *account) requestID() string {
	if a.request == uuid.Nil {
		return ""
	}
	return a.request.String()
}

func (a *account) released() *eventv1.WalletEvent {
	return &eventv1.WalletEvent{CallRequestId: a.requestID(), WorkspaceId: a.r.workspace.String(),
		Event: &eventv1.WalletEvent_Released{Released: &eventv1.Released{CallId: a.id()}}}
}

func (a *account) publish(events ...proto.Message) {
	a.r.t.Helper()
	for _, event := range events {
		a.r.mustDeliver(topicOf(event), a.request.String(), event)
	}
}

func topicOf(event proto.Message) kafka.Topic {
	if _, wallet := event.(*eventv1.WalletEvent); wallet {
		return kafka.WalletEvents
	}
	return kafka.DialEvents
}

func (a *account) read() map[string]any {
	a.r.t.Helper()
	return a.r.want(http.StatusOK, "GET", "/v1/calls/"+a.id(), nil)
}

func TestEvents_EachEventUpdatesTheRequestAndTheCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place("external_ref", "order-1042"))
	a.publish(a.fenced())
	if req := r.request(a.request); req["status"] != "dialing" {
		t.Errorf(`after the fence: req["status"] = %q, want "dialing"`, req["status"])
	} else if req["call_id"] != nil {
		t.Errorf(`after the fence: req["call_id"] = %v, want nil`, req["call_id"])
	}
	a.publish(a.dialing())
	if req := r.request(a.request); req["call_id"] != a.id() {
		t.Errorf(`after the originate: req["call_id"] = %v, want %v`, req["call_id"], a.id())
	} else if req["dialed_at"] == nil {
		t.Error(`after the originate: req["dialed_at"] = nil, want a value`)
	}
	a.publish(a.ringing(), a.answered(), a.ended("completed", "normal_clearing"))
	if req := r.request(a.request); req["status"] != "completed" ||
		req["completed_at"] != a.at(9).AsTime().Format("2006-01-02T15:04:05.000Z") {
		t.Errorf("after the end: %v", req)
	}
	if got := r.types(); !slices.Equal(got, []string{"call.ringing", "call.answered"}) {
		t.Errorf("events before charge and analysis = %v", got)
	}
	a.publish(a.analysed())
	if len(r.events()) != 2 {
		t.Error("call.completed did not wait for the charge")
	}
	a.publish(a.captured(5000))
	if got := r.types(); !slices.Equal(got, []string{"call.ringing", "call.answered", "call.completed"}) {
		t.Fatalf("events = %v", got)
	}
	events, full := r.events(), a.read()
	if diff := cmp.Diff(full, events[2]["data"]); diff != "" {
		t.Errorf("event data and GET differ (-get +event):\n%s", diff)
	}
	testkit.Members(t, "call", full, map[string]any{
		"credits_charged": 0.005,
		"outcome":         "interested",
		"external_ref":    "order-1042",
		"campaign_id":     nil,
		"call_request_id": a.request.String(),
	})
	for _, key := range []string{"transcript", "recording_url", "id"} {
		if _, present := full[key]; present {
			t.Errorf("the key %s is present", key)
		}
	}
	if status := events[0]["data"].(map[string]any)["status"]; status != "ringing" {
		t.Errorf(`call.ringing: status = %q, want "ringing"`, status)
	} else if events[0]["id"] != callstate.EventID(uuid.MustParse(a.id()), openapi.EventTypeCallRinging).String() {
		t.Errorf(`call.ringing: events[0]["id"] = %q, want %q`,
			events[0]["id"], callstate.EventID(uuid.MustParse(a.id()), openapi.EventTypeCallRinging).String())
	}
}

// The handlers of the service apply every event twice, in random order.
func TestEvents_GiveTheSameRowsInAnyOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var want, wantRequest map[string]any
	for round := range 12 {
		a := r.account(r.place())
		story := []proto.Message{
			a.fenced(), a.dialing(), a.ringing(), a.answered(), a.ended("completed", "normal_clearing"), a.analysed(), a.captured(5000),
		}
		story = append(story, story...)
		random := rand.New(rand.NewPCG(uint64(round), 7))
		if round > 0 {
			random.Shuffle(len(story), func(i, j int) { story[i], story[j] = story[j], story[i] })
		}
		a.publish(story...)
		full, req := a.read(), r.request(a.request)
		terminal := 0
		for _, e := range r.events() {
			if data := e["data"].(map[string]any); data["call_id"] == a.id() && e["type"] == "call.completed" {
				terminal++
				if diff := cmp.Diff(full, data); diff != "" {
					t.Errorf("round %d: call.completed differs from GET:\n%s", round, diff)
				}
			}
		}
		if terminal != 1 {
			t.Errorf("round %d: %d terminal events", round, terminal)
		}
		for _, volatile := range []string{
			"call_id", "call_request_id", "contact_id", "timings", "id", "created_at", "updated_at", "dialed_at",
			"completed_at", "scheduled_for",
		} {
			delete(full, volatile)
			delete(req, volatile)
		}
		if round == 0 {
			want, wantRequest = full, req
		}
		if diff := cmp.Diff(want, full) + cmp.Diff(wantRequest, req); diff != "" {
			t.Errorf("round %d differs from the order of the events:\n%s", round, diff)
		}
	}
}

func TestEvents_EndOfACallSetsTheResultOfTheRequest(t *testing.T) {
	t.Parallel()
	tests := []struct{ status, cause, event, request, code string }{
		{"no_answer", "no_answer", "call.no_answer", "completed", ""},
		{"busy", "user_busy", "call.busy", "completed", ""},
		{"failed", "unallocated_number", "call.failed", "failed", "invalid_number"},
		{"canceled", "originator_cancel", "call.failed", "failed", "internal_error"},
	}
	for _, tt := range tests {
		t.Run(tt.status, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.account(r.place())
			end := a.ended(tt.status, tt.cause)
			a.publish(end, end, a.released())
			req := r.request(a.request)
			code, _ := req["error_code"].(string)
			if req["status"] != tt.request {
				t.Errorf("request: status = %v, want %v", req["status"], tt.request)
			}
			if code != tt.code {
				t.Errorf("request: code = %v, want %v", code, tt.code)
			}
			if req["completed_at"] == nil {
				t.Errorf("request: completed_at = nil, want a value")
			}
			if got := r.types(); !slices.Equal(got, []string{tt.event}) {
				t.Errorf("events = %v, want %s once, immediately", got, tt.event)
			}
			full := a.read()
			testkit.Members(t, "call", full, map[string]any{
				"credits_charged": nil, "hangup_cause": tt.cause, "summary": nil,
			})
		})
	}
}

func TestEvents_RequestCanEndWithoutACall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place())
	later := a.at(3600)
	moved := a.event(nil, func(ev *eventv1.DialEvent) {
		ev.Event = &eventv1.DialEvent_Rescheduled{Rescheduled: &eventv1.Rescheduled{ScheduledFor: later}}
	})
	a.publish(moved, moved)
	if req := r.request(a.request); req["status"] != "queued" {
		t.Errorf(`after rescheduled: req["status"] = %q, want "queued"`, req["status"])
	} else if req["scheduled_for"] != later.AsTime().Format("2006-01-02T15:04:05.000Z") {
		t.Errorf(`after rescheduled: req["scheduled_for"] = %v, want %v`,
			req["scheduled_for"], later.AsTime().Format("2006-01-02T15:04:05.000Z"))
	}
	a.publish(a.fenced(), a.event(nil, func(ev *eventv1.DialEvent) {
		ev.Event = &eventv1.DialEvent_Blocked{Blocked: &eventv1.Blocked{ErrorCode: "recipient_dnd", ErrorDetail: "The number opted out."}}
	}))
	req := r.request(a.request)
	testkit.Members(t, "request", req, map[string]any{
		"status": "blocked", "error_code": "recipient_dnd", "error_detail": "The number opted out.",
	})
	if req["completed_at"] == nil {
		t.Errorf("completed_at = nil, want a value")
	}
	b := r.account(r.place())
	b.publish(b.event(nil, func(ev *eventv1.DialEvent) {
		ev.Event = &eventv1.DialEvent_Failed{Failed: &eventv1.Failed{ErrorCode: "queue_expired"}}
	}), b.fenced())
	if req := r.request(b.request); req["status"] != "failed" {
		t.Errorf(`after failed: req["status"] = %q, want "failed"`, req["status"])
	} else if req["error_code"] != "queue_expired" {
		t.Errorf(`after failed: req["error_code"] = %q, want "queue_expired"`, req["error_code"])
	}
	if got, want := r.eventTypes(), []string{"call_request.blocked", "call_request.failed"}; !slices.Equal(got, want) {
		t.Errorf("events = %v, want %v", got, want)
	}
}

func TestEvents_InboundCallDoesNotWaitForACharge(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(uuid.Nil)
	a.publish(a.ringing(), a.answered(), a.ended("completed", "normal_clearing"), a.analysed())
	if got := r.types(); !slices.Equal(got, []string{"call.ringing", "call.answered", "call.completed"}) {
		t.Errorf("events = %v, want all without waiting for a charge", got)
	}
	full := a.read()
	testkit.Members(t, "call", full, map[string]any{"direction": "inbound", "from": "anonymous", "contact_id": nil})
	if full["timings"].(map[string]any)["queued_at"] != nil {
		t.Errorf("call: full[\"timings\"].(map[string]any)[\"queued_at\"] = %v, want nil",
			full["timings"].(map[string]any)["queued_at"])
	}
}

func TestEvents_StoresAChargeThatArrivesBeforeItsCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place())
	a.publish(a.captured(5000), a.ended("completed", "normal_clearing"), a.analysed())
	if got := r.types(); !slices.Equal(got, []string{"call.completed"}) {
		t.Errorf("events: got = %v, want %v", got, []string{"call.completed"})
	} else if value := a.read()["credits_charged"]; value != 0.005 {
		t.Errorf(`events: a.read()["credits_charged"] = %v, want 0.005`, value)
	}
	a.publish(a.captured(9000), a.released())
	if a.read()["credits_charged"] != 0.005 {
		t.Error("a second capture changed the charge")
	}
}

func TestCompletedEvent_IsPublishedAtItsDeadlineWithoutChargeOrAnalysis(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		have  func(*account) []proto.Message
		late  func(*account) []proto.Message
		kind  string
		shown string
		optIn []string
	}{
		{"the charge is late", func(a *account) []proto.Message { return []proto.Message{a.analysed()} },
			func(a *account) []proto.Message { return []proto.Message{a.captured(5000)} }, "charge", "credits_charged", nil},
		{
			"the analysis is late",
			func(a *account) []proto.Message { return []proto.Message{a.captured(5000)} },
			func(a *account) []proto.Message { return []proto.Message{a.analysed()} },
			"analysis",
			"outcome",
			[]string{"call.analyzed"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.account(r.place())
			a.publish(a.ended("completed", "normal_clearing"))
			a.publish(tt.have(a)...)
			r.complete()
			if len(r.events()) != 0 {
				t.Fatal("call.completed was published before its deadline")
			}
			r.exec(`UPDATE calls SET end_learned_at = end_learned_at - interval '11 seconds', completes_at = completes_at - interval '11 seconds'`)
			r.complete()
			r.complete()
			if got := r.types(); !slices.Equal(got, []string{"call.completed"}) {
				t.Fatalf("events = %v, want call.completed once", got)
			}
			if data := r.events()[0]["data"].(map[string]any); data[tt.shown] != nil {
				t.Errorf("%s = %v in the event, want null", tt.shown, data[tt.shown])
			}
			late := tt.late(a)
			topic := map[string]kafka.Topic{"charge": kafka.WalletEvents, "analysis": kafka.DialEvents}[tt.kind]
			r.rollBack(topic, a.request.String(), late[0])
			if got := r.metric("ringfence_calls_late_events_total", tt.kind); got != 0 {
				t.Errorf("late %s in a transaction that was rolled back counted %v times, want 0", tt.kind, got)
			}
			a.publish(late...)
			if a.read()[tt.shown] == nil {
				t.Error("late event: a.read()[tt.shown] = nil, want a value")
			} else if got := r.types(); !slices.Equal(got, append([]string{"call.completed"}, tt.optIn...)) {
				t.Errorf("late event: events = %v, want call.completed and %v", got, tt.optIn)
			}
			if got := r.metric("ringfence_calls_late_events_total", tt.kind); got != 1 {
				t.Errorf("late %s counted %v times, want 1", tt.kind, got)
			}
		})
	}
}

func TestEvents_InvalidEventsAreParked(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place())
	broken := a.ringing()
	broken.Call.Status = "teleported"
	noJSON := a.analysed()
	noJSON.GetAnalysed().SummaryJson = []byte("{")
	foreign := a.ringing()
	foreign.WorkspaceId = newID(t).String()
	for name, event := range map[string]*eventv1.DialEvent{
		"an unknown status": broken, "a summary that is not JSON": noJSON, "an event of a newer build": {},
		"a request of another workspace": foreign,
	} {
		if err := r.applyEvent(kafka.DialEvents, a.request.String(), event); !kafka.IsPark(err) {
			t.Errorf("%s: %v, want it parked", name, err)
		}
	}
	if err := r.applyEvent(kafka.WalletEvents, "x", &eventv1.WalletEvent{CallRequestId: "x"}); !kafka.IsPark(err) {
		t.Errorf("an invalid request id: %v, want it parked", err)
	}
	unknown := r.account(newID(t))
	if err := r.applyEvent(kafka.DialEvents, "x", unknown.fenced()); !kafka.IsSkip(err) {
		t.Errorf("a request that this database does not have: %v, want it skipped", err)
	}
	unknown.publish(unknown.ringing())
	if unknown.read()["status"] != "ringing" {
		t.Error("the call of an unknown request is not stored")
	}
}

func TestWorkspaces_NewestVersionIsStored(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	tell := func(version int64, destinations ...string) {
		r.mustDeliver(kafka.Workspaces, r.workspace.String(), &eventv1.WorkspaceEvent{WorkspaceId: r.workspace.String(), Version: version,
			Event: &eventv1.WorkspaceEvent_Workspace{Workspace: &eventv1.Workspace{
				Currency: "USD", Destinations: destinations, KeepCallsDays: 100 * int32(version), KeepTranscriptsDays: 7,
			}}})
	}
	tell(2, "+44")
	tell(1)
	tell(2)
	if n := r.count("SELECT count(*) FROM workspaces WHERE keep_calls_days = 200 AND keep_transcripts_days = 7"); n != 1 {
		t.Error("retention of version 2 is not stored")
	}
	if a := r.do("POST", "/v1/calls", r.order()); a.code() != "validation_error" {
		t.Errorf("answer = %d %v, want the destinations of version 2", a.status, a.body)
	}
	tell(3)
	r.place()
}

func TestSummary_NullCharacterIsAccepted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place())
	event := a.analysed()
	event.GetAnalysed().SummaryJson = []byte(`{"customer_name":"a\u0000b"}`)
	a.publish(a.ended("completed", "normal_clearing"), event)
	text, err := json.Marshal(a.read()["summary"])
	if err != nil {
		t.Errorf("summary: json.Marshal: %v", err)
	} else if string(text) != `{"customer_name":"a\u0000b"}` {
		t.Errorf("summary: text = %q, want %q", string(text), `{"customer_name":"a\u0000b"}`)
	}
}
