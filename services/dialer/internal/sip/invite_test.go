package sip_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

var transports = []string{transport.UDP, transport.TCP}

func forEachTransport(t *testing.T, test func(*testing.T, string)) {
	t.Parallel()
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) { test(t, transport) })
	}
}

func TestInvite_ReportsRingingAnswerAndEnd(t *testing.T) {
	forEachTransport(t, func(t *testing.T, transport string) {
		r := newFixture(t, transport)
		r.far.On("01", func(c *siptest.Call) {
			c.Respond(100, "")
			c.Respond(180, "")
			c.Answer(answer)
			c.Request(sipmsg.BYE, "", "Reason: Q.850;cause=16")
		})
		l := r.dial("01")
		l.ends(callstate.NormalClearing, false, "taken", "rang", "answered")
		if l.answer != answer {
			t.Errorf("answer = %q", l.answer)
		}
	})
}

func TestHangup_SendsBYEAfterTheAnswer(t *testing.T) {
	forEachTransport(t, func(t *testing.T, transport string) {
		r := newFixture(t, transport)
		r.far.On("01", func(c *siptest.Call) {
			c.Respond(180, "")
			c.Answer(answer)
			if bye := c.Hangup(); !strings.Contains(bye.Header("Reason"), "cause=16") {
				t.Errorf(`BYE: bye.Says("Reason") = %q, want it to contain "cause=16"`, bye.Header("Reason"))
			} else if bye.CSeq().SeqNo != 2 {
				t.Errorf("BYE: bye.CSeq().SeqNo = %v, want 2", bye.CSeq().SeqNo)
			}
		})
		l := r.dial("01")
		l.waitForCallback("answered", 1)
		l.hangUp(callstate.MaxDuration)
		l.ends(callstate.MaxDuration, true, "taken", "rang", "answered")
		if n := r.countRequests(l, sipmsg.BYE); n != 1 {
			t.Errorf("BYEs = %d", n)
		}
	})
}

func TestInvite_ReportsRingingOnceForManyProvisionalResponses(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.far.On("01", func(c *siptest.Call) {
		for range 40 {
			c.Respond(183, answer)
		}
		c.Answer("")
		c.Hangup()
	})
	l := r.dial("01")
	l.waitForCallback("answered", 1)
	if l.answer != answer {
		t.Errorf("SDP passed to Answered = %q", l.answer)
	}
	l.hangUp(callstate.NormalClearing)
	l.ends(callstate.NormalClearing, true, "taken", "rang", "answered")
}

func TestInvite_EarlyMediaIsNotAnAnswer(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.far.On("01", func(c *siptest.Call) { c.Respond(183, answer); c.Respond(480, "") })
	r.dial("01").ends(callstate.NoAnswer, false, "taken", "rang")
}

// The causes are documented in docs/reference/api/calls.md#sip-responses-and-hangup-causes. This
// test makes calls for some rows of the table. TestFinal_EachResponseHasItsDocumentedCause checks
// all rows.
func TestInvite_EachFinalResponseHasItsDocumentedCause(t *testing.T) {
	r := newFixture(t, transport.UDP)
	for suffix, want := range map[string]callstate.Cause{
		"300": callstate.NoRouteDestination, "302": callstate.NoRouteDestination, "403": callstate.CallRejected, "404": callstate.UnallocatedNumber, "408": callstate.NoUserResponse,
		"410": callstate.NumberChanged, "415": callstate.IncompatibleDest, "480": callstate.SubscriberAbsent, "484": callstate.InvalidNumberFormat, "486": callstate.UserBusy,
		"488": callstate.IncompatibleDest, "500": callstate.NormalTemporaryFailure, "501": callstate.FacilityRejected, "502": callstate.NetworkOutOfOrder, "503": callstate.NormalTemporaryFailure,
		"504": callstate.RecoveryOnTimerExpire, "600": callstate.UserBusy, "603": callstate.CallRejected, "604": callstate.UnallocatedNumber, "606": callstate.IncompatibleDest,
		"607": callstate.SpamBlocked, "608": callstate.SpamBlocked, "401": callstate.ProviderAuthFailed, "407": callstate.ProviderAuthFailed,
	} {
		t.Run(suffix, func(t *testing.T) {
			var code int
			_, _ = fmt.Sscan(suffix, &code)
			r.far.On(suffix, func(c *siptest.Call) { c.Respond(code, "", "Contact: <sip:elsewhere@127.0.0.1>") })
			l := r.dial(suffix)
			end := l.ends(want, false)
			switch {
			case end.Status != code:
				t.Errorf("end.Status = %v, want %v", end.Status, code)
			case end.OtherTrunkAllowed != (sip.Final{Status: code}).AllowsOtherTrunk():
				t.Errorf("end.OtherTrunkAllowed = %v, want %v", end.OtherTrunkAllowed, (sip.Final{Status: code}).AllowsOtherTrunk())
			case r.countRequests(l, sipmsg.INVITE) != 1:
				t.Error("number of INVITEs is not 1")
			}
		})
	}
}

