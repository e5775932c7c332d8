package sip_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// portResolver resolves each host name to SRV records of the loopback address. The records have the
// ports in the list, in this order.
type portResolver []int

func (portResolver) LookupIPAddr(context.Context, string) ([]net.IPAddr, error) {
	return []net.IPAddr{{IP: net.IPv4(127, 0, 0, 1)}}, nil
}

func (n portResolver) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	var records []*net.SRV
	for _, port := range n {
		records = append(records, &net.SRV{Target: "here.test.", Port: uint16(port)}) //nolint:gosec // a port has 16 bits
	}
	return "", records, nil
}

// RFC 3263 section 4.3 describes when a client tries the next address.
func TestInvite_TriesTheNextAddressOnlyIfTheFirstDoesNotListenOrSends503(t *testing.T) {
	says := func(codes ...int) func(*siptest.Call) {
		return func(c *siptest.Call) {
			for _, code := range codes {
				c.Respond(code, "")
			}
		}
	}
	for _, tt := range []struct {
		name, transport string
		first, second   func(*siptest.Call) // first is nil if there is no listener
		challenge       int
		// secondInvites is the expected number of INVITEs at the second address.
		secondInvites, status int
		cause                 callstate.Cause
	}{
		{
			name: "first address does not listen", transport: transport.TCP, first: nil, second: says(486), challenge: 0,
			secondInvites: 1, status: 486, cause: callstate.UserBusy,
		},
		{
			name: "first address does not listen, second requests credentials", transport: transport.TCP,
			first: nil, second: says(486), challenge: 407, secondInvites: 2, status: 486, cause: callstate.UserBusy,
		},
		{
			name: "first address sends 503", transport: transport.UDP, first: says(503), second: says(486), challenge: 0,
			secondInvites: 1, status: 486, cause: callstate.UserBusy,
		},
		{
			name: "first address sends 503, second requests credentials", transport: transport.UDP, first: says(503),
			second: says(486), challenge: 401, secondInvites: 2, status: 486, cause: callstate.UserBusy,
		},
		{
			name: "both addresses send 503", transport: transport.UDP, first: says(503), second: says(503),
			challenge: 0, secondInvites: 1, status: 503, cause: callstate.NormalTemporaryFailure,
		},
		{
			name: "first address sends 100 and 503", transport: transport.UDP, first: says(100, 503),
			second: says(486), challenge: 0, secondInvites: 0, status: 503, cause: callstate.NormalTemporaryFailure,
		},
		{
			name: "first address sends 180 and 503", transport: transport.UDP, first: says(180, 503), second: says(486),
			challenge: 0, secondInvites: 0, status: 503, cause: callstate.NormalTemporaryFailure,
		},
		{
			name: "first address sends 480", transport: transport.UDP, first: says(480), second: says(486),
			challenge: 0, secondInvites: 0, status: 480, cause: callstate.SubscriberAbsent,
		},
		{
			name: "first address sends no response", transport: transport.UDP, first: (*siptest.Call).Ignore, second: says(486),
			challenge: 0, secondInvites: 0, status: 0, cause: callstate.RecoveryOnTimerExpire,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first := siptest.New(t, transport.Config{UDP: loopback})
			dead, err := net.Listen("tcp4", loopback)
			if err != nil {
				t.Fatal(err)
			}
			_ = dead.Close()
			known := portResolver{dead.Addr().(*net.TCPAddr).Port, 0}
			if tt.first != nil {
				first.On("01", tt.first)
				known[0] = first.Port(transport.UDP)
			}
			r := newFixture(t, tt.transport, func(cfg *sip.Config) { cfg.Names = known })
			known[1] = r.far.Port(tt.transport)
			r.far.On("01", tt.second)
			r.far.Challenge(tt.challenge, "ringfence", "secret")
			r.trunk.Host, r.trunk.Port, r.trunk.Username, r.trunk.Password = "trunk.test", 0, "ringfence", "secret"
			l := r.dial("01", func(i *sip.Invite, _ *leg) {
				if i.FirstResponse = siptest.Timeout; tt.name == "first address sends no response" {
					i.FirstResponse = time.Second
				}
			})
			if end := l.ends(tt.cause, tt.status == 0); end.Status != tt.status {
				t.Errorf("status of the end = %d, want %d", end.Status, tt.status)
			}
			if got := r.countRequests(l, sipmsg.INVITE); got != tt.secondInvites {
				t.Errorf("INVITEs at the second address = %d, want %d", got, tt.secondInvites)
			}
		})
	}
}

