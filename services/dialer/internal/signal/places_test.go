package signal_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/signal"
	"ringfence.dev/services/dialer/internal/signal/line"
	"ringfence.dev/services/dialer/internal/signal/signaltest"
)

// names has SRV records that lead to ports of the loopback, in this order.
type names []int

func (names) LookupIPAddr(context.Context, string) ([]net.IPAddr, error) {
	return []net.IPAddr{{IP: net.IPv4(127, 0, 0, 1)}}, nil
}

func (n names) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	var records []*net.SRV
	for _, port := range n {
		records = append(records, &net.SRV{Target: "here.test.", Port: uint16(port)}) //nolint:gosec // a port
	}
	return "", records, nil
}

// TestInvite_TheNextPlaceIsAskedOnlyWhereTheFirstHasNotTakenTheCall sends the INVITE to the next
// address if the first one does not listen, or answers 503 as its first response (RFC 3263 section
// 4.3).
func TestInvite_TheNextPlaceIsAskedOnlyWhereTheFirstHasNotTakenTheCall(t *testing.T) {
	says := func(codes ...int) func(*signaltest.Call) {
		return func(c *signaltest.Call) {
			for _, code := range codes {
				c.Respond(code, "")
			}
		}
	}
	for _, tt := range []struct {
		name, transport string
		first, second   func(*signaltest.Call) // first is nil where nobody listens
		challenge       int
		// asked is how many INVITEs came to the second, status and cause how the call ended.
		asked, status int
		cause         call.Cause
	}{
		{"nobody is there", line.TCP, nil, says(486), 0, 1, 486, call.UserBusy},
		{"nobody is there, and the next wants to know who we are", line.TCP, nil, says(486), 407, 2, 486, call.UserBusy},
		{"no room", line.UDP, says(503), says(486), 0, 1, 486, call.UserBusy},
		{"no room, and the next wants to know who we are", line.UDP, says(503), says(486), 401, 2, 486, call.UserBusy},
		{"no room anywhere", line.UDP, says(503), says(503), 0, 1, 503, call.NormalTemporaryFailure},
		{"no room, said by somebody who had tried", line.UDP, says(100, 503), says(486), 0, 0, 503, call.NormalTemporaryFailure},
		{"no room, behind ringing", line.UDP, says(180, 503), says(486), 0, 0, 503, call.NormalTemporaryFailure},
		{"another refusal", line.UDP, says(480), says(486), 0, 0, 480, call.SubscriberAbsent},
		{"silence", line.UDP, (*signaltest.Call).Ignore, says(486), 0, 0, 0, call.RecoveryOnTimerExpire},
	} {
		t.Run(tt.name, func(t *testing.T) {
			first := signaltest.New(t, line.Config{UDP: loopback})
			dead, err := net.Listen("tcp4", loopback)
			if err != nil {
				t.Fatal(err)
			}
			_ = dead.Close()
			known := names{dead.Addr().(*net.TCPAddr).Port, 0}
			if tt.first != nil {
				first.On("01", tt.first)
				known[0] = first.Port(line.UDP)
			}
			r := newRig(t, tt.transport, func(cfg *signal.Config) { cfg.Names = known })
			known[1] = r.exchange.Port(tt.transport)
			r.exchange.On("01", tt.second)
			r.exchange.Challenge(tt.challenge, "ringfence", "secret")
			r.trunk.Host, r.trunk.Port, r.trunk.Username, r.trunk.Password = "trunk.test", 0, "ringfence", "secret"
			l := r.dial("01", func(i *signal.Invite, _ *leg) {
				if i.FirstResponse = signaltest.Patience; tt.name == "silence" {
					i.FirstResponse = time.Second
				}
			})
			if end := l.ends(tt.cause, tt.status == 0); end.Status != tt.status {
				t.Errorf("ended with status %d, want %d", end.Status, tt.status)
			}
			if got := r.heard(l, sip.INVITE); got != tt.asked {
				t.Errorf("the second place heard %d INVITEs, want %d", got, tt.asked)
			}
		})
	}
}

