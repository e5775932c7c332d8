package sipcarrier_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/circuitbreaker"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
	"ringfence.dev/services/dialer/internal/trunks"
)

func scriptedTrunk(t *testing.T, script func(*siptest.Call)) (port int, dials func() int) {
	t.Helper()
	x, n := siptest.New(t, transport.Config{UDP: loopback}), atomic.Int64{}
	x.On("", func(c *siptest.Call) { n.Add(1); script(c) })
	return x.Port(transport.UDP), func() int { return int(n.Load()) }
}

// The error names the trunk only if another trunk can be tried: this trunk is at fault, no phone
// rang, and the refusal arrived in time.
func TestOriginate_RefusalNamesTheTrunkIfAnotherTrunkCanBeTried(t *testing.T) {
	t.Parallel()
	says := func(codes ...int) func(*siptest.Call) {
		return func(c *siptest.Call) {
			for _, code := range codes {
				c.Respond(code, "")
			}
		}
	}
	for _, tt := range []struct {
		name   string
		script func(*siptest.Call)
		// If named is true, the error must name the trunk. If taken is true, the trunk must count as
		// having accepted the call.
		named, taken bool
	}{
		{name: "503", script: says(503), named: true, taken: false},
		{name: "503 after 100", script: says(100, 503), named: true, taken: false},
		{name: "403 after 100", script: says(100, 403), named: true, taken: false},
		{name: "502", script: says(502), named: true, taken: false},
		{name: "404", script: says(404), named: false, taken: false},
		{name: "404 after 100", script: says(100, 404), named: false, taken: true},
		{name: "486 after 100", script: says(100, 486), named: false, taken: true},
		{name: "603", script: says(603), named: false, taken: false},
		{name: "503 after 180", script: says(180, 503), named: false, taken: true},
		{name: "503 after 183", script: says(183, 503), named: false, taken: true},
		{name: "only 100", script: says(100), named: false, taken: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			port, refused := scriptedTrunk(t, tt.script)
			spare, taken := scriptedTrunk(t, says(180))
			var one, two trunks.Trunk
			p := x.startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks {
				one, two = good, good
				one.TrunkID, one.Port, one.Priority = uuid.New(), uint16(port), 1
				two.TrunkID, two.Port, two.Priority = uuid.New(), uint16(spare), 2
				return trunkList{two, one}
			})
			p.awaitAnswers(t, one, two)
			o := carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+14155550199"}
			_, err := p.Originate(t.Context(), o)
			var no *carrier.Refused
			if tt.taken != (err == nil) || errors.As(err, &no) && (no.RefusedBy == one.TrunkID.String()) != tt.named {
				t.Fatalf("originate: %v, %+v", err, no)
			}
			if !tt.named {
				return
			}
			o.CallID, o.ExcludeTrunks = uuid.Must(uuid.NewV7()), []string{no.RefusedBy}
			switch _, err := p.Originate(t.Context(), o); {
			case err != nil:
				t.Errorf("Originate: %v", err)
			case refused() != 1:
				t.Errorf("refused() = %v, want 1", refused())
			case taken() != 1:
				t.Errorf("taken() = %v, want 1", taken())
			}
			o.CallID, o.ExcludeTrunks = uuid.Must(uuid.NewV7()), []string{no.RefusedBy, two.TrunkID.String()}
			if _, err := p.Originate(t.Context(), o); !refusedBy(true)(err) {
				t.Errorf("no trunk is left: %v", err)
			}
		})
	}
}