// The certificate must contain the trunk's name. The user agent must refuse a certificate that
// contains only the host of the SRV record or the IP address (RFC 5922 section 4).
func TestInvite_TLSCertificateMustNameTheTrunk(t *testing.T) {
	t.Parallel()
	dead, err := net.Listen("tcp4", loopback)
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.Close()
	place := func(t *testing.T, host string) (r *fixture, port int) {
		pair, cert := shows(t, host)
		x := siptest.New(t, transport.Config{TLS: loopback, Certificate: pair})
		x.On("01", func(c *siptest.Call) { c.Answer(answer) })
		return &fixture{t: t, far: x, trunk: sip.Trunk{Name: "test", Host: "trunk.test", Transport: transport.TLS, CallerID: sip.InFrom, CA: cert}}, x.Port(transport.TLS)
	}
	over := func(r *fixture, known portResolver) {
		own, _ := shows(r.t, "127.0.0.1")
		r.agent = newAgent(r.t, func(cfg *sip.Config) { cfg.TLS, cfg.Certificate, cfg.Names = loopback, own, known })
	}
	t.Run("first address does not listen, second has the trunk's certificate", func(t *testing.T) {
		t.Parallel()
		r, port := place(t, "trunk.test")
		over(r, portResolver{dead.Addr().(*net.TCPAddr).Port, port})
		l := r.dial("01")
		l.waitForCallback("answered", 1)
		l.hangUp(callstate.NormalClearing)
		l.ends(callstate.NormalClearing, true)
		if invites, byes := r.countRequests(l, sipmsg.INVITE), r.countRequests(l, sipmsg.BYE); invites != 1 {
			t.Errorf("invites = %v, want 1", invites)
		} else if byes != 1 {
			t.Errorf("byes = %v, want 1", byes)
		}
	})
	t.Run("Contact names another host with its own certificate", func(t *testing.T) {
		t.Parallel()
		r, port := place(t, "trunk.test")
		edge, there := place(t, "edge.test")
		r.far.On("01", func(c *siptest.Call) {
			c.Contact.Host, c.Contact.Port = "edge.test", there
			c.Respond(200, answer)
		})
		r.trunk.CA += edge.trunk.CA
		over(r, portResolver{port})
		l := r.dial("01")
		l.waitForCallback("answered", 1)
		l.hangUp(callstate.NormalClearing)
		l.ends(callstate.NormalClearing, true)
		if acks, byes := edge.countRequests(l, sipmsg.ACK), edge.countRequests(l, sipmsg.BYE); acks == 0 {
			t.Error("acks = 0, want more")
		} else if byes != 1 {
			t.Errorf("byes = %v, want 1", byes)
		}
	})
	for name, host := range map[string]string{"the host in the SRV record": "here.test", "the IP address": "127.0.0.1"} {
		t.Run("certificate for "+name, func(t *testing.T) {
			t.Parallel()
			r, port := place(t, host)
			over(r, portResolver{port})
			order := sip.Invite{CallID: uuid.NewString(), From: "+15005550006", To: "+14155550101", Body: []byte(offer)}
			if _, err := r.agent.Invite(t.Context(), r.trunk, order, sip.Observer{}); !transport.IsNotSent(err) {
				t.Error("invite: line.Refused(err) = false, want true")
			} else if !strings.Contains(err.Error(), "certificate") {
				t.Errorf(`invite: err = %q, want it to contain "certificate"`, err.Error())
			}
		})
	}
}

func TestInvite_ReturnsANotSentErrorIfNoAddressListens(t *testing.T) {
	r := newFixture(t, transport.TCP, func(cfg *sip.Config) { cfg.Names = portResolver{1, 2} })
	r.trunk.Host, r.trunk.Port = "trunk.test", 0
	var unsent *transport.NotSent
	_, err := r.agent.Invite(t.Context(), r.trunk, sip.Invite{CallID: uuid.NewString(), From: "+15005550006", To: "+14155550101", Body: []byte(offer)}, sip.Observer{})
	if !errors.As(err, &unsent) {
		t.Errorf("Invite = %v, want a *transport.NotSent", err)
	}
	if err := r.agent.Probe(t.Context(), r.trunk); err == nil {
		t.Error("Probe succeeded without a listener, want an error")
	}
}

func TestProbe_TriesTheSecondAddressIfTheFirstDoesNotListen(t *testing.T) {
	known := portResolver{1, 0}
	r := newFixture(t, transport.TCP, func(cfg *sip.Config) { cfg.Names = known })
	known[1] = r.far.Port(transport.TCP)
	r.trunk.Host, r.trunk.Port = "trunk.test", 0
	if err := r.agent.Probe(t.Context(), r.trunk); err != nil {
		t.Error(err)
	}
}
