package sip_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

type sippCase struct {
	name string
	far  *scenario
	// changeInvite changes the Invite, and changeTrunk changes the trunk. duringCall runs during
	// the call.
	changeInvite  func(*sip.Invite, *leg)
	changeTrunk   func(*sip.Trunk)
	duringCall    func(*leg)
	cause         callstate.Cause
	byUs          bool
	notifications []string
	more          []string
}

func TestSipp_EachScenarioEndsAsExpected(t *testing.T) {
	t.Parallel()
	slots := make(chan struct{}, 6)
	for _, transport := range []string{transport.UDP, transport.TCP} {
		for _, one := range append(finalCodes(), sippCalls()...) {
			t.Run(transport+"/"+one.name, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				r, peer := against(t, transport, one.far, one.more...)
				if one.changeTrunk != nil {
					one.changeTrunk(&r.trunk)
				}
				change := func(o *sip.Invite, l *leg) {
					if one.changeInvite != nil {
						one.changeInvite(o, l)
					}
				}
				l := r.dial("01", change)
				if one.duringCall != nil {
					one.duringCall(l)
				}
				l.ends(one.cause, one.byUs, one.notifications...)
				peer.Ends(t)
			})
		}
	}
}

// finalCodes returns one case per row of the table in
// docs/reference/api/calls.md#sip-responses-and-hangup-causes.
func finalCodes() (all []sippCase) {
	for code, cause := range map[int]callstate.Cause{
		300: callstate.NoRouteDestination, 302: callstate.NoRouteDestination, 400: callstate.NormalTemporaryFailure, 401: callstate.ProviderAuthFailed, 403: callstate.CallRejected,
		404: callstate.UnallocatedNumber, 407: callstate.ProviderAuthFailed, 408: callstate.NoUserResponse, 410: callstate.NumberChanged, 415: callstate.IncompatibleDest,
		416: callstate.InvalidNumberFormat, 480: callstate.SubscriberAbsent, 484: callstate.InvalidNumberFormat, 486: callstate.UserBusy, 488: callstate.IncompatibleDest,
		500: callstate.NormalTemporaryFailure, 501: callstate.FacilityRejected, 502: callstate.NetworkOutOfOrder, 503: callstate.NormalTemporaryFailure, 504: callstate.RecoveryOnTimerExpire,
		600: callstate.UserBusy, 603: callstate.CallRejected, 604: callstate.UnallocatedNumber, 606: callstate.IncompatibleDest, 607: callstate.SpamBlocked, 608: callstate.SpamBlocked,
	} {
		all = append(all, sippCase{name: fmt.Sprint(code), far: invited().say(100, "").say(code, "").hear("ACK"), cause: cause})
	}
	return append(
		all,
		sippCase{
			name:          "480 after ringing",
			far:           invited().say(180, "").pause(100).say(480, "").hear("ACK"),
			cause:         callstate.NoAnswer,
			notifications: []string{"taken", "rang"},
		},
		sippCase{
			name:  "503 with Retry-After",
			far:   invited().say(503, "", "Retry-After: 3").hear("ACK"),
			cause: callstate.SwitchCongestion,
		},
		sippCase{
			name:  "Q.850 overrides the status",
			far:   invited().say(500, "", "Reason: Q.850;cause=21;text=\"rejected\"").hear("ACK"),
			cause: callstate.CallRejected,
		},
	)
}

func quickRing(o *sip.Invite, _ *leg) { o.Ring = 300 * time.Millisecond }

func hangUpWhen(what string) func(*leg) {
	return func(l *leg) { l.waitForCallback(what, 1); l.hangUp(callstate.NormalClearing) }
}