// The trunk sends 100 immediately. It sends the next response after refusalWait.
func TestOriginate_RefusalAfterTheWaitCountsOnlyIfItConcernsTheAccount(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		answer int // status of the next response, or 0 if there is none
		spare  bool
		// If refused is true, the response is a refusal, because it concerns the operator's account.
		// Otherwise the trunk must count as having accepted the call.
		refused bool
	}{
		{name: "401", answer: 401, refused: true},
		{name: "407", answer: 407, refused: true},
		{name: "403 of a trunk that has accepted no call", answer: 403, refused: true},
		{name: "401, another trunk can be tried", answer: 401, spare: true, refused: true},
		{name: "503, another trunk can be tried", answer: 503, spare: true},
		{name: "486", answer: 486},
		{name: "180", answer: 180},
		{name: "no further response until the process stops"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			waiting, stop := make(chan struct{}), make(chan struct{})
			port, dials := scriptedTrunk(t, func(c *siptest.Call) {
				c.Respond(100, "")
				<-waiting
				if tt.answer == 0 {
					close(stop)
					return
				}
				c.Respond(tt.answer, "")
			})
			var one trunks.Trunk
			p := newFixture(t).startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks {
				one = good
				one.TrunkID, one.Port, one.Priority = uuid.New(), uint16(port), 1
				if good.Priority = 2; tt.spare {
					return trunkList{one, good}
				}
				return trunkList{one}
			})
			p.awaitAnswers(t, one)
			waits := 0
			_, err := p.Originate(t.Context(), carrier.Originate{
				CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+14155550199",
				Waiting: func() <-chan struct{} {
					waits++
					close(waiting)
					return stop
				},
			})
			by := ""
			if tt.spare {
				by = one.TrunkID.String()
			}
			wantAccountRefused(t, err, tt.refused, by)
			if waits != 1 {
				t.Errorf("calls of Waiting = %d, want 1", waits)
			}
			if got := dials(); got != 1 {
				t.Errorf("INVITEs = %d, want 1", got)
			}
		})
	}
}

// The trunk has sent only 100 when Refresh is called. A 100 does not prove that the trunk works,
// so the circuit must stay half-open.
func TestOriginate_RefreshEndsTheWaitForATrunkThatSentOnly100(t *testing.T) {
	t.Parallel()
	waiting := make(chan struct{})
	port, _ := scriptedTrunk(t, func(c *siptest.Call) { c.Respond(100, "") })
	var one trunks.Trunk
	p := newFixture(t).startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks {
		one = good
		one.TrunkID, one.Port = uuid.New(), uint16(port)
		return trunkList{one}
	})
	p.awaitAnswers(t, one)
	p.HalfOpen(one.TrunkID)
	go func() {
		<-waiting
		p.Refresh()
	}()
	_, err := p.Originate(t.Context(), carrier.Originate{
		CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+14155550199",
		Waiting: func() <-chan struct{} {
			close(waiting)
			return nil
		},
	})
	if err != nil {
		t.Fatalf("Originate = %v, want nil", err)
	}
	state, probing := p.Circuit(one.TrunkID)
	if state != circuitbreaker.HalfOpen {
		t.Errorf("circuit = %q, want %q", state, circuitbreaker.HalfOpen)
	}
	if probing {
		t.Error("probing = true, want false: the next call tests the circuit")
	}
}

// RING_LIMIT is 4 s, shorter than the time that a trunk has for its first response (5 s). If the
// trunk sends no response, the hangup cause must still be recovery_on_timer_expire, and not
// no_answer.
func TestOriginate_ShortRingLimitDoesNotHideThatTheTrunkFailed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		script func(*siptest.Call)
		want   callstate.Cause
	}{
		{name: "no response", script: (*siptest.Call).Ignore, want: callstate.RecoveryOnTimerExpire},
		{
			name:   "only 100",
			script: func(c *siptest.Call) { c.Respond(100, ""); c.Canceled() },
			want:   callstate.NoAnswer,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			x.ringLimit = 4 * time.Second
			x.far.On("31", tt.script)
			p := x.begin(loopback)
			o := carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+14155550231"}
			_, err := p.Originate(t.Context(), o)
			if silent := tt.want == callstate.RecoveryOnTimerExpire; silent != (err != nil) {
				t.Errorf("Originate = %v, want an error: %v", err, silent)
			}
			if got := news(t, p, o.CallID, carrier.Ended).Cause; got != tt.want {
				t.Errorf("cause = %q, want %q", got, tt.want)
			}
		})
	}
}

