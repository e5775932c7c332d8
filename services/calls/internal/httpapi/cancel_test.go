package httpapi_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/proto/dialerv1"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/calls/internal/callrequests"
)

func (r *rig) cancel(id uuid.UUID) answer {
	r.t.Helper()
	return r.do("POST", "/v1/call-requests/"+id.String()+"/cancel", nil)
}

func (a *account) withdrawnEvent() *eventv1.DialEvent {
	return a.event(nil, func(ev *eventv1.DialEvent) { ev.Event = &eventv1.DialEvent_Withdrawn{Withdrawn: &eventv1.Withdrawn{}} })
}

func TestCancel_OnlyAQueuedRequestIsCanceled(t *testing.T) {
	t.Parallel()
	silent := func(*dialerv1.WithdrawRequest) (*dialerv1.WithdrawResponse, error) {
		return nil, connect.NewError(connect.CodeUnavailable, nil)
	}
	tests := []struct {
		name       string
		before     func(*rig, *account)
		withdraw   func(*dialerv1.WithdrawRequest) (*dialerv1.WithdrawResponse, error)
		wantStatus int
		wantCode   string
		wantState  string
		wantEvents []string
	}{
		{"queued, and the dialer withdraws it", nil, withdrawn(true), 200, "", "canceled", []string{"requested", "canceled"}},
		{"queued, but the dialer has already dialed it",
			nil, withdrawn(false), 409, "not_cancelable", "queued", []string{"requested"}},
		{"queued, but the dialer does not respond", nil, silent, 503, "unavailable", "queued", []string{"requested"}},
		{"dialing", func(_ *rig, a *account) { a.publish(a.fenced()) }, withdrawn(true), 409, "not_cancelable", "dialing",
			[]string{"requested"}},
		{"completed", func(_ *rig, a *account) { a.publish(a.ended("busy", "user_busy")) }, withdrawn(true), 409,
			"not_cancelable", "completed", []string{"requested"}},
		{"canceled before", func(r *rig, a *account) { r.cancel(a.request) }, withdrawn(true), 409, "not_cancelable", "canceled", []string{"requested", "canceled"}},
		{"canceled by the dialer's event", func(_ *rig, a *account) { a.publish(a.withdrawnEvent(), a.withdrawnEvent()) },
			withdrawn(true), 409, "not_cancelable", "canceled", []string{"requested", "canceled"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.account(r.place())
			if tt.before != nil {
				tt.before(r, a)
			}
			r.peers.set(func(p *fakePeers) { p.withdraw = tt.withdraw })
			got := r.cancel(a.request)
			if got.status != tt.wantStatus {
				t.Errorf("cancel: got.status = %v, want %v; got.body = %v", got.status, tt.wantStatus, got.body)
			} else if got.code() != tt.wantCode {
				t.Errorf("cancel: got.code() = %q, want %q; got.body = %v", got.code(), tt.wantCode, got.body)
			}
			// The dialer may have withdrawn the request although its response was lost. So the
			// message must not promise that nothing changed.
			if strings.Contains(got.message(), "Nothing was changed") {
				t.Errorf("cancel promises: %s", got.message())
			}
			if req := r.request(a.request); req["status"] != tt.wantState {
				t.Errorf("request = %v, want %s", req, tt.wantState)
			}
			if published := r.requestEvents(a.request); !slices.Equal(published, tt.wantEvents) {
				t.Errorf("events = %v, want %v", published, tt.wantEvents)
			}
		})
	}
}

func TestCancel_SucceedsIfTheWithdrawnEventArrivesBeforeTheCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.account(r.place())
	r.peers.set(func(p *fakePeers) {
		p.withdraw = func(*dialerv1.WithdrawRequest) (*dialerv1.WithdrawResponse, error) {
			a.publish(a.withdrawnEvent())
			return &dialerv1.WithdrawResponse{Withdrawn: true}, nil
		}
	})
	if got := r.cancel(a.request); got.status != http.StatusOK {
		t.Errorf("cancel: got.status = %v, want %v", got.status, http.StatusOK)
	} else if got.body["status"] != "canceled" {
		t.Errorf(`cancel: got.body["status"] = %q, want "canceled"`, got.body["status"])
	}
	if published := r.requestEvents(a.request); !slices.Equal(published, []string{"requested", "canceled"}) {
		t.Errorf("events = %v, want canceled once", published)
	}
}

