package sip_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

func TestHangup_BeforeTheAnswerSendsCANCEL(t *testing.T) {
	forEachTransport(t, func(t *testing.T, transport string) {
		r := newFixture(t, transport)
		hungUp := make(chan struct{})
		r.far.On("01", func(c *siptest.Call) {
			<-hungUp
			if !c.NotCanceledFor(100 * time.Millisecond) {
				t.Error("the INVITE was canceled before a response (RFC 3261 section 9.1)")
			}
			c.Respond(100, "")
			c.Canceled()
		})
		r.far.On("02", func(c *siptest.Call) { c.Respond(100, ""); c.Canceled() })
		r.far.On("03", func(c *siptest.Call) { c.Respond(180, ""); c.Canceled() })
		early := r.dial("01", func(o *sip.Invite, _ *leg) { o.FirstResponse = siptest.Timeout })
		gone := make(chan struct{})
		r.far.Wait(early.id)
		go func() { defer close(gone); early.hangUp(callstate.NormalClearing) }()
		close(hungUp)
		<-gone
		early.ends(callstate.OriginatorCancel, true)
		tried := r.dial("02")
		tried.waitForCallback("taken", 1)
		tried.hangUp(callstate.NormalClearing)
		tried.ends(callstate.OriginatorCancel, true, "taken")
		rings := r.dial("03")
		rings.waitForCallback("rang", 1)
		rings.hangUp(callstate.AgentError)
		if end := rings.ends(callstate.AgentError, true, "taken", "rang"); end.Status != 487 {
			t.Errorf("end = %+v", end)
		}
	})
}

func TestInvite_RingTimeoutSendsCANCEL(t *testing.T) {
	forEachTransport(t, func(t *testing.T, transport string) {
		r := newFixture(t, transport)
		r.far.On("01", func(c *siptest.Call) { c.Respond(183, answer); c.Respond(180, ""); c.Canceled() })
		l := r.dial("01", func(o *sip.Invite, _ *leg) { o.Ring = 150 * time.Millisecond })
		l.ends(callstate.NoAnswer, true, "taken", "rang")
	})
}

func TestHangup_CallIsHungUpIfItsAnswerCrossesTheCANCEL(t *testing.T) {
	forEachTransport(t, func(t *testing.T, transport string) {
		r := newFixture(t, transport)
		done := make(chan struct{})
		r.far.On("01", func(c *siptest.Call) {
			defer close(done)
			c.AnswerWhileCanceled(answer)
			c.Next(sipmsg.ACK)
			c.Hangup()
		})
		l := r.dial("01")
		l.waitForCallback("rang", 1)
		l.hangUp(callstate.NormalClearing)
		l.ends(callstate.OriginatorCancel, true, "taken", "rang")
		<-done
		if acks, byes := r.countRequests(l, sipmsg.ACK), r.countRequests(l, sipmsg.BYE); acks != 1 {
			t.Errorf("acks = %v, want 1", acks)
		} else if byes != 1 {
			t.Errorf("byes = %v, want 1", byes)
		}
	})
}

func TestInvite_EndsTheCallIfTheFirstResponseIsTooLate(t *testing.T) {
	r := newFixture(t, transport.UDP)
	over, canceled := make(chan struct{}), make(chan struct{})
	r.far.On("01", func(c *siptest.Call) { <-over; c.Answer(answer); c.Hangup() })
	r.far.On("02", func(c *siptest.Call) { <-over; c.Respond(180, ""); c.Canceled(); close(canceled) })
	quick := func(o *sip.Invite, _ *leg) { o.FirstResponse = 50 * time.Millisecond }
	answered, rings := r.dial("01", quick), r.dial("02", quick)
	answered.ends(callstate.RecoveryOnTimerExpire, true)
	rings.ends(callstate.RecoveryOnTimerExpire, true)
	close(over)
	testkit.Until(t, "a BYE", func() bool { return r.countRequests(answered, sipmsg.BYE) == 1 })
	<-canceled
	answered.mu.Lock()
	defer answered.mu.Unlock()
	if count(answered.notifications, "answered") != 0 {
		t.Errorf("notifications = %v", answered.notifications)
	}
}

// The test also checks that each retransmission of a 200 gets a new ACK with a new branch.
func TestInvite_ForkedINVITEKeepsOnlyTheFirstPhoneThatAnswers(t *testing.T) {
	r := newFixture(t, transport.UDP)
	branches := make(chan string, 8)
	r.far.On("01", func(c *siptest.Call) {
		c.Respond(180, "")
		won, lost := c.Response(200, answer), c.Response(200, answer)
		lost.To().Params.Add("tag", "the-loser")
		c.Send(won)
		branches <- c.Next(sipmsg.ACK).Via().Params.GetOr("branch", "")
		c.Send(won)
		branches <- c.Next(sipmsg.ACK).Via().Params.GetOr("branch", "")
		c.Send(lost)
		ack := c.Next(sipmsg.ACK)
		bye := c.Hangup()
		for _, req := range []siptest.Request{ack, bye} {
			if tag := req.To().Params.GetOr("tag", ""); tag != "the-loser" {
				t.Errorf("To tag of %s = %q", req.Method, tag)
			}
		}
		c.Send(lost)
		c.Next(sipmsg.ACK)
		close(branches)
		c.Request(sipmsg.BYE, "")
	})
	l := r.dial("01")
	first, second := <-branches, <-branches
	if first == "" {
		t.Error("the branch of the first ACK is empty")
	}
	if second == first {
		t.Errorf("branch of the second ACK = %q, want another one than that of the first", second)
	}
	l.ends(callstate.NormalClearing, false, "taken", "rang", "answered")
	if n := r.countRequests(l, sipmsg.BYE); n != 1 {
		t.Errorf("BYEs = %d", n)
	}
}