func TestInvite_ReasonOrRetryAfterHeaderChangesTheCause(t *testing.T) {
	r := newFixture(t, transport.TCP)
	for suffix, script := range map[string]struct {
		play         func(*siptest.Call)
		want         callstate.Cause
		notification string
	}{
		"11": {play: func(c *siptest.Call) { c.Respond(503, "", "Retry-After: 5") },
			want: callstate.SwitchCongestion, notification: ""},
		"12": {play: func(c *siptest.Call) { c.Respond(480, "", `Reason: SIP;cause=480, Q.850;cause=1;text="a, b"`) },
			want: callstate.UnallocatedNumber, notification: ""},
		"13": {play: func(c *siptest.Call) { c.Respond(180, ""); c.Respond(480, "") }, want: callstate.NoAnswer,
			notification: "rang"},
		"14": {play: func(c *siptest.Call) { c.Respond(180, ""); c.Respond(503, "") },
			want: callstate.NormalTemporaryFailure, notification: "rang"},
	} {
		r.far.On(suffix, script.play)
		if end := r.dial(suffix).ends(script.want, false); script.notification != "" && end.OtherTrunkAllowed {
			t.Errorf("%s: OtherTrunkAllowed = true after ringing, want false", suffix)
		}
	}
}

func TestInvite_AnswersChallengesWithCredentials(t *testing.T) {
	for _, challenge := range []int{401, 407} {
		t.Run(fmt.Sprint(challenge), func(t *testing.T) {
			r := newFixture(t, transport.UDP)
			r.far.Challenge(challenge, "account", "secret")
			r.trunk.Username, r.trunk.Password = "account", "secret"
			r.far.On("01", func(c *siptest.Call) {
				c.Respond(180, "")
				ack := func() siptest.Request { c.Respond(200, answer); return c.Next(sipmsg.ACK) }()
				if ack.GetHeader("Authorization") == nil && ack.GetHeader("Proxy-Authorization") == nil {
					t.Errorf("ACK without credentials: %s", ack)
				}
				bye := c.Next(sipmsg.BYE)
				name, credentials := "Proxy-Authenticate", "Proxy-Authorization"
				bye.Reply(407, name+`: Digest realm="other", nonce="n2", algorithm=MD5, qop="auth"`)
				again := c.Next(sipmsg.BYE)
				if again.GetHeader(credentials) == nil {
					t.Error("the BYE was not sent with credentials: again.GetHeader(credentials) = nil, want a value")
				} else if again.CSeq().SeqNo <= bye.CSeq().SeqNo {
					t.Errorf("the BYE was not sent with credentials: again.CSeq().SeqNo = %v, want more than %v",
						again.CSeq().SeqNo, bye.CSeq().SeqNo)
				}
				again.Reply(200)
			})
			l := r.dial("01")
			l.waitForCallback("answered", 1)
			l.hangUp(callstate.NormalClearing)
			l.ends(callstate.NormalClearing, true, "taken", "rang", "answered")
			if invites, byes := r.countRequests(l, sipmsg.INVITE), r.countRequests(l, sipmsg.BYE); invites != 2 {
				t.Errorf("invites = %v, want 2", invites)
			} else if byes != 2 {
				t.Errorf("byes = %v, want 2", byes)
			}
			r.trunk.Password = "wrong"
			wrong := r.dial("01")
			if end := wrong.ends(callstate.ProviderAuthFailed, false); end.Status != challenge {
				t.Errorf("with a wrong password: end.Status = %v, want %v", end.Status, challenge)
			} else if got := r.countRequests(wrong, sipmsg.INVITE); got != 2 {
				t.Errorf("with a wrong password: r.heard(wrong, sip.INVITE) = %v, want 2", got)
			}
		})
	}
}

