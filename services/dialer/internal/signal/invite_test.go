package signal_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/signal"
	"ringfence.dev/services/dialer/internal/signal/line"
	"ringfence.dev/services/dialer/internal/signal/reason"
	"ringfence.dev/services/dialer/internal/signal/signaltest"
)

var transports = []string{line.UDP, line.TCP}

// over runs a test over each transport.
func over(t *testing.T, test func(*testing.T, string)) {
	t.Parallel()
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) { test(t, transport) })
	}
}

func TestInvite_RingsIsAnsweredAndEnds(t *testing.T) {
	over(t, func(t *testing.T, transport string) {
		r := newRig(t, transport)
		r.exchange.On("01", func(c *signaltest.Call) {
			c.Respond(100, "")
			c.Respond(180, "")
			c.Answer(answer)
			c.Request(sip.BYE, "", "Reason: Q.850;cause=16")
		})
		l := r.dial("01")
		l.ends(call.NormalClearing, false, "taken", "rang", "answered")
		if l.answer != answer {
			t.Errorf("answer = %q", l.answer)
		}
	})
}

func TestHangup_AfterTheAnswer(t *testing.T) {
	over(t, func(t *testing.T, transport string) {
		r := newRig(t, transport)
		r.exchange.On("01", func(c *signaltest.Call) {
			c.Respond(180, "")
			c.Answer(answer)
			if bye := c.Hangup(); !strings.Contains(bye.Says("Reason"), "cause=16") {
				t.Errorf(`BYE: bye.Says("Reason") = %q, want it to contain "cause=16"`, bye.Says("Reason"))
			} else if bye.CSeq().SeqNo != 2 {
				t.Errorf("BYE: bye.CSeq().SeqNo = %v, want 2", bye.CSeq().SeqNo)
			}
		})
		l := r.dial("01")
		l.until("answered", 1)
		l.hangUp(call.MaxDuration)
		l.ends(call.MaxDuration, true, "taken", "rang", "answered")
		if n := r.heard(l, sip.BYE); n != 1 {
			t.Errorf("%d BYEs", n)
		}
	})
}

// TestInvite_ManyProvisionalResponses accepts any number of provisional responses, and calls Rang once.
func TestInvite_ManyProvisionalResponses(t *testing.T) {
	r := newRig(t, line.UDP)
	r.exchange.On("01", func(c *signaltest.Call) {
		for range 40 {
			c.Respond(183, answer)
		}
		c.Answer("")
		c.Hangup()
	})
	l := r.dial("01")
	l.until("answered", 1)
	if l.answer != answer {
		t.Errorf("the answer of the early media is %q", l.answer)
	}
	l.hangUp(call.NormalClearing)
	l.ends(call.NormalClearing, true, "taken", "rang", "answered")
}

func TestInvite_EarlyMediaIsNoAnswer(t *testing.T) {
	r := newRig(t, line.UDP)
	r.exchange.On("01", func(c *signaltest.Call) { c.Respond(183, answer); c.Respond(480, "") })
	r.dial("01").ends(call.NoAnswer, false, "taken", "rang")
}