func TestReinvite_PutsTheCallOnHoldAndResumesIt(t *testing.T) {
	forEachTransport(t, func(t *testing.T, transport string) {
		r := newFixture(t, transport)
		hold := strings.ReplaceAll(answer, "RTP/AVP 0\r\n", "RTP/AVP 0\r\na=sendonly\r\n")
		r.far.On("01", func(c *siptest.Call) {
			c.Answer(answer)
			res := c.Request(sipmsg.INVITE, hold)
			switch {
			case res.StatusCode != 200:
				t.Errorf("res.StatusCode = %v, want 200", res.StatusCode)
			case !strings.Contains(string(res.Body()), "recvonly"):
				t.Errorf("string(res.Body()) = %q, want it to contain %q", string(res.Body()), "recvonly")
			case res.Contact() == nil:
				t.Error("res.Contact() = nil, want a value")
			}
			c.Ack("")
			if res := c.Request(sipmsg.INVITE, answer); res.StatusCode != 200 {
				t.Errorf("resume: res.StatusCode = %v, want 200", res.StatusCode)
			} else if got := string(res.Body()); got != offer {
				t.Errorf("resume: res.Body() = %q, want %q", got, offer)
			}
			c.Ack("")
			if res := c.Request(sipmsg.INVITE, ""); res.StatusCode != 200 {
				t.Errorf("an INVITE without an offer: res.StatusCode = %v, want 200", res.StatusCode)
			} else if len(res.Body()) == 0 {
				t.Error("an INVITE without an offer: length of res.Body() = 0, want more")
			}
			c.Ack(answer)
			if res := c.Request(sipmsg.UPDATE, hold); res.StatusCode != 200 {
				t.Errorf("UPDATE: res.StatusCode = %v, want 200", res.StatusCode)
			} else if len(res.Body()) == 0 {
				t.Error("UPDATE: length of res.Body() = 0, want more")
			}
			if res := c.Request(sipmsg.INVITE, "refused"); res.StatusCode != 488 {
				t.Errorf("response to a refused offer = %s", res)
			}
			c.Request(sipmsg.BYE, "", "Reason: Q.850;cause=38")
		})
		l := r.dial("01", func(_ *sip.Invite, l *leg) {
			l.offered = func(body []byte) ([]byte, error) {
				switch {
				case string(body) == "refused":
					return nil, errors.New("no")
				case strings.Contains(string(body), "sendonly"):
					return []byte(strings.ReplaceAll(offer, "RTP/AVP 0\r\n", "RTP/AVP 0\r\na=recvonly\r\n")), nil
				}
				return []byte(offer), nil
			}
		})
		l.ends(callstate.NetworkOutOfOrder, false)
		if got := count(l.notifications, "offered"); got != 5 {
			t.Errorf(`offers = %v, want 5`, got)
		} else if got := count(l.notifications, "agreed"); got != 1 {
			t.Errorf(`agreements = %v, want 1`, got)
		}
	})
}

// RFC 3261 section 13.3.1.4 requires the retransmission of the 200 also for an INVITE within the
// call.
func TestReinvite_200IsRetransmittedUntilTheACK(t *testing.T) {
	forEachTransport(t, func(t *testing.T, transport string) {
		r := newFixture(t, transport)
		r.far.On("01", func(c *siptest.Call) {
			c.Answer(answer)
			c.Request(sipmsg.INVITE, answer)
			testkit.Until(t, "the 200 is repeated",
				func() bool { return r.far.Responses(200, 1001, sipmsg.INVITE, c.Invite.CallID().Value()) >= 2 })
			c.Ack("")
			c.Request(sipmsg.BYE, "")
		})
		r.dial("01").ends(callstate.NormalClearing, false)
	})
}