func sippCalls() []sippCase {
	whole := []string{"taken", "rang", "answered"}
	account := func(password string) func(*sip.Trunk) {
		return func(tr *sip.Trunk) { tr.Username, tr.Password = "account", password }
	}
	challenge := `WWW-Authenticate: Digest realm="sipp.test", nonce="47ebe028cda119c35d4877b383027d28da013815", algorithm=MD5, qop="auth"`
	verified := `<recv request="INVITE" rrs="true"><action><verifyauth assign_to="9" username="account" password="secret"/>
	<ereg regexp="." search_in="hdr" header="Authorization:" check_it="true" assign_to="8"/></action></recv><Reference variables="8"/><nop test="9" next="good"/><nop next="bad"/><label id="good"/>`
	floods := invited()
	for range 12 {
		floods.say(183, sdpOf("sendrecv"))
	}
	late := invited().say(180, "")
	late.add(`<recv request="CANCEL"/>`).ok("")
	return []sippCase{
		{
			name:          "this side hangs up",
			far:           invited().say(100, "").answered().hungUp(),
			duringCall:    hangUpWhen("answered"),
			cause:         callstate.NormalClearing,
			byUs:          true,
			notifications: whole,
		},
		{
			name:          "far end hangs up",
			far:           invited().answered().pause(200).hangsUp(),
			cause:         callstate.NormalClearing,
			notifications: whole,
		},
		{
			name:          "far end hangs up with a Q.850 cause",
			far:           invited().answered().pause(200).hangsUp(`Reason: Q.850;cause=38`),
			cause:         callstate.NetworkOutOfOrder,
			notifications: whole,
		},
		{
			name:          "answered without ringing",
			far:           invited().say(200, sdpOf("sendrecv")).hear("ACK").hungUp(),
			duringCall:    hangUpWhen("answered"),
			cause:         callstate.NormalClearing,
			byUs:          true,
			notifications: []string{"taken", "answered"},
		},
		{
			name:          "early media then busy",
			far:           invited().say(183, sdpOf("sendrecv")).pause(200).say(486, "").hear("ACK"),
			cause:         callstate.UserBusy,
			notifications: []string{"taken", "rang"},
		},
		{
			name:          "early media then answered",
			far:           invited().say(183, sdpOf("sendrecv")).pause(100).say(200, sdpOf("sendrecv")).hear("ACK").hungUp(),
			duringCall:    hangUpWhen("answered"),
			cause:         callstate.NormalClearing,
			byUs:          true,
			notifications: whole,
		},
		{
			name:          "12 provisional responses",
			far:           floods.pause(50).say(200, sdpOf("sendrecv")).hear("ACK").hungUp(),
			duringCall:    hangUpWhen("answered"),
			cause:         callstate.NormalClearing,
			byUs:          true,
			notifications: whole,
		},
		{
			name:          "ring timeout",
			far:           invited().say(180, "").canceled(),
			changeInvite:  quickRing,
			cause:         callstate.NoAnswer,
			byUs:          true,
			notifications: []string{"taken", "rang"},
		},
		{
			name:          "canceled after 100",
			far:           invited().say(100, "").canceled(),
			duringCall:    hangUpWhen("taken"),
			cause:         callstate.OriginatorCancel,
			byUs:          true,
			notifications: []string{"taken"},
		},
		{
			name:          "canceled while ringing",
			far:           invited().say(180, "").canceled(),
			duringCall:    hangUpWhen("rang"),
			cause:         callstate.OriginatorCancel,
			byUs:          true,
			notifications: []string{"taken", "rang"},
		},
		{
			name: "hold and resume",
			far: invited().answered().ask("INVITE", sdpOf("sendonly"), 2).response(200).ask("ACK", "", 2).pause(100).
				ask("INVITE", sdpOf("sendrecv"), 3).response(200).ask("ACK", "", 3).hungUp(),
			duringCall: func(l *leg) { l.waitForCallback("offered", 2); l.hangUp(callstate.NormalClearing) },
			cause:      callstate.NormalClearing,
			byUs:       true,
		},
		{
			name: "session refreshed by this side",
			far: invited().answered("Session-Expires: 2;refresher=uac", "Require: timer").
				hear("INVITE").
				ok(sdpOf("sendrecv"), "Session-Expires: 2;refresher=uac").
				hear("ACK").
				hangsUp(),
			cause:         callstate.NormalClearing,
			notifications: append(whole, "agreed"),
		},
		{
			name:          "session not refreshed by the far end",
			far:           invited().answered("Session-Expires: 1;refresher=uas").hungUp(),
			cause:         callstate.RecoveryOnTimerExpire,
			byUs:          true,
			notifications: whole,
		},
		{name: "session refreshed by the far end",
			far: invited().answered("Session-Expires: 90;refresher=uas").
				ask("UPDATE", "", 2, "Session-Expires: 90;refresher=uac", "Supported: timer").
				response(200).hangsUp(),
			cause: callstate.NormalClearing, notifications: whole},
		{name: "transfer by REFER",
			far: invited().answered().hear("REFER").respond(202, "", "").
				ask("NOTIFY", "SIP/2.0 100 Trying\n", 2, "Event: refer", "Subscription-State: active;expires=60").
				response(200).
				ask("NOTIFY", "SIP/2.0 200 OK\n", 3, "Event: refer",
					"Subscription-State: terminated;reason=noresource").response(200).hungUp(),
			duringCall: func(l *leg) {
				l.waitForCallback("answered", 1)
				if err := l.Refer(l.t.Context(), "+14155559999"); err != nil {
					l.t.Errorf("refer: %v", err)
				}
				l.hangUp(callstate.NormalClearing)
			}, cause: callstate.NormalClearing, byUs: true},
		{name: "INFO and OPTIONS accepted, REFER refused",
			far: invited().answered().ask("INFO", "", 2).response(200).ask("OPTIONS", "", 3).response(200).
				ask("REFER", "", 4, "Refer-To: <sip:other@127.0.0.1>").response(603).hangsUp(),
			cause: callstate.NormalClearing, notifications: whole},
		{
			name:        "right credentials",
			changeTrunk: account("secret"),
			far: invited().say(401, "", challenge).
				hear("ACK").
				add(verified).
				answered().
				hungUp().
				add(`<nop next="end"/><label id="bad"/>`).
				say(403, "").
				hear("ACK").
				add(`<label id="end"/>`),
			duringCall:    hangUpWhen("answered"),
			cause:         callstate.NormalClearing,
			byUs:          true,
			notifications: whole,
		},
		{
			name:        "wrong credentials",
			changeTrunk: account("wrong"),
			far: invited().say(401, "", challenge).
				hear("ACK").
				hear("INVITE").
				say(401, "", strings.Replace(challenge, "47", "48", 1)).
				hear("ACK"),
			cause: callstate.ProviderAuthFailed,
		},
		{
			name:         "no response",
			far:          invited().pause(1500),
			changeInvite: func(o *sip.Invite, _ *leg) { o.FirstResponse = 700 * time.Millisecond },
			cause:        callstate.RecoveryOnTimerExpire,
			byUs:         true,
		},
		{
			name:          "only 100",
			far:           invited().say(100, "").canceled(),
			changeInvite:  func(o *sip.Invite, _ *leg) { o.FirstRing = 4 * time.Second },
			cause:         callstate.RecoveryOnTimerExpire,
			byUs:          true,
			notifications: []string{"taken"},
		},
	}
}