// A trunk refuses every call to one number with 403. If the trunk has never accepted a call, the
// account is suspected. Otherwise the number is the cause.
func TestOriginate_AccountIsSuspectedAfterRepeated403(t *testing.T) {
	t.Parallel()
	forbid := func(before ...int) func(*siptest.Call) {
		return func(c *siptest.Call) {
			for _, status := range append(before, 403) {
				c.Respond(status, "")
			}
		}
	}
	tests := []struct {
		name     string
		script   func(*siptest.Call)
		accepted bool
		want     bool
	}{
		{name: "403", script: forbid(), want: true},
		{name: "403 after 100", script: forbid(100), want: true},
		{name: "403 of a trunk that has accepted a call", script: forbid(), accepted: true, want: false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			port, _ := scriptedTrunk(t, tt.script)
			var one trunks.Trunk
			p := newFixture(t).startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks {
				one = good
				one.TrunkID, one.Port = uuid.New(), uint16(port)
				return trunkList{one}
			})
			p.awaitAnswers(t, one)
			if tt.accepted {
				p.Accept(one.TrunkID)
			}
			refused := &carrier.Refused{OperatorFault: true}
			for refused.OperatorFault {
				_, err := p.Originate(t.Context(), carrier.Originate{
					CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+14155550199",
				})
				if !errors.As(err, &refused) {
					t.Fatalf("Originate = %v, want a refusal", err)
				}
			}
			if got := refused.AccountSuspected; got != tt.want {
				t.Errorf("AccountSuspected = %v, want %v", got, tt.want)
			}
		})
	}
}

func wantAccountRefused(t *testing.T, err error, refused bool, by string) {
	t.Helper()
	if !refused {
		if err != nil {
			t.Errorf("Originate = %v, want nil", err)
		}
		return
	}
	var got *carrier.Refused
	if !errors.As(err, &got) {
		t.Fatalf("Originate = %v, want a refusal", err)
	}
	if !got.OperatorFault {
		t.Error("OperatorFault = false, want true")
	}
	if got.RefusedBy != by {
		t.Errorf("By = %q, want %q", got.RefusedBy, by)
	}
}

// Ready must send OPTIONS to all trunks concurrently. Otherwise the five trunks that do not answer
// would use up its time limit.
func TestReady_SucceedsIfOneTrunkAnswers(t *testing.T) {
	t.Parallel()
	deaf, err := net.ListenPacket("udp4", loopback)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deaf.Close() })
	x := newFixture(t)
	known := &changing{}
	p := x.startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks {
		for range 5 {
			dead := good
			dead.TrunkID, dead.Port = uuid.New(), uint16(deaf.LocalAddr().(*net.UDPAddr).Port)
			known.now = append(known.now, dead)
		}
		known.now = append(known.now, good)
		return known
	})
	if err := p.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
	known.set(known.now[:5]...)
	if err := p.Ready(t.Context()); err == nil {
		t.Error("Ready succeeded although no trunk answers")
	}
}

// The trunk permits two calls per second, and two processes share it. So each process may place one
// call per second over the trunk.
func TestOriginate_ProcessesShareTheRateOfATrunk(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	says := func(c *siptest.Call) { c.Respond(180, "") }
	slow, _ := scriptedTrunk(t, says)
	fast, spared := scriptedTrunk(t, says)
	x.begin(loopback)
	var one, two trunks.Trunk
	p := x.startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks {
		one, two = good, good
		one.TrunkID, one.Port, one.Priority, one.CallsPerSecond = uuid.New(), uint16(slow), 1, 2
		two.TrunkID, two.Port, two.Priority = uuid.New(), uint16(fast), 2
		return trunkList{one, two}
	})
	p.awaitAnswers(t, one, two)
	// In 1.1 s, the trunk permits two calls of both processes together.
	pace := time.NewTicker(1100 * time.Millisecond)
	defer pace.Stop()
	for begun := time.Now(); spared() == 0; <-pace.C {
		if time.Since(begun) > testkit.Timeout {
			t.Fatal("calls to the second trunk = 0, want at least 1: one process used the whole pace of the first trunk")
		}
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				o := carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+14155550111"}
				if _, err := p.Originate(t.Context(), o); err != nil {
					t.Errorf("originate: %v", err)
				}
			})
		}
		both.Wait()
	}
}

type trunkList []trunks.Trunk

func (s trunkList) Active(context.Context) ([]trunks.Trunk, error) { return s, nil }