// TestInvite_OverTLSTheCertificateIsForTheTrunk, wherever the DNS says that it is: not for the name that a record gives, nor for the place's address (RFC 5922 4).
func TestInvite_OverTLSTheCertificateIsForTheTrunk(t *testing.T) {
	t.Parallel()
	dead, err := net.Listen("tcp4", loopback)
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.Close()
	place := func(t *testing.T, host string) (r *rig, port int) {
		pair, cert := shows(t, host)
		x := signaltest.New(t, line.Config{TLS: loopback, Certificate: pair})
		x.On("01", func(c *signaltest.Call) { c.Answer(answer) })
		return &rig{t: t, exchange: x, trunk: signal.Trunk{Name: "test", Host: "trunk.test", Transport: line.TLS, CallerID: signal.InFrom, CA: cert}}, x.Port(line.TLS)
	}
	over := func(r *rig, known names) {
		own, _ := shows(r.t, "127.0.0.1")
		r.agent = newAgent(r.t, func(cfg *signal.Config) { cfg.TLS, cfg.Certificate, cfg.Names = loopback, own, known })
	}
	t.Run("nobody is at the first place, and the next is the trunk", func(t *testing.T) {
		t.Parallel()
		r, port := place(t, "trunk.test")
		over(r, names{dead.Addr().(*net.TCPAddr).Port, port})
		l := r.dial("01")
		l.until("answered", 1)
		l.hangUp(call.NormalClearing)
		l.ends(call.NormalClearing, true)
		if invites, byes := r.heard(l, sip.INVITE), r.heard(l, sip.BYE); invites != 1 {
			t.Errorf("invites = %v, want 1", invites)
		} else if byes != 1 {
			t.Errorf("byes = %v, want 1", byes)
		}
	})
	t.Run("the far end names another host, which has a certificate of its own", func(t *testing.T) {
		t.Parallel()
		r, port := place(t, "trunk.test")
		edge, there := place(t, "edge.test")
		r.exchange.On("01", func(c *signaltest.Call) {
			c.Contact.Host, c.Contact.Port = "edge.test", there
			c.Respond(200, answer)
		})
		r.trunk.CA += edge.trunk.CA
		over(r, names{port})
		l := r.dial("01")
		l.until("answered", 1)
		l.hangUp(call.NormalClearing)
		l.ends(call.NormalClearing, true)
		if acks, byes := edge.heard(l, sip.ACK), edge.heard(l, sip.BYE); acks == 0 {
			t.Error("acks = 0, want more")
		} else if byes != 1 {
			t.Errorf("byes = %v, want 1", byes)
		}
	})
	for name, host := range map[string]string{"the name of its record": "here.test", "its address": "127.0.0.1"} {
		t.Run("the place has a certificate for "+name, func(t *testing.T) {
			t.Parallel()
			r, port := place(t, host)
			over(r, names{port})
			order := signal.Invite{CallID: uuid.NewString(), From: "+15005550006", To: "+14155550101", Body: []byte(offer)}
			if _, err := r.agent.Invite(t.Context(), r.trunk, order, signal.Observer{}); !line.Refused(err) {
				t.Error("invite: line.Refused(err) = false, want true")
			} else if !strings.Contains(err.Error(), "certificate") {
				t.Errorf(`invite: err = %q, want it to contain "certificate"`, err.Error())
			}
		})
	}
}

func TestInvite_NobodyIsAnywhere(t *testing.T) {
	r := newRig(t, line.TCP, func(cfg *signal.Config) { cfg.Names = names{1, 2} })
	r.trunk.Host, r.trunk.Port = "trunk.test", 0
	var unsent *line.Unsent
	_, err := r.agent.Invite(t.Context(), r.trunk, signal.Invite{CallID: uuid.NewString(), From: "+15005550006", To: "+14155550101", Body: []byte(offer)}, signal.Observer{})
	if !errors.As(err, &unsent) {
		t.Errorf("invite: %v, want that nothing was sent", err)
	}
	if err := r.agent.Probe(t.Context(), r.trunk); err == nil {
		t.Error("a trunk is there where nobody is")
	}
}

func TestProbe_TheNextPlaceAnswers(t *testing.T) {
	known := names{1, 0}
	r := newRig(t, line.TCP, func(cfg *signal.Config) { cfg.Names = known })
	known[1] = r.exchange.Port(line.TCP)
	r.trunk.Host, r.trunk.Port = "trunk.test", 0
	if err := r.agent.Probe(t.Context(), r.trunk); err != nil {
		t.Error(err)
	}
}
