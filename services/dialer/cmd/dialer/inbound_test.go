package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/testing/protocmp"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/sdp"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

const inboundLine = "+14155559000"

// priced returns a rig whose workspace has an inbound price, and a dialer with an inbound number.
func priced(t *testing.T, timeScale string, settings *eventv1.InboundSettings, env ...string) (*rig, *process) {
	t.Helper()
	r := newRig(t, timeScale)
	r.inbound = settings
	r.announce(true, false)
	p := r.dialer(env...)
	await(t, "the dialer has the settings", func() bool {
		var concurrent int32
		const query = "SELECT inbound_max_concurrent FROM workspaces WHERE workspace_id = $1"
		err := r.pool.QueryRow(t.Context(), query, r.workspace).Scan(&concurrent)
		return err == nil && concurrent == settings.MaxConcurrent
	})
	body := fmt.Sprintf(`{"phone_e164":%q,"agent_id":%q}`, inboundLine, r.agent)
	await(t, "the number is assigned", func() bool {
		status, _ := r.admin(p, "POST", "/numbers", body)
		return status == 201 || status == 409
	})
	return r, p
}

func (r *rig) callIn(from string) string {
	r.t.Helper()
	var call struct {
		CallID string `json:"call_id"`
	}
	r.carrier("POST", "/inbound", fmt.Sprintf(`{"from":%q,"to":%q}`, from, inboundLine), &call)
	return call.CallID
}

// carrierCause returns the cause with which the call ended at the simulated carrier.
func (r *rig) carrierCause(call string) string {
	r.t.Helper()
	var known struct{ Cause string }
	r.carrier("GET", "/calls/"+call, "", &known)
	return known.Cause
}

func (r *rig) awaitStatus(call, status string) {
	r.t.Helper()
	await(r.t, "the inbound call is "+status, func() bool {
		var got string
		err := r.pool.QueryRow(r.t.Context(), "SELECT status FROM calls WHERE call_id = $1", call).Scan(&got)
		return err == nil && got == status
	})
}

func TestInbound_PricedCallIsAnsweredAfterItsHold(t *testing.T) {
	t.Parallel()
	r, _ := priced(t, "0.05", &eventv1.InboundSettings{
		PerMinuteMicro: 20_000, IncrementSeconds: 6, MaxConcurrent: 7, MaxCallSeconds: 90,
	})
	id := r.callIn("+14155557001")
	facts := r.ends(uuid.MustParse(id))
	if got := names(facts); got != "ringing answered ended analysed" {
		t.Errorf("facts = %s, want ringing answered ended analysed", got)
	}
	end := last(facts).GetCall()
	if !end.GetPriced() {
		t.Error("the event does not state that the call has a price")
	}
	if end.GetBillableSeconds() != end.GetTalkSeconds() || end.GetBillableSeconds() == 0 {
		t.Errorf("billable seconds = %d, talk seconds = %d, want the same", end.GetBillableSeconds(), end.GetTalkSeconds())
	}
	want := []*billingv1.HoldRequest{{
		WorkspaceId: r.workspace.String(), MaxCallSeconds: 90,
		Inbound: &billingv1.InboundHold{CallId: id, PerMinuteMicro: 20_000, IncrementSeconds: 6},
	}}
	if diff := cmp.Diff(want, r.wallet.ordersOf(id), protocmp.Transform()); diff != "" {
		t.Errorf("requests for holds (-want +got):\n%s", diff)
	}
}

