package sip_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

func TestSession_UserAgentRefreshesWithINVITEOrUPDATE(t *testing.T) {
	for _, method := range []sipmsg.RequestMethod{sipmsg.INVITE, sipmsg.UPDATE} {
		t.Run(string(method), func(t *testing.T) {
			r := newFixture(t, transport.UDP)
			r.far.On("01", func(c *siptest.Call) {
				allow := "Allow: INVITE, ACK, BYE"
				if method == sipmsg.UPDATE {
					allow = "Allow: INVITE, UPDATE, BYE"
				}
				c.Answer(answer, "Session-Expires: 2;refresher=uac", "Require: timer", allow)
				for range 2 {
					req := c.Next(method)
					hasOffer := string(req.Body()) == offer
					if req.Header("Session-Expires") != "2;refresher=uac" || hasOffer != (method == sipmsg.INVITE) {
						t.Errorf("refresh: %s", req)
					}
					req.Reply(200, "Session-Expires: 2;refresher=uac")
					if method == sipmsg.INVITE {
						c.Next(sipmsg.ACK)
					}
				}
				c.Request(sipmsg.BYE, "")
			})
			r.dial("01").ends(callstate.NormalClearing, false, "taken", "answered")
		})
	}
}

// The peer refreshes the session once, with an interval of one second. The leg must end after that
// interval and not earlier.
func TestSession_HangsUpIfThePeerDoesNotRefresh(t *testing.T) {
	r := newFixture(t, transport.UDP)
	refreshed := make(chan time.Time, 1)
	r.far.On("01", func(c *siptest.Call) {
		c.Answer(answer, "Session-Expires: 90;refresher=uas")
		refreshed <- time.Now()
		res := c.Request(sipmsg.UPDATE, "", "Session-Expires: 1;refresher=uac")
		switch se := res.GetHeader("Session-Expires"); {
		case se == nil:
			t.Error("se = nil, want a value")
		case se.Value() != "1;refresher=uac":
			t.Errorf(`se.Value() = %v, want "1;refresher=uac"`, se.Value())
		case res.GetHeader("Require") == nil:
			t.Error(`res.GetHeader("Require") = nil, want a value`)
		}
		if bye := c.Hangup(); !strings.Contains(bye.Header("Reason"), "cause=102") {
			t.Errorf("BYE = %s", bye)
		}
	})
	l := r.dial("01")
	l.ends(callstate.RecoveryOnTimerExpire, true, "taken", "answered")
	if took := time.Since(<-refreshed); took < 500*time.Millisecond {
		t.Errorf("hangup %s after the last refresh", took)
	}
}

func TestSession_HangsUpIfThePeerAnswersTheRefreshWith481(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.far.On("01", func(c *siptest.Call) {
		c.Answer(answer, "Session-Expires: 2;refresher=uac")
		c.Next(sipmsg.INVITE).Reply(481)
		c.Hangup()
	})
	r.dial("01").ends(callstate.RecoveryOnTimerExpire, true, "taken", "answered")
}

func TestSession_INVITEAfter422HasTheRequiredInterval(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.trunk.SessionTimer = 30 * time.Second
	asked := make(chan string, 2)
	r.far.On("01", func(c *siptest.Call) {
		value := siptest.Request{Request: c.Invite}.Header("Session-Expires")
		if asked <- value; value == "30" {
			c.Respond(422, "", "Min-SE: 120")
			return
		}
		c.Respond(486, "")
	})
	l := r.dial("01")
	l.ends(callstate.UserBusy, false)
	if first, second := <-asked, <-asked; first != "30" {
		t.Errorf(`first = %q, want "30"`, first)
	} else if second != "120" {
		t.Errorf(`second = %q, want "120"`, second)
	}
}

func TestSession_TooShortIntervalIsRefusedWith422(t *testing.T) {
	r := newFixture(t, transport.UDP, func(cfg *sip.Config) { cfg.MinSession = 90 * time.Second })
	r.far.On("01", func(c *siptest.Call) {
		c.Answer(answer)
		switch res := c.Request(sipmsg.UPDATE, "", "Session-Expires: 10"); {
		case res.StatusCode != 422:
			t.Errorf("res.StatusCode = %v, want 422", res.StatusCode)
		case res.GetHeader("Min-SE") == nil:
			t.Error(`res.GetHeader("Min-SE") = nil, want a value`)
		case res.GetHeader("Min-SE").Value() != "90":
			t.Errorf(`res.GetHeader("Min-SE").Value() = %v, want "90"`, res.GetHeader("Min-SE").Value())
		}
		c.Request(sipmsg.BYE, "")
	})
	r.dial("01").ends(callstate.NormalClearing, false)
}

