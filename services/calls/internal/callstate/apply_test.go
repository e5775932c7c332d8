package callstate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/libs/money"
	"ringfence.dev/proto/openapi"
)

var start = time.Date(2026, 6, 4, 9, 0, 0, 0, time.UTC)

func at(seconds int) *time.Time {
	t := start.Add(time.Duration(seconds) * time.Second)
	return &t
}

func ptr[T any](v T) *T { return &v }

func eventsOfCall(end Status) []Call {
	request := uuid.MustParse("0190a000-0000-7000-8000-000000000001")
	call := Call{
		ID: uuid.MustParse("0190a000-0000-7000-8000-000000000002"), CallRequestID: &request, Direction: Outbound,
		From: "+15005550006", To: "+14155550100", Status: Initiated, Version: 1, QueuedAt: at(0), DialedAt: at(1),
	}
	events := []Call{call}
	step := func(change func(*Call)) {
		call.Version++
		change(&call)
		events = append(events, call)
	}
	step(func(c *Call) { c.Status, c.RingingAt = Ringing, at(2) })
	if end == Completed {
		step(func(c *Call) { c.Status, c.AnsweredAt, c.RingSeconds = InProgress, at(3), ptr(int32(1)) })
	}
	step(func(c *Call) {
		c.Status, c.EndedAt, c.HangupCause = end, at(9), ptr("normal_clearing")
		if end == Completed {
			c.TalkSeconds, c.BillableSeconds = ptr(int32(6)), 6
		}
	})
	return events
}

func TestApply_StatusOnlyMovesForward(t *testing.T) {
	t.Parallel()
	whole := eventsOfCall(Completed)
	tests := []struct {
		name  string
		first Call
		then  Call
		want  Status
	}{
		{"each state follows the one before", whole[0], whole[1], Ringing},
		{"ringing may be skipped", whole[0], whole[2], InProgress},
		{"ringing and in_progress may be skipped", whole[0], whole[3], Completed},
		{"a late ringing event after in_progress is ignored", whole[2], whole[1], InProgress},
		{"a repeated event changes nothing", whole[1], whole[1], Ringing},
		{"a late initiated event after the end is ignored", whole[3], whole[0], Completed},
		{"an earlier status with a higher version is ignored", whole[2], withVersion(whole[1], 9), InProgress},
		{"a second, different end is ignored", whole[3], withVersion(eventsOfCall(Failed)[2], 9), Completed},
		{"an end with the stored version is applied", whole[2], withVersion(eventsOfCall(Failed)[2], 3), Failed},
		{"an end with a lower version is applied", withVersion(whole[2], 1003), eventsOfCall(Failed)[2], Failed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			call := tt.first
			call.Apply(tt.then)
			if call.Status != tt.want {
				t.Errorf("status = %s, want %s", call.Status, tt.want)
			}
		})
	}
}

func withVersion(c Call, version int64) Call {
	c.Version = version
	return c
}

func TestEvents_GiveTheSameCallInAnyOrder(t *testing.T) {
	t.Parallel()
	waits := Waits{Charge: time.Hour, Analysis: time.Hour}
	rapid.Check(t, func(t *rapid.T) {
		end := rapid.SampledFrom([]Status{Completed, NoAnswer, Busy, Failed, Canceled}).Draw(t, "end")
		type apply func(*model)
		var events []apply
		for _, event := range eventsOfCall(end) {
			events = append(events, func(w *model) { w.take(event) })
		}
		last := eventsOfCall(end)[len(eventsOfCall(end))-1]
		if end == Completed {
			analysis := withVersion(last, last.Version+1)
			events = append(events,
				func(w *model) {
					w.analyse(analysis, Analysis{Outcome: "interested", Summary: []byte(`{"outcome":"interested"}`)})
				},
				func(w *model) { w.settle(ptr(money.Micro(5000))) })
		} else {
			events = append(events, func(w *model) { w.settle(nil) })
		}
		events = append(events, events...)

		inOrder, shuffled := newModel(waits), newModel(waits)
		for _, f := range events {
			f(inOrder)
		}
		for _, f := range rapid.Permutation(events).Draw(t, "order") {
			f(shuffled)
		}
		if shuffled.terminal != 1 {
			t.Fatalf("terminal events: shuffled.terminal = %v, want 1", shuffled.terminal)
		}
		if inOrder.terminal != 1 {
			t.Fatalf("terminal events: inOrder.terminal = %v, want 1", inOrder.terminal)
		}
		// Sequence can differ, because no public event is published for a status that is reported late
		for _, w := range []*model{inOrder, shuffled} {
			w.call.Sequence, w.call.EndLearnedAt = 0, nil
		}
		if diff := cmp.Diff(inOrder.call, shuffled.call); diff != "" {
			t.Fatalf("calls differ (-in order +shuffled):\n%s", diff)
		}
		if diff := cmp.Diff(inOrder.request, shuffled.request); diff != "" {
			t.Fatalf("requests differ (-in order +shuffled):\n%s", diff)
		}
	})
}