func TestCancel_OneOfManyConcurrentCancelsSucceeds(t *testing.T) {
	t.Parallel()
	for _, factFirst := range []bool{false, true} {
		r := newRig(t)
		a := r.account(r.place())
		const many = 8
		var asked sync.WaitGroup
		var withdrawnEvent sync.Once
		asked.Add(many)
		r.peers.set(func(p *fakePeers) {
			p.withdraw = func(*dialerv1.WithdrawRequest) (*dialerv1.WithdrawResponse, error) {
				asked.Done()
				asked.Wait() // wait until every cancel has read the queued request
				if factFirst {
					withdrawnEvent.Do(func() { a.publish(a.withdrawnEvent()) })
				}
				return &dialerv1.WithdrawResponse{Withdrawn: true}, nil
			}
		})
		var all sync.WaitGroup
		answers := make([]answer, many)
		for i := range many {
			all.Go(func() { answers[i] = r.cancel(a.request) })
		}
		all.Wait()
		taken := 0
		for _, got := range answers {
			switch {
			case got.status == http.StatusOK && got.body["status"] == "canceled":
				taken++
			case got.status != http.StatusConflict || got.code() != "not_cancelable":
				t.Errorf("cancel = %d %v, want 200 or 409", got.status, got.body)
			}
		}
		if taken != 1 {
			t.Errorf("%d of %d cancels were answered 200, want one", taken, many)
		}
	}
}

func TestCancel_RequestOfAnotherWorkspaceIsNotFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.place()
	for path, workspace := range map[string]uuid.UUID{id.String(): newID(t), newID(t).String(): r.workspace, "x": r.workspace} {
		if got := r.doAs(workspace, "POST", "/v1/call-requests/"+path+"/cancel", nil); got.status != http.StatusNotFound {
			t.Errorf("cancel of %s: got.status = %v, want %v; got.body = %v", path, got.status, http.StatusNotFound, got.body)
		} else if got.code() != "not_found" {
			t.Errorf(`cancel of %s: got.code() = %q, want "not_found"; got.body = %v`, path, got.code(), got.body)
		}
	}
}

func (r *rig) unconfirmed(id uuid.UUID) {
	r.t.Helper()
	r.mustDeliver(kafka.WalletEvents, id.String(), &eventv1.WalletEvent{
		CallRequestId: id.String(), WorkspaceId: r.workspace.String(), Event: &eventv1.WalletEvent_Unconfirmed{Unconfirmed: &eventv1.Unconfirmed{}},
	})
}

func TestUnconfirmedHold_RequestIsPublishedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.place("external_ref", "x", "variables", map[string]any{"a": 1})
	r.unconfirmed(id)
	published := outboxEvents[eventv1.CallRequestEvent](r, kafka.CallRequests)
	if len(published) != 2 {
		t.Fatalf("events = %v, want requested twice", published)
	}
	first, again := published[0].GetRequested(), published[1].GetRequested()
	if first.String() != again.String() {
		t.Errorf("second event = %v, want the same as %v", again, first)
	}
	r.cancel(id)
	r.unconfirmed(id)
	if got := r.requestEvents(id); !slices.Equal(got, []string{"requested", "requested", "canceled", "canceled"}) {
		t.Errorf("events = %v, want canceled again", got)
	}
}

func TestUnconfirmedHold_RequestIDWithoutARequestIsAbandoned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	died := newID(t)
	r.claimKey("k", died, time.Hour)
	r.unconfirmed(died)
	r.unconfirmed(died)
	if got := r.requestEvents(died); !slices.Equal(got, []string{"abandoned", "abandoned"}) {
		t.Errorf("events = %v, want abandoned each time", got)
	}
	next := r.want(http.StatusAccepted, "POST", "/v1/calls", r.order("idempotency_key", "k"))
	if next["id"] == died.String() {
		t.Error("an abandoned id became a request")
	}
}

// The id is abandoned after the POST has placed its hold and before the POST commits its request.
func TestUnconfirmedHold_AbandonsTheRequestOfASlowPOST(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "k"} {
		t.Run("key "+key, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var slow uuid.UUID
			r.peers.set(func(p *fakePeers) {
				p.hold = func(q *billingv1.HoldRequest) (*billingv1.HoldResponse, error) {
					slow = uuid.MustParse(q.GetCallRequestId())
					r.unconfirmed(slow)
					return held(q)
				}
			})
			body := r.order()
			if key != "" {
				body["idempotency_key"] = key
			}
			if a := r.do("POST", "/v1/calls", body); a.status != http.StatusServiceUnavailable {
				t.Errorf("the slow POST = %d %v, want 503", a.status, a.body)
			}
			if n := r.count(`SELECT count(*) FROM call_requests`); n != 0 {
				t.Errorf("%d requests, want none", n)
			}
			if got := r.requestEvents(slow); !slices.Equal(got, []string{"abandoned"}) {
				t.Errorf("events = %v, want abandoned only", got)
			}
		})
	}
}