// TestInvite_FinalCodes is the table of contract.md §2 on the wire; package reason has all of its rows.
func TestInvite_FinalCodes(t *testing.T) {
	r := newRig(t, line.UDP)
	for suffix, want := range map[string]call.Cause{
		"300": call.NoRouteDestination, "302": call.NoRouteDestination, "403": call.CallRejected, "404": call.UnallocatedNumber, "408": call.NoUserResponse,
		"410": call.NumberChanged, "415": call.IncompatibleDest, "480": call.SubscriberAbsent, "484": call.InvalidNumberFormat, "486": call.UserBusy,
		"488": call.IncompatibleDest, "500": call.NormalTemporaryFailure, "501": call.FacilityRejected, "502": call.NetworkOutOfOrder, "503": call.NormalTemporaryFailure,
		"504": call.RecoveryOnTimerExpire, "600": call.UserBusy, "603": call.CallRejected, "604": call.UnallocatedNumber, "606": call.IncompatibleDest,
		"607": call.SpamBlocked, "608": call.SpamBlocked, "401": call.ProviderAuthFailed, "407": call.ProviderAuthFailed,
	} {
		t.Run(suffix, func(t *testing.T) {
			var code int
			_, _ = fmt.Sscan(suffix, &code)
			r.exchange.On(suffix, func(c *signaltest.Call) { c.Respond(code, "", "Contact: <sip:elsewhere@127.0.0.1>") })
			l := r.dial(suffix)
			end := l.ends(want, false)
			switch {
			case end.Status != code:
				t.Errorf("end.Status = %v, want %v", end.Status, code)
			case end.Elsewhere != (reason.Final{Status: code}).Elsewhere():
				t.Errorf("end.Elsewhere = %v, want %v", end.Elsewhere, (reason.Final{Status: code}).Elsewhere())
			case r.heard(l, sip.INVITE) != 1:
				t.Error("r.heard(l, sip.INVITE) is not 1")
			}
		})
	}
}

func TestInvite_HeadersOfAFinalResponse(t *testing.T) {
	r := newRig(t, line.TCP)
	for suffix, script := range map[string]struct {
		play func(*signaltest.Call)
		want call.Cause
		told string
	}{
		"11": {func(c *signaltest.Call) { c.Respond(503, "", "Retry-After: 5") }, call.SwitchCongestion, ""},
		"12": {func(c *signaltest.Call) { c.Respond(480, "", `Reason: SIP;cause=480, Q.850;cause=1;text="a, b"`) }, call.UnallocatedNumber, ""},
		"13": {func(c *signaltest.Call) { c.Respond(180, ""); c.Respond(480, "") }, call.NoAnswer, "rang"},
		"14": {func(c *signaltest.Call) { c.Respond(180, ""); c.Respond(503, "") }, call.NormalTemporaryFailure, "rang"},
	} {
		r.exchange.On(suffix, script.play)
		if end := r.dial(suffix).ends(script.want, false); script.told != "" && end.Elsewhere {
			t.Errorf("%s: it rang and may be tried elsewhere", suffix)
		}
	}
}

func TestInvite_Credentials(t *testing.T) {
	for _, challenge := range []int{401, 407} {
		t.Run(fmt.Sprint(challenge), func(t *testing.T) {
			r := newRig(t, line.UDP)
			r.exchange.Challenge(challenge, "account", "secret")
			r.trunk.Username, r.trunk.Password = "account", "secret"
			r.exchange.On("01", func(c *signaltest.Call) {
				c.Respond(180, "")
				ack := func() signaltest.Asked { c.Respond(200, answer); return c.Next(sip.ACK) }()
				if ack.GetHeader("Authorization") == nil && ack.GetHeader("Proxy-Authorization") == nil {
					t.Errorf("the ACK has no credentials: %s", ack)
				}
				bye := c.Next(sip.BYE)
				name, said := "Proxy-Authenticate", "Proxy-Authorization"
				bye.Reply(407, name+`: Digest realm="other", nonce="n2", algorithm=MD5, qop="auth"`)
				again := c.Next(sip.BYE)
				if again.GetHeader(said) == nil {
					t.Error("the BYE was not sent with credentials: again.GetHeader(said) = nil, want a value")
				} else if again.CSeq().SeqNo <= bye.CSeq().SeqNo {
					t.Errorf("the BYE was not sent with credentials: again.CSeq().SeqNo = %v, want more than %v",
						again.CSeq().SeqNo, bye.CSeq().SeqNo)
				}
				again.Reply(200)
			})
			l := r.dial("01")
			l.until("answered", 1)
			l.hangUp(call.NormalClearing)
			l.ends(call.NormalClearing, true, "taken", "rang", "answered")
			if invites, byes := r.heard(l, sip.INVITE), r.heard(l, sip.BYE); invites != 2 {
				t.Errorf("invites = %v, want 2", invites)
			} else if byes != 2 {
				t.Errorf("byes = %v, want 2", byes)
			}
			r.trunk.Password = "wrong"
			wrong := r.dial("01")
			if end := wrong.ends(call.ProviderAuthFailed, false); end.Status != challenge {
				t.Errorf("with a wrong password: end.Status = %v, want %v", end.Status, challenge)
			} else if got := r.heard(wrong, sip.INVITE); got != 2 {
				t.Errorf("with a wrong password: r.heard(wrong, sip.INVITE) = %v, want 2", got)
			}
		})
	}
}