type model struct {
	waits    Waits
	request  Request
	call     *Call
	terminal int
}

func newModel(waits Waits) *model {
	return &model{waits: waits, request: Request{Status: RequestQueued}}
}

func (w *model) take(event Call) {
	w.request.Follow(&event, Ending{Code: "provider_unavailable"}, start)
	oldStatus := Status("")
	if w.call == nil {
		w.call = &event
		w.call.ChargeSettled, w.call.Credits = w.request.ChargeSettled, w.request.Credits
	} else {
		oldStatus = w.call.Status
		w.call.Apply(event)
	}
	w.announce(oldStatus)
}

func (w *model) analyse(event Call, a Analysis) {
	w.take(event)
	if changed, _ := w.call.Analyse(a); changed {
		w.announce(w.call.Status)
	}
}

func (w *model) settle(amount *money.Micro) {
	w.request.Settle(amount)
	if w.call != nil {
		w.call.Settle(amount)
		w.announce(w.call.Status)
	}
}

func (w *model) announce(oldStatus Status) {
	if w.call.Announce(oldStatus, start, w.waits) != "" && w.call.Closed {
		w.terminal++
	}
}

func TestAnnounce_CompletedWaitsForChargeAndAnalysis(t *testing.T) {
	t.Parallel()
	waits := Waits{Charge: 5 * time.Second, Analysis: 10 * time.Second}
	tests := []struct {
		name                       string
		charged, analysed, inbound bool
		billable                   int32
		wantAfter                  time.Duration // 0 means that the event is published immediately
	}{
		{name: "charge and analysis missing: the longer wait", billable: 6, wantAfter: 10 * time.Second},
		{name: "charge known: the wait for the analysis", charged: true, billable: 6, wantAfter: 10 * time.Second},
		{name: "analysis known: the wait for the charge", analysed: true, billable: 6, wantAfter: 5 * time.Second},
		{name: "charge and analysis known: immediately", charged: true, analysed: true, billable: 6},
		{name: "nothing billable: no charge to wait for", analysed: true},
		{name: "an inbound call without a price is not charged", analysed: true, inbound: true},
		{
			name: "an inbound call with a price: the wait for the charge", analysed: true, inbound: true, billable: 6,
			wantAfter: 5 * time.Second,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := Call{Status: Completed, BillableSeconds: tt.billable, ChargeSettled: tt.charged, Analysed: tt.analysed}
			if !tt.inbound {
				c.CallRequestID = ptr(uuid.New())
			}
			event := c.Announce(InProgress, start, waits)
			if tt.wantAfter == 0 {
				if event != openapi.EventTypeCallCompleted {
					t.Fatalf("event = %v, want %v", event, openapi.EventTypeCallCompleted)
				}
				if !c.Closed {
					t.Fatalf("event: c.Closed = false, want true")
				}
				if c.CompletesAt != nil {
					t.Fatalf("event: c.CompletesAt = %v, want nil", c.CompletesAt)
				}
				if c.Sequence != 1 {
					t.Fatalf("event: c.Sequence = %v, want 1", c.Sequence)
				}
				return
			}
			if event != "" {
				t.Fatalf("event = %q, want \"\"", event)
			}
			if c.CompletesAt == nil {
				t.Fatalf("event: c.CompletesAt = nil, want a value")
			}
			if !c.CompletesAt.Equal(start.Add(tt.wantAfter)) {
				t.Fatalf("event: c.CompletesAt.Equal(start.Add(tt.wantAfter)) = false, want true")
			}
			if event = c.Announce(Completed, start.Add(tt.wantAfter-time.Nanosecond), waits); event != "" {
				t.Errorf("before the deadline: event %q", event)
			}
			if event = c.Announce(Completed, start.Add(tt.wantAfter), waits); event != openapi.EventTypeCallCompleted {
				t.Errorf("at the deadline: event %q, want call.completed", event)
			}
			if event = c.Announce(Completed, start.Add(time.Hour), waits); event != "" {
				t.Errorf("after it was published: event = %q, want none", event)
			}
		})
	}
}

