package httpapi_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/calls/internal/callstate"
)

func (a *account) blocked() *eventv1.DialEvent {
	return a.event(nil, func(ev *eventv1.DialEvent) {
		ev.Event = &eventv1.DialEvent_Blocked{
			Blocked: &eventv1.Blocked{ErrorCode: "recipient_dnd", ErrorDetail: "The number is opted out."},
		}
	})
}

func (a *account) expired() *eventv1.DialEvent {
	return a.event(nil, func(ev *eventv1.DialEvent) {
		ev.Event = &eventv1.DialEvent_Failed{
			Failed: &eventv1.Failed{ErrorCode: "queue_expired", ErrorDetail: "The time is over."},
		}
	})
}

// passDeadline ends the wait of call.completed for the charge and the analysis.
func (r *rig) passDeadline() {
	r.t.Helper()
	r.exec(
		`UPDATE calls SET end_learned_at = end_learned_at - interval '11 seconds',
			completes_at = completes_at - interval '11 seconds'`,
	)
	r.complete()
}

// Every event is applied after a crash and twice. The repetition must change nothing.
func TestOptIn_CallEventsFollowTheTerminalEvent(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		publish func(*rig, *account)
		want    []string
	}{
		{
			name: "the recording is stored before call.completed",
			publish: func(_ *rig, a *account) {
				a.crashAndRepeat(a.ended("completed", "normal_clearing"))
				a.crashAndRepeat(a.recorded("recordings/1"))
				a.crashAndRepeat(a.analysed())
				a.crashAndRepeat(a.captured(5000))
			},
			want: []string{"call.completed", "call.recording_ready"},
		},
		{
			name: "the recording is stored before the deadline of call.completed",
			publish: func(r *rig, a *account) {
				a.crashAndRepeat(a.ended("completed", "normal_clearing"))
				a.crashAndRepeat(a.recorded("recordings/1"))
				r.passDeadline()
			},
			want: []string{"call.completed", "call.recording_ready"},
		},
		{
			name: "analysis and recording arrive after call.completed",
			publish: func(r *rig, a *account) {
				a.crashAndRepeat(a.ended("completed", "normal_clearing"))
				r.passDeadline()
				a.crashAndRepeat(a.analysed())
				a.crashAndRepeat(a.recorded("recordings/1"))
				a.crashAndRepeat(a.captured(5000))
			},
			want: []string{"call.completed", "call.analyzed", "call.recording_ready"},
		},
		{
			name: "an analysis without outcome and summary arrives after call.completed",
			publish: func(r *rig, a *account) {
				a.crashAndRepeat(a.ended("completed", "normal_clearing"))
				r.passDeadline()
				empty := a.analysed()
				empty.GetAnalysed().Outcome, empty.GetAnalysed().SummaryJson = "", nil
				a.crashAndRepeat(empty)
			},
			want: []string{"call.completed"},
		},
		{
			name: "a call that failed after the answer has a recording",
			publish: func(_ *rig, a *account) {
				a.crashAndRepeat(a.ended("failed", "media_timeout"))
				a.crashAndRepeat(a.recorded("recordings/1"))
			},
			want: []string{"call.failed", "call.recording_ready"},
		},
		{
			name:    "a call without an answer",
			publish: func(_ *rig, a *account) { a.crashAndRepeat(a.ended("busy", "user_busy")) },
			want:    []string{"call.busy"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.account(r.place())
			tt.publish(r, a)
			if got := r.types(); !slices.Equal(got, tt.want) { // r.types also checks the sequence numbers
				t.Errorf("events = %v, want %v", got, tt.want)
			}
		})
	}
}

// crashAndRepeat applies an event in a transaction that is rolled back, as if the process died
// before the commit. Then it applies the event twice.
func (a *account) crashAndRepeat(event proto.Message) {
	a.r.t.Helper()
	before := a.r.eventTypes()
	a.r.rollBack(topicOf(event), a.request.String(), event)
	if got := a.r.eventTypes(); !slices.Equal(got, before) {
		a.r.t.Errorf("events after a transaction that was rolled back = %v, want %v", got, before)
	}
	a.publish(event, event)
}

func TestRecordingReadyEvent_ContainsTheTranscript(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.exec(
		`INSERT INTO workspaces (id, version, currency, destinations, transcripts) VALUES ($1, 1, 'USD', '{}', true)`,
		r.workspace,
	)
	a := r.account(r.place())
	a.publish(a.ended("completed", "normal_clearing"), a.analysed(), a.captured(5000), a.recorded("recordings/1"))
	events := r.events()
	if got, want := r.types(), []string{"call.completed", "call.recording_ready"}; !slices.Equal(got, want) {
		t.Fatalf("events = %v, want %v", got, want)
	}
	if diff := cmp.Diff(a.read(), events[1]["data"]); diff != "" {
		t.Errorf("data of call.recording_ready differs from GET (-get +event):\n%s", diff)
	}
	if events[1]["data"].(map[string]any)["transcript"] == nil {
		t.Error("call.recording_ready has no transcript")
	}
}