func TestInvite_AnswerOfNoUse(t *testing.T) {
	r := newRig(t, line.UDP)
	r.exchange.On("01", func(c *signaltest.Call) {
		c.Answer(answer)
		if bye := c.Hangup(); !strings.Contains(bye.Says("Reason"), "cause=88") {
			t.Errorf("BYE = %s", bye)
		}
	})
	l := r.dial("01", func(_ *signal.Invite, l *leg) { l.refuse = errors.New("no codec in common") })
	l.ends(call.IncompatibleDest, true, "taken", "answered")
}

// TestInvite_Unsent returns an error if nothing can be sent, and does not call the observer.
func TestInvite_Unsent(t *testing.T) {
	r := newRig(t, line.TCP)
	for name, spoil := range map[string]func(*signal.Trunk, *signal.Invite){
		"nobody listens":       func(tr *signal.Trunk, _ *signal.Invite) { tr.Port = 1 },
		"no such name":         func(tr *signal.Trunk, _ *signal.Invite) { tr.Host = "no-such-host.invalid" },
		"a number with a line": func(_ *signal.Trunk, i *signal.Invite) { i.To = "+1\r\nVia: x" },
		"no number":            func(_ *signal.Trunk, i *signal.Invite) { i.To = "" },
		"an unknown transport": func(tr *signal.Trunk, _ *signal.Invite) { tr.Transport = "SCTP" },
		"TLS without a listener": func(tr *signal.Trunk, _ *signal.Invite) {
			tr.Transport = line.TLS
		},
	} {
		trunk, order := r.trunk, signal.Invite{CallID: "unsent-" + strings.ReplaceAll(name, " ", "-"), From: "+1", To: "+2", Body: []byte(offer)}
		spoil(&trunk, &order)
		_, err := r.agent.Invite(t.Context(), trunk, order, signal.Observer{Ended: func(e signal.End) { t.Errorf("%s: told an end: %+v", name, e) }})
		if !line.Refused(err) {
			t.Errorf("%s: %v, want a definite error", name, err)
		}
	}
	if r.agent.Live() != 0 {
		t.Errorf("%d legs live", r.agent.Live())
	}
	_, err := r.agent.Invite(t.Context(), r.trunk, signal.Invite{CallID: "unkept", To: "+2"}, signal.Observer{Keep: func([]byte) error { return errors.New("no store") }})
	if !line.Refused(err) {
		t.Error("a state that was not kept: line.Refused(err) = false, want true")
	} else if got := r.exchange.Heard(sip.INVITE, "unkept"); got != 0 {
		t.Errorf(`a state that was not kept: r.exchange.Heard(sip.INVITE, "unkept") = %v, want 0`, got)
	}
}

// TestInvite_Large sends an INVITE that is too large for a datagram over TCP if the trunk permits
// it. Otherwise, or without a TCP listener at the far end, it sends a large datagram.
func TestInvite_Large(t *testing.T) {
	r := newRig(t, line.UDP)
	by := make(chan string, 1)
	r.exchange.On("01", func(c *signaltest.Call) { by <- c.Invite.Transport(); c.Respond(486, "") })
	large := func(order *signal.Invite, _ *leg) {
		order.Body = []byte(offer + strings.Repeat("a=x-padding:0123456789012345678901234567890\r\n", 60))
	}
	only := signaltest.New(t, line.Config{UDP: loopback})
	only.On("01", func(c *signaltest.Call) { by <- c.Invite.Transport(); c.Respond(486, "") })
	both, err := samePorts(t)
	if err != nil {
		t.Skip(err)
	}
	both.On("01", func(c *signaltest.Call) { by <- c.Invite.Transport(); c.Respond(486, "") })
	for _, one := range []struct {
		name    string
		x       *signaltest.Exchange
		allowed bool
		want    string
	}{{"not allowed", both, false, line.UDP}, {"allowed", both, true, line.TCP}, {"allowed and refused", only, true, line.UDP}} {
		r.trunk.Port, r.trunk.LargeOverTCP = one.x.Port(line.UDP), one.allowed
		r.dial("01", large).ends(call.UserBusy, false)
		if got := <-by; got != one.want {
			t.Errorf("%s: it went by %s, want %s", one.name, got, one.want)
		}
	}
}