func TestAnnounce_ReturnsOneEventForEachStatus(t *testing.T) {
	t.Parallel()
	want := map[Status]openapi.EventType{
		Initiated: "", Ringing: openapi.EventTypeCallRinging, InProgress: openapi.EventTypeCallAnswered,
		NoAnswer: openapi.EventTypeCallNoAnswer, Busy: openapi.EventTypeCallBusy,
		Failed: openapi.EventTypeCallFailed, Canceled: openapi.EventTypeCallFailed,
	}
	for status, event := range want {
		c := Call{Status: status}
		if got := c.Announce("", start, Waits{}); got != event {
			t.Errorf("%s: event %q, want %q", status, got, event)
		}
		if got := c.Announce(status, start, Waits{}); got != "" {
			t.Errorf("%s again: event %q, want none", status, got)
		}
	}
}

func TestFollow_SetsTheRequestStatusFromTheCallStatus(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status   Status
		want     RequestStatus
		wantCode string
	}{
		{Initiated, RequestDialing, ""},
		{Ringing, RequestDialing, ""},
		{InProgress, RequestDialing, ""},
		{Completed, RequestCompleted, ""},
		{NoAnswer, RequestCompleted, ""},
		{Busy, RequestCompleted, ""},
		{Failed, RequestFailed, "invalid_number"},
		{Canceled, RequestFailed, "invalid_number"},
	}
	for _, tt := range tests {
		t.Run(string(tt.status), func(t *testing.T) {
			t.Parallel()
			req := Request{Status: RequestQueued}
			event := Call{ID: uuid.New(), Status: tt.status, DialedAt: at(1)}
			if tt.status.Terminal() {
				event.EndedAt = at(9)
			}
			req.Follow(&event, Ending{Code: "invalid_number", Detail: "The number is not assigned."}, *at(20))
			if req.Status != tt.want {
				t.Errorf("request: req.Status = %v, want %v", req.Status, tt.want)
			}
			if *req.CallID != event.ID {
				t.Errorf("request: req.CallID = %v, want %v", *req.CallID, event.ID)
			}
			if !req.DialedAt.Equal(*at(1)) {
				t.Errorf("request: req.DialedAt.Equal(*at(1)) = false, want true")
			}
			if tt.wantCode != "" && (req.ErrorCode == nil || *req.ErrorCode != tt.wantCode) {
				t.Errorf("error_code = %v, want %s", req.ErrorCode, tt.wantCode)
			}
			if final := tt.want.Final(); final != (req.CompletedAt != nil) {
				t.Errorf("completed_at: final = %v, want %v", final, req.CompletedAt != nil)
			} else if final && !req.CompletedAt.Equal(*at(9)) {
				t.Errorf("completed_at: req.CompletedAt = %v, want %v", req.CompletedAt, *at(9))
			}
		})
	}
}

func TestRequest_FinalStatusNeverChanges(t *testing.T) {
	t.Parallel()
	for _, final := range []RequestStatus{RequestCompleted, RequestBlocked, RequestFailed, RequestCanceled} {
		req := Request{Status: final}
		steps := map[string]bool{
			"Dial": req.Dial(1), "Release": req.Release(1), "Cancel": req.Cancel(start),
			"Block": req.Block(Ending{Code: "x"}, start), "Fail": req.Fail(Ending{}, start),
			"Follow": req.Follow(&Call{Status: Completed}, Ending{}, start),
		}
		for step, changed := range steps {
			if changed {
				t.Errorf("%s changed a %s request, want no change", step, final)
			}
		}
		if req.Status != final {
			t.Errorf("status = %s, want %s", req.Status, final)
		}
	}
	dialing := Request{Status: RequestDialing}
	if dialing.Cancel(start) {
		t.Error("a request that is being dialed was canceled")
	}
}