func TestInbound_CallWhoseHoldIsRefusedIsBusy(t *testing.T) {
	t.Parallel()
	r, _ := priced(t, "0.05", &eventv1.InboundSettings{
		PerMinuteMicro: 20_000, IncrementSeconds: 6, MaxConcurrent: 7, MaxCallSeconds: 90,
	})
	refusal := func(code connect.Code) error { return connect.NewError(code, errors.New("no")) }
	for i, tt := range []struct {
		name     string
		response *billingv1.HoldResponse
		err      error
	}{
		{name: "the credit is not sufficient", response: insufficient()},
		{name: "the workspace has no wallet", err: refusal(connect.CodeNotFound)},
		{name: "the hold is settled", err: refusal(connect.CodeFailedPrecondition)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := r.within(t)
			r.wallet.answerWith(func(*billingv1.HoldRequest, int) (*billingv1.HoldResponse, error) {
				return tt.response, tt.err
			})
			id := r.callIn(fmt.Sprintf("+1415555700%d", i))
			r.awaitStatus(id, "busy")
			await(t, "the end is published", func() bool { return names(r.factsOf(id)) == "ringing ended" })
			end := last(r.factsOf(id)).GetCall()
			if got := end.GetHangupCause(); got != "user_busy" {
				t.Errorf("hangup cause = %q, want user_busy", got)
			}
			if got := end.GetBillableSeconds(); got != 0 {
				t.Errorf("billable seconds = %d, want 0", got)
			}
			if end.GetAnsweredAt() != nil {
				t.Errorf("answered_at = %v, want nil", end.GetAnsweredAt())
			}
			if got := r.carrierCause(id); got != "user_busy" {
				t.Errorf("cause at the carrier = %q, want user_busy", got)
			}
		})
	}
}

// The operator has to repair these faults. The call rings and is answered after the repair.
func TestInbound_FaultyRequestForAHoldIsLoggedAsAnError(t *testing.T) {
	t.Parallel()
	r, p := priced(t, "0.05", &eventv1.InboundSettings{
		PerMinuteMicro: 20_000, IncrementSeconds: 6, MaxConcurrent: 7, MaxCallSeconds: 90,
	})
	codes := []connect.Code{connect.CodeUnauthenticated, connect.CodePermissionDenied, connect.CodeInvalidArgument}
	r.wallet.answerWith(func(_ *billingv1.HoldRequest, times int) (*billingv1.HoldResponse, error) {
		if times <= len(codes) {
			return nil, connect.NewError(codes[times-1], errors.New("faulty request"))
		}
		return &billingv1.HoldResponse{Result: &billingv1.HoldResponse_Held{Held: &billingv1.Held{}}}, nil
	})
	id := r.callIn("+14155557001")
	if got := names(r.ends(uuid.MustParse(id))); got != "ringing answered ended analysed" {
		t.Errorf("facts = %s, want ringing answered ended analysed", got)
	}
	if got := strings.Count(p.output(), "ERROR billing-wallet rejected the request for a hold"); got != len(codes) {
		t.Errorf("logged errors = %d, want %d", got, len(codes))
	}
}

// The call rings until billing-wallet responds. The second request for the hold has the same call
// id.
func TestInbound_CallRingsUntilTheWalletResponds(t *testing.T) {
	t.Parallel()
	r, _ := priced(t, "0.05", &eventv1.InboundSettings{
		PerMinuteMicro: 20_000, IncrementSeconds: 6, MaxConcurrent: 7, MaxCallSeconds: 90,
	})
	r.wallet.answer = func(_ *billingv1.HoldRequest, times int) (*billingv1.HoldResponse, error) {
		if times == 1 {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("away"))
		}
		return &billingv1.HoldResponse{Result: &billingv1.HoldResponse_Held{Held: &billingv1.Held{}}}, nil
	}
	id := r.callIn("+14155557001")
	if got := names(r.ends(uuid.MustParse(id))); got != "ringing answered ended analysed" {
		t.Errorf("facts = %s, want ringing answered ended analysed", got)
	}
	if got := len(r.wallet.ordersOf(id)); got != 2 {
		t.Errorf("requests for a hold = %d, want 2", got)
	}
}

func TestInbound_CallsAboveTheLimitAreBusy(t *testing.T) {
	t.Parallel()
	r, _ := priced(t, "8", &eventv1.InboundSettings{IncrementSeconds: 1, MaxConcurrent: 2, MaxCallSeconds: 600})
	var answered []string
	for i := range 2 {
		id := r.callIn(fmt.Sprintf("+1415555710%d", i))
		r.awaitStatus(id, "in_progress")
		answered = append(answered, id)
	}
	r.awaitStatus(r.callIn("+14155557109"), "busy")
	for _, id := range answered {
		r.awaitStatus(id, "in_progress")
	}
	r.carrier("POST", "/hangup", fmt.Sprintf(`{"call_id":%q,"by":"caller"}`, answered[0]), &struct{}{})
	r.awaitStatus(answered[0], "completed")
	r.awaitStatus(r.callIn("+14155557110"), "in_progress")
	if got := len(r.wallet.ordersOf(answered[1])); got != 0 {
		t.Errorf("requests for a hold of a free call = %d, want 0", got)
	}
}