func TestDialog_RespondsToEachRequestWithinTheCall(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.far.On("01", func(c *siptest.Call) {
		c.Answer(answer)
		for _, one := range []struct {
			method sipmsg.RequestMethod
			header string
			want   int
		}{
			{
				method: sipmsg.OPTIONS, header: "A: b", want: 200}, {method: sipmsg.INFO, header: "A: b",
				want: 200}, {method: sipmsg.UPDATE, header: "A: b", want: 200}, {method: sipmsg.REFER,
				header: "Refer-To: <sip:x@127.0.0.1>", want: 603}, {method: sipmsg.PRACK,
				header: "RAck: 1 1 INVITE", want: 405,
			},
			{
				method: sipmsg.NOTIFY, header: "Event: refer", want: 481}, {method: sipmsg.UPDATE,
				header: "Require: 100rel, timer, x-y", want: 420}, {method: sipmsg.UPDATE,
				header: "Session-Expires: 0", want: 200}, {method: "X-NOBODY", header: "A: b", want: 405},
		} {
			res := c.Request(one.method, "", one.header)
			if res.StatusCode != one.want {
				t.Errorf("response to %s %s = %d, want %d", one.method, one.header, res.StatusCode, one.want)
			}
			if one.want == 420 && res.GetHeader("Unsupported").Value() != "100rel, x-y" {
				t.Errorf("response to an unsupported extension = %s", res)
			}
		}
		c.Request(sipmsg.BYE, "")
	})
	r.dial("01").ends(callstate.NormalClearing, false)
}

// Requests within the dialog must be sent to the contact through all proxies of the route set, in
// this order (RFC 3261 section 12.1.2).
func TestDialog_RequestsFollowTheRouteSet(t *testing.T) {
	r := newFixture(t, transport.UDP)
	hop := siptest.New(t, transport.Config{UDP: loopback})
	passed := make(chan *sipmsg.Request, 4)
	hop.HandleOutside(func(*sipmsg.Request, *sipmsg.ServerTx) bool { return false })
	hop.HandleWithinDialog(func(req *sipmsg.Request, tx *sipmsg.ServerTx) {
		if passed <- req; req.IsAck() {
			tx.Terminate()
			return
		}
		_ = tx.Respond(sipmsg.NewResponseFromRequest(req, 200, "OK", nil))
	})
	first := sipmsg.Uri{Scheme: "sip", Host: "127.0.0.1", Port: hop.Port(transport.UDP)}
	first.UriParams.Add("lr", "")
	r.far.On("01", func(c *siptest.Call) {
		c.Respond(200, answer, "Record-Route: <sip:far.test;lr>", "Record-Route: <"+first.String()+">")
	})
	l := r.dial("01")
	l.waitForCallback("answered", 1)
	l.hangUp(callstate.NormalClearing)
	for range 2 { // ACK and BYE can arrive in either order
		req := <-passed
		routes := req.GetHeaders("Route")
		switch {
		case len(routes) != 2:
			t.Errorf("length of routes = %v, want 2", len(routes))
		case !strings.Contains(routes[0].Value(), first.String()):
			t.Errorf("routes[0].Value() = %q, want it to contain %q", routes[0].Value(), first.String())
		case !strings.Contains(routes[1].Value(), "far.test"):
			t.Errorf("routes[1].Value() = %q, want it to contain %q", routes[1].Value(), "far.test")
		case req.Recipient.User != "callee":
			t.Errorf(`req.Recipient.User = %v, want "callee"`, req.Recipient.User)
		}
	}
}

func TestDrain_RefusesNewCallsAndWaitsForLiveCalls(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.far.On("01", func(c *siptest.Call) { c.Answer(answer); c.Hangup() })
	l := r.dial("01")
	l.waitForCallback("answered", 1)
	drained := make(chan error, 1)
	go func() { drained <- r.agent.Drain(t.Context()) }()
	other := newAgent(t)
	ours := sip.Trunk{Name: "us", Host: "127.0.0.1", Port: r.agent.Port(transport.UDP), Transport: transport.UDP}
	testkit.Until(t, "OPTIONS are answered with 503", func() bool { return other.Probe(t.Context(), ours) != nil })
	if _, err := r.agent.Invite(t.Context(), r.trunk, sip.Invite{CallID: "x", To: "1"}, sip.Observer{}); !errors.Is(err, sip.ErrDraining) {
		t.Errorf("invite while draining: %v", err)
	}
	ctx, done := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer done()
	if err := r.agent.Drain(ctx); err == nil {
		t.Error("Drain returned while a leg was live")
	}
	l.hangUp(callstate.NormalClearing)
	if err := <-drained; err != nil {
		t.Errorf("drained: error = %v, want nil", err)
	} else if got := r.agent.Live(); got != 0 {
		t.Errorf("drained: r.agent.Live() = %v, want 0", got)
	}
}

func TestRegister_NeedsTheRightPasswordButOPTIONSNeedsNone(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.far.Challenge(401, "account", "secret")
	if err := r.agent.Probe(t.Context(), r.trunk); err != nil {
		t.Errorf("probe: %v", err) // a challenge is a response, so the probe must succeed
	}
	r.trunk.Username, r.trunk.Password = "account", "secret"
	granted, err := r.agent.Register(t.Context(), r.trunk, time.Hour)
	if err != nil {
		t.Errorf("register: %v", err)
	} else if granted != time.Hour {
		t.Errorf("register: granted = %v, want %v", granted, time.Hour)
	}
	r.trunk.Password = "wrong"
	if _, err := r.agent.Register(t.Context(), r.trunk, time.Hour); err == nil {
		t.Error("Register succeeded with a wrong password, want an error")
	}
}