func TestOptIn_RequestWithoutACallHasOneEvent(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		end  func(*rig, *account)
		want openapi.EventType
	}{
		{
			name: "blocked twice, then failed",
			end: func(_ *rig, a *account) {
				a.publish(a.fenced())
				a.crashAndRepeat(a.blocked())
				a.crashAndRepeat(a.expired())
			},
			want: openapi.EventTypeCallRequestBlocked,
		},
		{
			name: "failed twice, then withdrawn",
			end: func(_ *rig, a *account) {
				a.crashAndRepeat(a.expired())
				a.crashAndRepeat(a.withdrawnEvent())
			},
			want: openapi.EventTypeCallRequestFailed,
		},
		{
			name: "canceled by HTTP, then the dialer's event",
			end: func(r *rig, a *account) {
				r.cancel(a.request)
				a.publish(a.withdrawnEvent(), a.blocked())
			},
			want: openapi.EventTypeCallRequestCanceled,
		},
		{
			name: "canceled by the dialer's event, then HTTP",
			end: func(r *rig, a *account) {
				a.crashAndRepeat(a.withdrawnEvent())
				r.cancel(a.request)
			},
			want: openapi.EventTypeCallRequestCanceled,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.account(r.place("external_ref", "order-1042"))
			tt.end(r, a)
			events := r.events()
			if len(events) != 1 {
				t.Fatalf("events = %v, want one", r.eventTypes())
			}
			testkit.Members(t, "event", events[0], map[string]any{
				"type": string(tt.want), "sequence": 1.0, "id": callstate.EventID(a.request, tt.want).String(),
				"workspace_id": r.workspace.String(), "api_version": "2026-06-04",
			})
			if diff := cmp.Diff(r.request(a.request), events[0]["data"]); diff != "" {
				t.Errorf("data differs from GET (-get +event):\n%s", diff)
			}
		})
	}
}

func TestOptInEvents_AreNotPublishedForAFailedCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place())
	a.publish(a.dialing(), a.ended("failed", "unallocated_number"), a.expired())
	if got, want := r.eventTypes(), []string{"call.failed"}; !slices.Equal(got, want) {
		t.Errorf("events = %v, want %v", got, want)
	}
}

// call_id in the event of a request is the id of the request. A webhook-dispatcher of an earlier
// version parks a record without call_id.
func TestOptInEvents_RequestEventHasCallIDAndCallRequestID(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place())
	a.publish(a.blocked())
	message := outboxEvents[eventv1.CallEvent](r, kafka.CallEvents)[0]
	if got := message.GetCallId(); got != a.request.String() {
		t.Errorf("call_id = %q, want %q", got, a.request)
	}
	if got := message.GetCallRequestId(); got != a.request.String() {
		t.Errorf("call_request_id = %q, want %q", got, a.request)
	}
}

func TestErasure_ErasesTheEventsOfRequestsWithoutACall(t *testing.T) {
	t.Parallel()
	r, erasure := newRig(t), newID(t)
	before, after := r.createWithSecret(), r.createWithSecret()
	before.publish(before.blocked())
	r.erase(erasure, 1)
	after.publish(after.blocked())
	var erased []string
	for _, message := range outboxEvents[eventv1.CallEvent](r, kafka.CallEvents) {
		if bodies := message.GetErased(); bodies != nil {
			erased = append(erased, message.GetCallRequestId())
			want := callstate.EventID(before.request, openapi.EventTypeCallRequestBlocked).String()
			if !slices.Contains(bodies.GetEventIds(), want) {
				t.Errorf("event ids of the erasure = %v, want %s among them", bodies.GetEventIds(), want)
			}
			continue
		}
		if got, want := message.GetPublic().GetErased(), message.GetCallRequestId() == after.request.String(); got != want {
			t.Errorf("erased in the event of request %s = %v, want %v", message.GetCallRequestId(), got, want)
		}
	}
	if want := []string{before.request.String()}; !slices.Equal(erased, want) {
		t.Errorf("requests with erased bodies = %v, want %v", erased, want)
	}
}

// A replica of an earlier version has stored the recording without publishing an event. A later
// event of the call must make a current replica publish call.recording_ready.
func TestRecordingReadyEvent_IsPublishedForARecordingOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place())
	a.publish(a.ended("completed", "normal_clearing"), a.analysed(), a.captured(5000))
	r.exec(`UPDATE calls SET recording_key = 'recordings/1' WHERE id = $1`, uuid.MustParse(a.id()))
	a.publish(a.recorded("recordings/1"))
	if got, want := r.types(), []string{"call.completed", "call.recording_ready"}; !slices.Equal(got, want) {
		t.Errorf("events = %v, want %v", got, want)
	}
	r.want(http.StatusOK, "GET", "/v1/calls/"+a.id(), nil)
}