func TestInbound_CallsThatArriveTogetherDoNotExceedTheLimit(t *testing.T) {
	t.Parallel()
	const limit, calls = 3, 12
	r, _ := priced(t, "8", &eventv1.InboundSettings{IncrementSeconds: 1, MaxConcurrent: limit, MaxCallSeconds: 600})
	r.dialer()
	for i := range calls {
		r.callIn(fmt.Sprintf("+141555572%02d", i))
	}
	count := func(status string) (n int) {
		if err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM calls WHERE status = $1", status).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	await(t, "each call is answered or refused", func() bool { return count("in_progress")+count("busy") == calls })
	if got := count("in_progress"); got != limit {
		t.Errorf("answered calls = %d, want %d", got, limit)
	}
}

func TestInbound_CallEndsAtItsMaximumDuration(t *testing.T) {
	t.Parallel()
	r, _ := priced(t, "8", &eventv1.InboundSettings{
		PerMinuteMicro: 60_000, IncrementSeconds: 1, MaxConcurrent: 7, MaxCallSeconds: 1,
	})
	id := r.callIn("+14155557001")
	end := endOf(r.ends(uuid.MustParse(id)))
	if got := end.GetHangupCause(); got != "max_duration" {
		t.Errorf("hangup cause = %q, want max_duration", got)
	}
	if got := end.GetStatus(); got != "completed" {
		t.Errorf("status = %q, want completed", got)
	}
	if got := r.wallet.ordersOf(id)[0].GetMaxCallSeconds(); got != 1 {
		t.Errorf("max_call_seconds of the hold = %d, want 1", got)
	}
}

// A dialer dies between the hold and the answer. Another dialer ends the call without a charge, so
// the hold is released.
func TestInbound_CallOfADeadDialerIsNotCharged(t *testing.T) {
	t.Parallel()
	r, p := priced(t, "8", &eventv1.InboundSettings{
		PerMinuteMicro: 60_000, IncrementSeconds: 1, MaxConcurrent: 7, MaxCallSeconds: 60,
	})
	r.wallet.answer = func(_ *billingv1.HoldRequest, times int) (*billingv1.HoldResponse, error) {
		if times == 1 {
			p.kill()
		}
		return &billingv1.HoldResponse{Result: &billingv1.HoldResponse_Held{Held: &billingv1.Held{}}}, nil
	}
	id := r.callIn("+14155557001")
	await(t, "the dialer is dead", p.ended)
	r.dialer()
	end := endOf(r.ends(uuid.MustParse(id)))
	if !end.GetPriced() {
		t.Error("the end does not state that the call has a price")
	}
	if end.GetStatus() != "completed" && end.GetBillableSeconds() != 0 {
		t.Errorf("billable seconds of a call that is %s = %d, want 0", end.GetStatus(), end.GetBillableSeconds())
	}
}

func TestInbound_EndEventIsPublishedAgainOnRequest(t *testing.T) {
	t.Parallel()
	r, _ := priced(t, "0.05", &eventv1.InboundSettings{
		PerMinuteMicro: 20_000, IncrementSeconds: 6, MaxConcurrent: 7, MaxCallSeconds: 90,
	})
	ask := func(call string) {
		r.publish(kafka.CallRequests, uuid.MustParse(call), &eventv1.CallRequestEvent{
			WorkspaceId: r.workspace.String(), Event: &eventv1.CallRequestEvent_InboundUnconfirmed{
				InboundUnconfirmed: &eventv1.InboundUnconfirmed{CallId: call},
			},
		})
	}
	id, unknown := r.callIn("+14155557001"), uuid.NewString()
	r.ends(uuid.MustParse(id))
	ask(id)
	await(t, "the end is published again", func() bool {
		return names(r.factsOf(id)) == "ringing answered ended analysed ended"
	})
	first, again := r.factsOf(id)[2].event.GetCall(), last(r.factsOf(id)).GetCall()
	if again.GetBillableSeconds() != first.GetBillableSeconds() {
		t.Errorf("billable seconds = %d, want %d", again.GetBillableSeconds(), first.GetBillableSeconds())
	}
	ask(unknown)
	await(t, "the call is reported as unknown", func() bool { return names(r.factsOf(unknown)) == "callunknown" })
	if got := last(r.factsOf(unknown)).GetCallUnknown().GetCallId(); got != unknown {
		t.Errorf("call_id = %q, want %s", got, unknown)
	}
}

func TestSIP_InboundCallAboveTheLimitReceives486(t *testing.T) {
	t.Parallel()
	address := freeAddr(t)
	r, p := priced(t, "0", &eventv1.InboundSettings{
		PerMinuteMicro: 20_000, IncrementSeconds: 6, MaxConcurrent: 7, MaxCallSeconds: 90,
	}, "CARRIER=sip", "SIP_UDP_ADDR="+address)
	r.wallet.answer = func(*billingv1.HoldRequest, int) (*billingv1.HoldResponse, error) { return insufficient(), nil }
	trunk := `{"name":"near","host":"127.0.0.1","port":9}`
	if status, response := r.asOperator("POST", "http://"+p.addr+"/admin/v1/trunks", trunk); status != 201 {
		t.Fatalf("POST trunk = %d %v, want 201", status, response)
	}
	us := netip.MustParseAddrPort(address)
	agent, err := sip.New(sip.Config{UDP: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Close)
	body, err := sdp.NewSession(1, sdp.Local{Address: us.Addr(), Port: 40000}).Offer(sdp.Both)
	if err != nil {
		t.Fatal(err)
	}
	var end sip.End
	await(t, "the dialer accepts calls of the trunk", func() bool {
		over := make(chan sip.End, 1)
		_, err := agent.Invite(t.Context(), sip.Trunk{
			Name: "us", Host: us.Addr().String(), Port: int(us.Port()), Transport: transport.UDP, CallerID: sip.InFrom,
		}, sip.Invite{
			CallID: uuid.NewString(), From: "+14155550001", To: inboundLine, Body: body, FirstResponse: time.Second,
		}, sip.Observer{
			Answered: func(time.Time, []byte) error { t.Error("the call was answered"); return nil },
			Ended:    func(e sip.End) { over <- e },
		})
		if err != nil {
			t.Fatal(err)
		}
		end = <-over
		return end.Status != 0
	})
	if end.Status != 486 {
		t.Errorf("status = %d %s, want 486", end.Status, end.Reason)
	}
	await(t, "the call is stored as busy", func() bool {
		var busy int
		const query = "SELECT count(*) FROM calls WHERE status = 'busy' AND hangup_cause = 'user_busy'"
		return r.pool.QueryRow(t.Context(), query).Scan(&busy) == nil && busy > 0
	})
}

// Calls with a price wait for billing-wallet. Calls without a price must not wait for them.
func TestInbound_FreeCallIsAnsweredWhileTheWalletHangs(t *testing.T) {
	t.Parallel()
	const pricedCalls = 200
	r, _ := priced(t, "8", &eventv1.InboundSettings{IncrementSeconds: 1, MaxConcurrent: 500, MaxCallSeconds: 600})
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	r.wallet.answer = func(*billingv1.HoldRequest, int) (*billingv1.HoldResponse, error) {
		<-hangs
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("away"))
	}
	const insert = `
INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status, ringing_at,
	max_call_seconds,
	end_by, deadline_at, answer_at, priced)
SELECT gen_random_uuid(), $1, 'inbound', '+14155557001', $2, $3, 'ringing', now(), 600, now() + interval '10 minutes',
	now() + interval '10 minutes', now(), true FROM generate_series(1, $4::integer)`
	if _, err := r.pool.Exec(t.Context(), insert, r.workspace, inboundLine, r.agent, pricedCalls); err != nil {
		t.Fatal(err)
	}
	await(t, "billing-wallet hangs", func() bool { return r.wallet.orderCount() > 0 })
	id := r.callIn("+14155557002")
	r.awaitStatus(id, "in_progress")
	// The calls with a price began to ring earlier.
	if got := r.wallet.orderCount(); got >= pricedCalls {
		t.Errorf("requests for a hold before the answer = %d, want less than %d", got, pricedCalls)
	}
}
