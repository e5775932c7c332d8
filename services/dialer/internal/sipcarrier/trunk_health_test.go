package sipcarrier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/circuitbreaker"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/trunks"
)

func newCare(probe sip.Probe) *trunkHealth {
	looks := sip.NewTrunkMonitor(sip.TrunkMonitorConfig{Name: "far", Probe: probe})
	return &trunkHealth{name: "far", monitor: looks, circuit: circuitbreaker.New(5, time.Second)}
}

func refusal(status int, cause callstate.Cause, operator bool) error {
	response := &Response{Trunk: "far", Status: status, Reason: "No"}
	return &carrier.Refused{Cause: cause, OperatorFault: operator, Err: response}
}

func TestOperatorFault_IsTrueIfTheAccountCanBeTheCause(t *testing.T) {
	t.Parallel()
	elsewhere := func(status int) sip.End { return sip.End{Status: status, OtherTrunkAllowed: true} }
	tests := []struct {
		name     string
		accepted bool
		end      sip.End
		want     bool
	}{
		{name: "401 to credentials", end: elsewhere(401), want: true},
		{name: "407 to credentials", accepted: true, end: elsewhere(407), want: true},
		{name: "401 after ringing", end: sip.End{Status: 401}, want: false},
		{name: "403 of a trunk that has accepted no call", end: elsewhere(403), want: true},
		{name: "403 of a trunk that has accepted a call", accepted: true, end: elsewhere(403), want: false},
		{name: "403 with a cause of the callee's network", end: sip.End{Status: 403}, want: false},
		{name: "503", end: elsewhere(503), want: false},
	}
	for _, tt := range tests {
		o := newCare(nil)
		if tt.accepted {
			o.countResult(nil)
		}
		if got := o.isOperatorFault(tt.end, carrier.Originate{To: "+14155550101"}); got != tt.want {
			t.Errorf("%s: operator fault = %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A 403 can concern the callee's number. So the circuit opens only after 403 responses to several
// numbers in a row. A call request is released only a limited number of times after a 403 to its
// number.
func TestOperatorFault_403ForSeveralNumbersSuspectsTheAccount(t *testing.T) {
	t.Parallel()
	one, other := uuid.UUID{1}, uuid.UUID{2}
	to := func(workspace uuid.UUID, numbers ...string) (orders []carrier.Originate) {
		for _, number := range numbers {
			orders = append(orders, carrier.Originate{WorkspaceID: workspace, To: number})
		}
		return orders
	}
	often := func(times int) []carrier.Originate { return slices.Repeat(to(one, "+1"), times) }
	five := to(one, "+1", "+2", "+3", "+4", "+5")
	var twenty []carrier.Originate
	for i := range 20 {
		twenty = append(twenty, to(one, fmt.Sprintf("+1%d", i))...)
	}
	tests := []struct {
		name     string
		accepted bool
		// others is true if another workspace calls over the trunk.
		others bool
		orders []carrier.Originate
		want   bool // expected result for the last response
		state  circuitbreaker.State
	}{
		{name: "one number, refused 10 times", orders: often(10), want: true, state: circuitbreaker.Closed},
		{name: "one number, refused 11 times", orders: often(11), want: false, state: circuitbreaker.Closed},
		{name: "two numbers", orders: to(one, "+1", "+2"), want: true, state: circuitbreaker.Open},
		{
			name: "two numbers of the same workspace, another workspace calls", others: true, orders: to(one, "+1", "+2"),
			want:  true,
			state: circuitbreaker.Closed,
		},
		{
			name: "two numbers of two workspaces", others: true, orders: append(to(one, "+1"), to(other, "+2")...), want: true,
			state: circuitbreaker.Open,
		},
		{
			name: "four numbers, trunk has accepted a call", accepted: true, orders: five[:4], want: false,
			state: circuitbreaker.Closed,
		},
		{name: "five numbers, trunk has accepted a call", accepted: true, orders: five, want: true,
			state: circuitbreaker.Open},
		{
			name: "five numbers of the same workspace, another workspace calls", accepted: true, others: true, orders: five,
			want:  false,
			state: circuitbreaker.Closed,
		},
		{
			name: "19 numbers of the same workspace, another workspace calls", accepted: true, others: true,
			orders: twenty[:19], want: false,
			state: circuitbreaker.Closed,
		},
		{
			name: "20 numbers of the same workspace, another workspace calls", accepted: true, others: true, orders: twenty,
			want:  true,
			state: circuitbreaker.Open,
		},
		{
			name: "one number, refused 20 times, another workspace calls", accepted: true, others: true, orders: often(20),
			want: false, state: circuitbreaker.Closed,
		},
	}
	for _, tt := range tests {
		o := newCare(nil)
		if tt.others {
			o.reserveCall(other)
		}
		if tt.accepted {
			o.countResult(nil)
		}
		var got bool
		for _, order := range tt.orders {
			o.reserveCall(order.WorkspaceID)
			got = o.isOperatorFault(sip.End{Status: 403, OtherTrunkAllowed: true}, order)
			o.countResult(refusal(403, callstate.CallRejected, got))
		}
		if got != tt.want {
			t.Errorf("%s: operator fault = %v, want %v", tt.name, got, tt.want)
		}
		if got := o.circuit.State(); got != tt.state {
			t.Errorf("%s: circuit = %q, want %q", tt.name, got, tt.state)
		}
	}
}

// A fault of this process must not open the trunk's circuit. An INVITE to a trunk that cannot be
// reached must open it.
func TestCountResult_FaultOfTheDialerDoesNotOpenTheCircuit(t *testing.T) {
	t.Parallel()
	o := newCare(nil)
	for range 10 {
		o.countResult(&carrier.Refused{Cause: callstate.NormalTemporaryFailure, NotSent: true, OperatorFault: true})
	}
	if got, want := o.circuit.State(), circuitbreaker.Closed; got != want {
		t.Errorf("circuit after faults of this process = %q, want %q", got, want)
	}
	o.countUnreachable(errors.New("connection refused"))
	if got, want := o.circuit.State(), circuitbreaker.Open; got != want {
		t.Errorf("circuit of a trunk that cannot be reached = %q, want %q", got, want)
	}
}

func TestOperatorFault_AccountIsNotSuspectedAfterAnAcceptedCall(t *testing.T) {
	t.Parallel()
	o := newCare(nil)
	forbid := func(number string) bool {
		fault := o.isOperatorFault(sip.End{Status: 403, OtherTrunkAllowed: true}, carrier.Originate{To: number})
		o.countResult(refusal(403, callstate.CallRejected, fault))
		return fault
	}
	forbid("+1")
	o.countResult(nil)
	if got := forbid("+2"); got {
		t.Error("operator fault of a 403 after a call was taken = true, want false")
	}
}

// After an INVITE without a response, no call may be offered until the trunk answers OPTIONS again.
func TestChannels_TrunkGetsNoCallBeforeItAnswersOPTIONS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan error)
		o := newCare(func(ctx context.Context) error {
			select {
			case err := <-answers:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		over := trunks.Trunk{Channels: 10}
		check := func(when string, live, want int, wantUsable bool) {
			t.Helper()
			got, usable := o.usableChannels(over, live, time.Now())
			if got != want {
				t.Errorf("%s: channels = %d, want %d", when, got, want)
			}
			if usable != wantUsable {
				t.Errorf("%s: usable = %v, want %v", when, usable, wantUsable)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- o.monitor.Run(ctx) }()
		check("before the first answer", 3, 3, false)
		answers <- nil
		synctest.Wait()
		check("after the first answer", 3, 10, true)
		o.countResult(errors.New("no response"))
		check("after an INVITE without an answer", 3, 3, false)
		answers <- nil
		synctest.Wait()
		check("after the next OPTIONS", 3, 10, true)
		o.countResult(refusal(401, callstate.ProviderAuthFailed, true))
		check("while the circuit is open", 3, 3, false)
		time.Sleep(time.Second)
		check("when the circuit is half-open", 3, 4, true)
		if !o.reserveCall(uuid.Nil) {
			t.Error("reserve on a half-open circuit = false, want true")
		}
		check("while one call tests the trunk", 3, 3, false)
		o.countResult(nil)
		check("after the call was taken", 3, 10, true)
		stop()
		<-done
	})
}

// This test is not parallel, because it replaces the default logger.
func TestLimit_WarnsOnceAMinuteIfNoTrunkCanTakeCalls(t *testing.T) {
	var written bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&written, nil)))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		var quiet idleLog
		unknown := func(uuid.UUID) *trunkHealth { return nil }
		far := []trunks.Trunk{{Name: "far"}}
		check := func(when, want string, active []trunks.Trunk) {
			t.Helper()
			written.Reset()
			quiet.warn(t.Context(), active, unknown)
			got := written.String()
			if !strings.Contains(got, want) {
				t.Errorf("%s: log = %q, want %q", when, got, want)
			}
			if want == "" && got != "" {
				t.Errorf("%s: log = %q, want nothing", when, got)
			}
		}
		check("at the start", "", nil)
		time.Sleep(6 * time.Second)
		check("without a trunk", "no SIP trunk is active", nil)
		time.Sleep(30 * time.Second)
		check("half a minute later", "", nil)
		time.Sleep(30 * time.Second)
		check("with a silent trunk", `trunk=far reason="it does not answer OPTIONS"`, far)
	})
}