// TestInvite_CallerID checks the headers with the caller ID.
func TestInvite_CallerID(t *testing.T) {
	r := newRig(t, line.UDP)
	got := make(chan *sip.Request, 1)
	r.exchange.On("01", func(c *signaltest.Call) { got <- c.Invite; c.Respond(486, "") })
	r.trunk.Domain = "ours.test"
	r.dial("01").ends(call.UserBusy, false)
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
	r.trunk.CallerID, r.trunk.Username = signal.Asserted, "account"
	r.dial("01").ends(call.UserBusy, false)
	if req := <-got; req.From().Address.User != "account" {
		t.Errorf(`asserted: req.From().Address.User = %q, want "account"`, req.From().Address.User)
	} else if got := req.GetHeader("P-Asserted-Identity").Value(); got != "<sip:+15005550006@ours.test>" {
		t.Errorf(`asserted: req.GetHeader("P-Asserted-Identity").Value() = %q, want "<sip:+15005550006@ours.test>"`, got)
	}
	r.trunk.CallerID = signal.InFrom
	r.dial("01", func(order *signal.Invite, _ *leg) { order.From = "" }).ends(call.UserBusy, false)
	if req := <-got; req.From().Address.Host != "anonymous.invalid" {
		t.Errorf("withheld: %s", req)
	}
}

func TestInvite_TrunkByName(t *testing.T) {
	r := newRig(t, line.UDP)
	r.trunk.Host = "localhost"
	r.exchange.On("01", func(c *signaltest.Call) { c.Respond(180, ""); c.Canceled() })
	l := r.dial("01", func(o *signal.Invite, _ *leg) { o.Ring = 100 * time.Millisecond })
	l.ends(call.NoAnswer, true, "taken", "rang")
}

// FirstResponse is shorter than signaltest.Patience, and SIP's own timeout of 32 s is longer.
func TestInvite_SilentTrunk(t *testing.T) {
	r := newRig(t, line.UDP)
	r.exchange.On("01", func(c *signaltest.Call) {})
	r.exchange.On("02", func(c *signaltest.Call) { c.Respond(100, ""); c.Canceled() })
	r.dial("01", func(order *signal.Invite, _ *leg) { order.FirstResponse = 100 * time.Millisecond }).ends(call.RecoveryOnTimerExpire, true)
	r.dial("02", func(order *signal.Invite, _ *leg) { order.FirstRing = 4 * time.Second }).ends(call.RecoveryOnTimerExpire, true, "taken")
}

// A trunk that sends no response has failed, also if the phone had less time to ring than the trunk to respond. A trunk
// that responded with 100 has the call.
func TestInvite_NotRinging(t *testing.T) {
	r := newRig(t, line.UDP)
	r.exchange.On("01", func(c *signaltest.Call) {})
	r.exchange.On("02", func(c *signaltest.Call) { c.Respond(100, ""); c.Canceled() })
	short := func(order *signal.Invite, _ *leg) {
		order.FirstRing, order.NotRinging = 100*time.Millisecond, call.NoAnswer
		order.FirstResponse = 500 * time.Millisecond
	}
	r.dial("01", short).ends(call.RecoveryOnTimerExpire, true)
	r.dial("02", func(order *signal.Invite, l *leg) {
		short(order, l)
		order.FirstResponse, order.FirstRing = signaltest.Patience, 4*time.Second
	}).ends(call.NoAnswer, true, "taken")
}