func TestOriginate_TriesAnotherTrunkOnlyIfNothingWasSent(t *testing.T) {
	t.Parallel()
	made := func(name string, port int, transport trunks.Transport, channels int32) trunks.Trunk {
		one := trunks.New(uuid.New())
		one.Name, one.Host, one.Port, one.Transport, one.SessionSeconds, one.Channels = name, "127.0.0.1", uint16(port), transport, 0, channels
		return one
	}
	quiet, err := net.ListenPacket("udp4", loopback)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = quiet.Close() })
	silent := quiet.LocalAddr().(*net.UDPAddr).Port
	for _, tt := range []struct {
		name  string
		order func(good trunks.Trunk) trunkList
		to    string
		check func(error) bool
		dials int
	}{
		{name: "first trunk has never answered OPTIONS", order: func(good trunks.Trunk) trunkList {
			return trunkList{made("silent", silent, trunks.UDP, 10), good}
		}, to: "12", check: func(err error) bool { return err == nil }, dials: 1},
		{name: "first trunk refuses", order: func(good trunks.Trunk) trunkList {
			again := good
			again.TrunkID = uuid.New()
			return trunkList{good, again}
		}, to: "13", check: refusedBy(false), dials: 0},
		{
			name:  "no trunk listens",
			order: func(trunks.Trunk) trunkList { return trunkList{made("dead", 1, trunks.TCP, 10)} }, to: "01",
			check: refusedBy(true), dials: 0,
		},
		{name: "no trunk has a token for a call", order: func(good trunks.Trunk) trunkList {
			good.CallsPerSecond = 0
			again := good
			again.TrunkID = uuid.New()
			return trunkList{good, again}
		}, to: "12", check: func(err error) bool { return err == nil }, dials: 1},
		{
			name:  "only trunk has no free channel",
			order: func(good trunks.Trunk) trunkList { good.Channels = 0; return trunkList{good} }, to: "01",
			check: refusedBy(true), dials: 0,
		},
		{
			name: "no trunk", order: func(trunks.Trunk) trunkList { return nil }, to: "01",
			check: refusedBy(true), dials: 0,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			x := newFixture(t)
			var good []trunks.Trunk
			p := x.startWithTrunks(loopback, func(one trunks.Trunk) activeTrunks {
				all := tt.order(one)
				good = slices.DeleteFunc(slices.Clone(all), func(t trunks.Trunk) bool { return t.Port != one.Port })
				return all
			})
			p.awaitAnswers(t, good...)
			o := carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+1415555010" + tt.to}
			if _, err := p.Originate(t.Context(), o); !tt.check(err) {
				t.Errorf("originate: %v", err)
			}
			if got := x.dials(o.CallID); got != tt.dials {
				t.Errorf("INVITEs = %d, want %d", got, tt.dials)
			}
			if _, err := p.Find(t.Context(), o.CallID); tt.dials == 0 && !errors.Is(err, carrier.ErrUnknownCall) {
				t.Errorf("Find = %v, want ErrUnknownCall", err)
			}
		})
	}
}

func TestOriginate_TriesAnotherTrunkIfTheFirstNoLongerListens(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	first := siptest.New(t, transport.Config{TCP: loopback})
	gone := trunks.New(uuid.New())
	gone.Name, gone.Host, gone.Port, gone.Transport = "gone", "127.0.0.1", uint16(first.Port(transport.TCP)), trunks.TCP
	p := x.startWithTrunks(loopback, func(good trunks.Trunk) activeTrunks { return trunkList{gone, good} })
	p.awaitAnswers(t, gone, p.over)
	first.Transport().Close()
	testkit.Until(t, "the connection to the first trunk is closed", func() bool {
		return p.agent.Probe(t.Context(), sip.Trunk{
			Name: "gone", Host: gone.Host, Port: int(gone.Port), Transport: transport.TCP, CallerID: sip.InFrom,
		}) != nil
	})
	o := carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: "+14155550112"}
	if _, err := p.Originate(t.Context(), o); err != nil {
		t.Errorf("Originate = %v, want nil", err)
	}
	if got := x.dials(o.CallID); got != 1 {
		t.Errorf("dials = %d, want 1", got)
	}
}

func refusedBy(unsent bool) func(error) bool {
	return func(err error) bool {
		var refused *carrier.Refused
		return errors.As(err, &refused) && refused.NotSent == unsent && refused.Cause != ""
	}
}