func TestInvite_HangsUpIfTheSDPAnswerIsRejected(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.far.On("01", func(c *siptest.Call) {
		c.Answer(answer)
		if bye := c.Hangup(); !strings.Contains(bye.Header("Reason"), "cause=88") {
			t.Errorf("BYE = %s", bye)
		}
	})
	l := r.dial("01", func(_ *sip.Invite, l *leg) { l.refuse = errors.New("no codec in common") })
	l.ends(callstate.IncompatibleDest, true, "taken", "answered")
}

func TestInvite_ReturnsAnErrorIfNothingCanBeSent(t *testing.T) {
	r := newFixture(t, transport.TCP)
	for name, spoil := range map[string]func(*sip.Trunk, *sip.Invite){
		"no listener at the port":  func(tr *sip.Trunk, _ *sip.Invite) { tr.Port = 1 },
		"unknown host name":        func(tr *sip.Trunk, _ *sip.Invite) { tr.Host = "no-such-host.invalid" },
		"number with a line break": func(_ *sip.Trunk, i *sip.Invite) { i.To = "+1\r\nVia: x" },
		"empty number":             func(_ *sip.Trunk, i *sip.Invite) { i.To = "" },
		"unknown transport":        func(tr *sip.Trunk, _ *sip.Invite) { tr.Transport = "SCTP" },
		"TLS without a listener": func(tr *sip.Trunk, _ *sip.Invite) {
			tr.Transport = transport.TLS
		},
	} {
		trunk, order := r.trunk, sip.Invite{CallID: "unsent-" + strings.ReplaceAll(name, " ", "-"), From: "+1", To: "+2", Body: []byte(offer)}
		spoil(&trunk, &order)
		_, err := r.agent.Invite(t.Context(), trunk, order,
			sip.Observer{Ended: func(e sip.End) { t.Errorf("%s: Ended was called with %+v", name, e) }})
		if !transport.IsNotSent(err) {
			t.Errorf("%s: error = %v, want a *transport.NotSent", name, err)
		}
	}
	if r.agent.Live() != 0 {
		t.Errorf("live legs = %d, want 0", r.agent.Live())
	}
	observer := sip.Observer{StoreState: func([]byte) error { return errors.New("no store") }}
	_, err := r.agent.Invite(t.Context(), r.trunk, sip.Invite{CallID: "unkept", To: "+2"}, observer)
	if !transport.IsNotSent(err) {
		t.Error("a state that was not kept: line.Refused(err) = false, want true")
	} else if got := r.far.Requests(sipmsg.INVITE, "unkept"); got != 0 {
		t.Errorf(`a state that was not kept: r.exchange.Heard(sip.INVITE, "unkept") = %v, want 0`, got)
	}
}

// If LargeOverTCP is off, or if the trunk accepts no TCP connection, the large request must be sent
// over UDP.
func TestInvite_LargeRequestUsesTCP(t *testing.T) {
	r := newFixture(t, transport.UDP)
	by := make(chan string, 1)
	r.far.On("01", func(c *siptest.Call) { by <- c.Invite.Transport(); c.Respond(486, "") })
	large := func(order *sip.Invite, _ *leg) {
		order.Body = []byte(offer + strings.Repeat("a=x-padding:0123456789012345678901234567890\r\n", 60))
	}
	only := siptest.New(t, transport.Config{UDP: loopback})
	only.On("01", func(c *siptest.Call) { by <- c.Invite.Transport(); c.Respond(486, "") })
	both, err := samePorts(t)
	if err != nil {
		t.Skip(err)
	}
	both.On("01", func(c *siptest.Call) { by <- c.Invite.Transport(); c.Respond(486, "") })
	for _, one := range []struct {
		name    string
		x       *siptest.Trunk
		allowed bool
		want    string
	}{{name: "LargeOverTCP is off", x: both, allowed: false, want: transport.UDP}, {name: "LargeOverTCP is on", x: both,
		allowed: true, want: transport.TCP}, {name: "LargeOverTCP is on, TCP is refused", x: only, allowed: true,
		want: transport.UDP}} {
		r.trunk.Port, r.trunk.LargeOverTCP = one.x.Port(transport.UDP), one.allowed
		r.dial("01", large).ends(callstate.UserBusy, false)
		if got := <-by; got != one.want {
			t.Errorf("%s: transport = %s, want %s", one.name, got, one.want)
		}
	}
}