func TestReinvite_IsRefusedWith491WhileAnINVITEOfTheUserAgentIsOpen(t *testing.T) {
	r := newFixture(t, transport.UDP)
	r.far.On("01", func(c *siptest.Call) {
		c.Answer(answer, "Session-Expires: 2;refresher=uac")
		ours := c.Next(sipmsg.INVITE)
		if res := c.Request(sipmsg.INVITE, answer); res.StatusCode != 491 {
			t.Errorf("response to the crossing INVITE = %s", res)
		}
		ours.Reply(200)
		c.Next(sipmsg.ACK)
		c.Request(sipmsg.BYE, "")
	})
	r.dial("01").ends(callstate.NormalClearing, false)
}

func TestRefer_SucceedsOnlyIfTheTargetAnswers(t *testing.T) {
	const active, over = "Subscription-State: active;expires=60", "Subscription-State: terminated;reason=noresource"
	for _, tt := range []struct {
		name  string
		says  func(c *siptest.Call)
		moved bool
	}{
		{name: "target answers", says: func(c *siptest.Call) {
			c.Request(sipmsg.NOTIFY, "SIP/2.0 100 Trying", "Event: refer", active)
			c.Request(sipmsg.NOTIFY, "SIP/2.0 200 OK\r\n", "Event: refer;id=2", over)
		}, moved: true},
		{
			name:  "target is busy",
			says:  func(c *siptest.Call) { c.Request(sipmsg.NOTIFY, "SIP/2.0 486 Busy Here", "Event: refer", over) },
			moved: false,
		},
		{
			name: "no status in the NOTIFY",
			says: func(c *siptest.Call) { c.Request(sipmsg.NOTIFY, "", "Event: refer", over) }, moved: false,
		},
		{name: "person hangs up", says: func(c *siptest.Call) { c.Request(sipmsg.BYE, "") }, moved: false},
		{name: "NOTIFY of another event", says: func(c *siptest.Call) {
			if res := c.Request(sipmsg.NOTIFY, "SIP/2.0 200 OK", "Event: presence", over); res.StatusCode != 481 {
				t.Errorf("response to NOTIFY = %d", res.StatusCode)
			}
			c.Request(sipmsg.BYE, "")
		}, moved: false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newFixture(t, transport.UDP)
			r.far.On("01", func(c *siptest.Call) {
				c.Answer(answer)
				refer := c.Next(sipmsg.REFER)
				if got := refer.Header("Refer-To"); !strings.HasPrefix(got, "<sip:+14155559999@127.0.0.1") {
					t.Errorf(`REFER: got = %q, want it to begin with "<sip:+14155559999@127.0.0.1"`, got)
				} else if refer.Header("Referred-By") == "" {
					t.Error(`REFER: refer.Says("Referred-By") is empty, want a value`)
				}
				refer.Reply(202)
				tt.says(c)
				if tt.moved || slices.Contains([]string{"target is busy", "no status in the NOTIFY"}, tt.name) {
					c.Hangup()
				}
			})
			l := r.dial("01")
			l.waitForCallback("answered", 1)
			if err := l.Refer(t.Context(), "+14155559999"); (err == nil) != tt.moved {
				t.Errorf("refer: Refer error = %v, want success = %v", err, tt.moved)
			} else if err != nil && !errors.Is(err, sip.ErrReferred) {
				t.Errorf("refer: Refer = %v, want %v", err, sip.ErrReferred)
			}
			l.hangUp(callstate.NormalClearing)
		})
	}
	t.Run("REFER is refused", func(t *testing.T) {
		r := newFixture(t, transport.UDP)
		r.far.On("01", func(c *siptest.Call) { c.Answer(answer); c.Next(sipmsg.REFER).Reply(603); c.Hangup() })
		l := r.dial("01")
		if err := l.Refer(t.Context(), "+14155559999"); !errors.Is(err, sip.ErrReferred) && l.State() == nil {
			t.Errorf("refer before the answer: %v", err)
		}
		l.waitForCallback("answered", 1)
		if err := l.Refer(t.Context(), "+14155559999"); !errors.Is(err, sip.ErrReferred) {
			t.Errorf("refer: Refer = %v, want %v", err, sip.ErrReferred)
		} else if !strings.Contains(err.Error(), "603") {
			t.Errorf(`refer: err = %q, want it to contain "603"`, err.Error())
		}
		l.hangUp(callstate.NormalClearing)
	})
}