func TestUnconfirmedHold_ConcurrentPOSTIsAcceptedOrItsIDIsAbandoned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 20 {
		var settling sync.WaitGroup
		var id uuid.UUID
		r.peers.set(func(p *fakePeers) {
			p.hold = func(q *billingv1.HoldRequest) (*billingv1.HoldResponse, error) {
				id = uuid.MustParse(q.GetCallRequestId())
				settling.Go(func() { r.unconfirmed(id) })
				return held(q)
			}
		})
		a := r.do("POST", "/v1/calls", r.order())
		settling.Wait()
		published := r.requestEvents(id)
		accepted, abandoned := a.status == http.StatusAccepted, slices.Contains(published, "abandoned")
		if accepted == abandoned {
			t.Fatalf("accepted = %v, want another value; i = %d; a.status = %d", accepted, i, a.status)
		}
		if accepted != slices.Contains(published, "requested") {
			t.Fatalf("accepted = %v, want %v; i = %d; a.status = %d",
				accepted, slices.Contains(published, "requested"), i, a.status)
		}
	}
}

// The event of the end of the call was lost, so the request has the status `dialing` for longer
// than the call can last.
func TestRepublish_OverdueRequestInStatusDialingIsNotDialedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	old, young := r.place(), r.place()
	for _, id := range []uuid.UUID{old, young} {
		a := r.account(id)
		a.publish(a.fenced())
		r.exec(`UPDATE call_requests SET scheduled_for = now() - interval '2 hours', max_call_seconds = 600,
			dialed_at = now() - interval '11 minutes' WHERE id = $1`, id)
	}
	r.exec(`UPDATE call_requests SET dialed_at = now() - interval '26 minutes' WHERE id = $1`, old)
	r.republish(15 * time.Minute)
	if got := len(r.requestEvents(young)); got != 1 {
		t.Errorf("events of the request whose call may go on = %d, want 1", got)
	}
	events := outboxEvents[eventv1.CallRequestEvent](r, kafka.CallRequests)
	last := events[len(events)-1]
	if got := last.GetCallRequestId(); got != old.String() {
		t.Fatalf("last event is of request %s, want %s", got, old)
	}
	if !last.GetRequested().GetEndOnly() {
		t.Error("end_only = false, want true: the dialer must not enqueue the request")
	}
}

func TestRepublish_OnePassPublishesALimitedNumberOfRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.place()
	r.exec(`INSERT INTO call_requests (id, workspace_id, status, to_e164, agent_id, contact_id, variables, scheduled_for,
			schedule_if_outside_hours, max_call_seconds, queued_at, traceparent)
		SELECT gen_random_uuid(), workspace_id, status, to_e164, agent_id, contact_id, variables, now() - interval '1
			day' + n * interval '1 s',
			schedule_if_outside_hours, max_call_seconds, queued_at, '' FROM call_requests, generate_series(1, 800) n WHERE id
				= $1`, first)
	republisher := callrequests.NewRepublishJob(r.store, 15*time.Minute, func() {}, prometheus.NewRegistry())
	published := func() int { return r.count(`SELECT count(*) FROM call_requests WHERE republished_at IS NOT NULL`) }
	for pass, want := range []int{500, 800, 800} {
		if err := republisher.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := published(); got != want {
			t.Errorf("published requests after pass %d = %d, want %d", pass+1, got, want)
		}
	}
}

func TestRepublish_PublishesAnOverdueRequestOncePerInterval(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	overdue, fresh, dialing := r.place(), r.place(), r.place()
	r.place("scheduled_for", time.Now().Add(time.Hour))
	a := r.account(dialing)
	a.publish(a.fenced())
	r.exec(`UPDATE call_requests SET scheduled_for = now() - interval '20 minutes' WHERE id = ANY($1)`, []uuid.UUID{overdue, dialing})
	r.republish(15 * time.Minute)
	r.republish(15 * time.Minute)
	if got := r.requestEvents(overdue); !slices.Equal(got, []string{"requested", "requested"}) {
		t.Errorf("overdue: events = %v, want requested again once", got)
	}
	r.exec(`UPDATE call_requests SET republished_at = now() - interval '16 minutes' WHERE id = $1`, overdue)
	r.republish(15 * time.Minute)
	if got := r.requestEvents(overdue); len(got) != 3 {
		t.Errorf("overdue after the interval: events = %v, want it a third time", got)
	}
	if got := len(r.requestEvents(fresh)); got != 1 {
		t.Fatalf("events of the fresh request = %d, want 1", got)
	}
	if got := len(r.requestEvents(dialing)); got != 1 {
		t.Fatalf("events of the request that is being dialed = %d, want 1", got)
	}
	if r.count(`SELECT count(*) FROM outbox WHERE topic = 'call-requests.v1'`) != 6 {
		t.Errorf("r.count(`SELECT count(*) FROM outbox WHERE topic = 'call-requests.v1'`) = %v, want 6",
			r.count(`SELECT count(*) FROM outbox WHERE topic = 'call-requests.v1'`))
	}
}
