package sip_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

const (
	// gateValidity is the maximum age of a gate result at the time when an INVITE is sent.
	gateValidity = 2 * time.Second
	slowLookup   = 2800 * time.Millisecond
	slowRefusal  = 4500 * time.Millisecond
)

type clock struct{ now atomic.Int64 }

func (c *clock) advance(by time.Duration) { c.now.Add(int64(by)) }

func (c *clock) read() time.Duration { return time.Duration(c.now.Load()) }

type slowNames struct {
	portResolver
	clock *clock
}

func (n slowNames) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	n.clock.advance(slowLookup)
	return n.portResolver.LookupIPAddr(ctx, host)
}

func (n slowNames) LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error) {
	n.clock.advance(slowLookup)
	return n.portResolver.LookupSRV(ctx, service, proto, name)
}

// The gate result expires before each of three INVITEs: the first INVITE, the INVITE to the second
// address, and the INVITE with credentials.
func TestInvite_NeedsANewPermitForEachINVITE(t *testing.T) {
	var (
		now     clock
		permits atomic.Int32
		granted atomic.Int64 // time of the newest permit
	)
	age := func() time.Duration { return now.read() - time.Duration(granted.Load()) }
	first := siptest.New(t, transport.Config{UDP: loopback})
	first.On("01", func(c *siptest.Call) {
		if got := age(); got > gateValidity {
			t.Errorf("first INVITE: age of the permit = %v, want at most %v", got, gateValidity)
		}
		now.advance(slowRefusal)
		c.Respond(503, "")
	})
	known := portResolver{first.Port(transport.UDP), 0}
	r := newFixture(t, transport.UDP, func(cfg *sip.Config) { cfg.Names = slowNames{portResolver: known, clock: &now} })
	known[1] = r.far.Port(transport.UDP)
	r.far.Challenge(401, "ringfence", "secret")
	r.far.On("01", func(c *siptest.Call) {
		if got := age(); got > gateValidity {
			t.Errorf("INVITE to the second address: age of the permit = %v, want at most %v", got, gateValidity)
		}
		c.Respond(486, "")
	})
	r.trunk.Host, r.trunk.Port, r.trunk.Username, r.trunk.Password = "trunk.test", 0, "ringfence", "secret"
	l := r.dial("01", func(i *sip.Invite, _ *leg) {
		i.FirstResponse = siptest.Timeout
		i.Permit = func(context.Context) bool {
			permits.Add(1)
			granted.Store(int64(now.read()))
			return true
		}
	})
	l.ends(callstate.UserBusy, false)
	if got := permits.Load(); got != 3 {
		t.Errorf("permits = %d, want 3", got)
	}
	if got := r.countRequests(l, sipmsg.INVITE); got != 2 {
		t.Errorf("INVITEs at the second address = %d, want 2", got)
	}
}

// dialed_at of a call must be the time of the attempt's first INVITE, even if a later INVITE is
// answered.
func TestInvite_ReportsTheTimeOfTheFirstINVITE(t *testing.T) {
	tests := []struct {
		name         string
		challenge    int
		firstAddress func(*siptest.Call) // nil if there is only one address
		invites      int
	}{
		{name: "answered without a challenge", invites: 1},
		{name: "answered after a challenge", challenge: 401, invites: 2},
		{name: "answered at the next address", firstAddress: func(c *siptest.Call) { c.Respond(503, "") }, invites: 2},
		{
			name: "answered after a challenge at the next address", challenge: 407,
			firstAddress: func(c *siptest.Call) { c.Respond(503, "") }, invites: 3,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var known portResolver
			if tt.firstAddress != nil {
				first := siptest.New(t, transport.Config{UDP: loopback})
				first.On("01", tt.firstAddress)
				known = portResolver{first.Port(transport.UDP)}
			}
			known = append(known, 0)
			r := newFixture(t, transport.UDP, func(cfg *sip.Config) { cfg.Names = known })
			known[len(known)-1] = r.far.Port(transport.UDP)
			r.far.Challenge(tt.challenge, "ringfence", "secret")
			r.far.On("01", func(c *siptest.Call) { c.Answer(answer) })
			r.trunk.Host, r.trunk.Port, r.trunk.Username, r.trunk.Password = "trunk.test", 0, "ringfence", "secret"
			var permits []time.Time
			began := time.Now()
			l := r.dial("01", func(i *sip.Invite, l *leg) {
				i.FirstResponse = siptest.Timeout
				i.Permit = func(context.Context) bool {
					l.mu.Lock()
					defer l.mu.Unlock()
					permits = append(permits, time.Now())
					return true
				}
			})
			l.waitForCallback("answered", 1)
			l.hangUp(callstate.NormalClearing)
			l.ends(callstate.NormalClearing, true)
			l.mu.Lock()
			defer l.mu.Unlock()
			if got := len(permits); got != tt.invites {
				t.Fatalf("permits = %d, want %d", got, tt.invites)
			}
			if got := len(l.sent); got != 1 {
				t.Fatalf("calls of Sent = %d, want 1", got)
			}
			if got := l.sent[0]; got.Before(permits[0]) {
				t.Errorf("Sent = %v after the dial began, want at least %v", got.Sub(began), permits[0].Sub(began))
			}
			if tt.invites > 1 && !l.sent[0].Before(permits[1]) {
				t.Errorf("Sent = %v after the dial began, want less than %v", l.sent[0].Sub(began), permits[1].Sub(began))
			}
		})
	}
}

// If the next INVITE is not permitted, the last response is the result of the call.
func TestInvite_SendsNoFurtherINVITEWithoutAPermit(t *testing.T) {
	tests := []struct {
		name      string
		challenge int
		script    func(*siptest.Call)
		status    int
	}{
		{name: "credentials for the server", challenge: 401, status: 401},
		{name: "credentials for the proxy", challenge: 407, status: 407},
		{
			name: "longer session timer", status: 422,
			script: func(c *siptest.Call) { c.Respond(422, "", "Min-SE: 1800") },
		},
		{name: "503 of the first address", status: 503, script: func(c *siptest.Call) { c.Respond(503, "") }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			known := portResolver{0, 0}
			r := newFixture(t, transport.UDP, func(cfg *sip.Config) { cfg.Names = known })
			second := siptest.New(t, transport.Config{UDP: loopback})
			second.On("01", func(c *siptest.Call) {
				t.Error("the second address received an INVITE")
				c.Respond(486, "")
			})
			known[0], known[1] = r.far.Port(transport.UDP), second.Port(transport.UDP)
			r.far.Challenge(tt.challenge, "ringfence", "secret")
			if tt.script != nil {
				r.far.On("01", tt.script)
			}
			r.trunk.Host, r.trunk.Port, r.trunk.Username, r.trunk.Password = "trunk.test", 0, "ringfence", "secret"
			r.trunk.SessionTimer = time.Minute
			var permits atomic.Int32
			l := r.dial("01", func(i *sip.Invite, _ *leg) {
				i.FirstResponse = siptest.Timeout
				i.Permit = func(context.Context) bool { return permits.Add(1) == 1 }
			})
			l.waitForCallback("ended", 1)
			if got := l.end.Status; got != tt.status {
				t.Errorf("status = %d, want %d", got, tt.status)
			}
			if !l.end.NotPermitted {
				t.Error("NotPermitted = false, want true")
			}
			if got := permits.Load(); got != 2 {
				t.Errorf("permits = %d, want 2", got)
			}
			if got := r.countRequests(l, sipmsg.INVITE); got != 1 {
				t.Errorf("INVITEs = %d, want 1", got)
			}
		})
	}
}