func TestInvite_CallerIDIsInTheHeaderThatTheTrunkExpects(t *testing.T) {
	r := newFixture(t, transport.UDP)
	got := make(chan *sipmsg.Request, 1)
	r.far.On("01", func(c *siptest.Call) { got <- c.Invite; c.Respond(486, "") })
	r.trunk.Domain = "ours.test"
	r.dial("01").ends(callstate.UserBusy, false)
	switch req := <-got; {
	case req.From().Address.String() != "sip:+15005550006@ours.test":
		t.Errorf(`req.From().Address.String() = %v, want "sip:+15005550006@ours.test"`,
			req.From().Address.String())
	case req.GetHeader("P-Asserted-Identity") != nil:
		t.Errorf(`req.GetHeader("P-Asserted-Identity") = %v, want nil`,
			req.GetHeader("P-Asserted-Identity"))
	case req.GetHeader("Require") != nil:
		t.Errorf(`req.GetHeader("Require") = %v, want nil`, req.GetHeader("Require"))
	}
	r.trunk.CallerID, r.trunk.Username = sip.Asserted, "account"
	r.dial("01").ends(callstate.UserBusy, false)
	if req := <-got; req.From().Address.User != "account" {
		t.Errorf(`asserted: req.From().Address.User = %q, want "account"`, req.From().Address.User)
	} else if got := req.GetHeader("P-Asserted-Identity").Value(); got != "<sip:+15005550006@ours.test>" {
		t.Errorf(`asserted: req.GetHeader("P-Asserted-Identity").Value() = %q, want "<sip:+15005550006@ours.test>"`, got)
	}
	r.trunk.CallerID = sip.InFrom
	r.dial("01", func(order *sip.Invite, _ *leg) { order.From = "" }).ends(callstate.UserBusy, false)
	if req := <-got; req.From().Address.Host != "anonymous.invalid" {
		t.Errorf("INVITE with a withheld number = %s", req)
	}
}

func TestInvite_ResolvesTheHostNameOfTheTrunk(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.trunk.Host = "localhost"
	r.far.On("01", func(c *siptest.Call) { c.Respond(180, ""); c.Canceled() })
	l := r.dial("01", func(o *sip.Invite, _ *leg) { o.Ring = 100 * time.Millisecond })
	l.ends(callstate.NoAnswer, true, "taken", "rang")
}

// FirstResponse ends the first call after 100 ms. The transaction timeout of SIP is longer than
// siptest.Timeout, so it cannot end a call in this test.
func TestInvite_TrunkWithoutResponseCountsAsFailed(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.far.On("01", func(c *siptest.Call) {})
	r.far.On("02", func(c *siptest.Call) { c.Respond(100, ""); c.Canceled() })
	r.dial("01", func(order *sip.Invite, _ *leg) { order.FirstResponse = 100 * time.Millisecond }).ends(callstate.RecoveryOnTimerExpire, true)
	r.dial("02", func(order *sip.Invite, _ *leg) { order.FirstRing = 4 * time.Second }).ends(callstate.RecoveryOnTimerExpire, true, "taken")
}

// A trunk that sends no response has failed, even if FirstRing is shorter than FirstResponse. A
// trunk that responded with 100 has not failed, and its call ends with the cause Invite.NotRinging.
func TestInvite_CauseShowsWhetherTheTrunkResponded(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.far.On("01", func(c *siptest.Call) {})
	r.far.On("02", func(c *siptest.Call) { c.Respond(100, ""); c.Canceled() })
	short := func(order *sip.Invite, _ *leg) {
		order.FirstRing, order.NotRinging = 100*time.Millisecond, callstate.NoAnswer
		order.FirstResponse = 500 * time.Millisecond
	}
	r.dial("01", short).ends(callstate.RecoveryOnTimerExpire, true)
	r.dial("02", func(order *sip.Invite, l *leg) {
		short(order, l)
		order.FirstResponse, order.FirstRing = siptest.Timeout, 4*time.Second
	}).ends(callstate.NoAnswer, true, "taken")
}
