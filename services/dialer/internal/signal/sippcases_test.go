package signal_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/call"
	"ringfence.dev/services/dialer/internal/signal"
	"ringfence.dev/services/dialer/internal/signal/line"
)

// sippCase passes when the call ends as it must and sipp is content.
type sippCase struct {
	name string
	far  *scenario
	// order changes the INVITE, trunk the trunk, talk is what we do when it is under way.
	order func(*signal.Invite, *leg)
	trunk func(*signal.Trunk)
	talk  func(*leg)
	cause call.Cause
	byUs  bool
	told  []string
	more  []string
}

func TestSipp(t *testing.T) {
	t.Parallel()
	slots := make(chan struct{}, 6)
	for _, transport := range []string{line.UDP, line.TCP} {
		for _, one := range append(finalCodes(), sippCalls()...) {
			t.Run(transport+"/"+one.name, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				r, peer := against(t, transport, one.far, one.more...)
				if one.trunk != nil {
					one.trunk(&r.trunk)
				}
				change := func(o *signal.Invite, l *leg) {
					if one.order != nil {
						one.order(o, l)
					}
				}
				l := r.dial("01", change)
				if one.talk != nil {
					one.talk(l)
				}
				l.ends(one.cause, one.byUs, one.told...)
				peer.Ends(t)
			})
		}
	}
}

// finalCodes is the table of contract.md §2, row by row.
func finalCodes() (all []sippCase) {
	for code, cause := range map[int]call.Cause{
		300: call.NoRouteDestination, 302: call.NoRouteDestination, 400: call.NormalTemporaryFailure, 401: call.ProviderAuthFailed, 403: call.CallRejected,
		404: call.UnallocatedNumber, 407: call.ProviderAuthFailed, 408: call.NoUserResponse, 410: call.NumberChanged, 415: call.IncompatibleDest,
		416: call.InvalidNumberFormat, 480: call.SubscriberAbsent, 484: call.InvalidNumberFormat, 486: call.UserBusy, 488: call.IncompatibleDest,
		500: call.NormalTemporaryFailure, 501: call.FacilityRejected, 502: call.NetworkOutOfOrder, 503: call.NormalTemporaryFailure, 504: call.RecoveryOnTimerExpire,
		600: call.UserBusy, 603: call.CallRejected, 604: call.UnallocatedNumber, 606: call.IncompatibleDest, 607: call.SpamBlocked, 608: call.SpamBlocked,
	} {
		all = append(all, sippCase{name: fmt.Sprint(code), far: invited().say(100, "").say(code, "").hear("ACK"), cause: cause})
	}
	return append(all,
		sippCase{name: "480 after ringing", far: invited().say(180, "").pause(100).say(480, "").hear("ACK"), cause: call.NoAnswer, told: []string{"taken", "rang"}},
		sippCase{name: "503 with Retry-After", far: invited().say(503, "", "Retry-After: 3").hear("ACK"), cause: call.SwitchCongestion},
		sippCase{name: "Q.850 wins", far: invited().say(500, "", "Reason: Q.850;cause=21;text=\"rejected\"").hear("ACK"), cause: call.CallRejected},
	)
}

func quickRing(o *signal.Invite, _ *leg) { o.Ring = 300 * time.Millisecond }

func hangUpWhen(what string) func(*leg) {
	return func(l *leg) { l.until(what, 1); l.hangUp(call.NormalClearing) }
}

func sippCalls() []sippCase {
	whole := []string{"taken", "rang", "answered"}
	account := func(password string) func(*signal.Trunk) {
		return func(tr *signal.Trunk) { tr.Username, tr.Password = "account", password }
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
		{name: "we hang up", far: invited().say(100, "").answered().hungUp(), talk: hangUpWhen("answered"), cause: call.NormalClearing, byUs: true, told: whole},
		{name: "the far end hangs up", far: invited().answered().pause(200).hangsUp(), cause: call.NormalClearing, told: whole},
		{name: "the far end hangs up with a reason", far: invited().answered().pause(200).hangsUp(`Reason: Q.850;cause=38`), cause: call.NetworkOutOfOrder, told: whole},
		{name: "answered without ringing", far: invited().say(200, sdpOf("sendrecv")).hear("ACK").hungUp(), talk: hangUpWhen("answered"), cause: call.NormalClearing, byUs: true,
			told: []string{"taken", "answered"}},
		{name: "early media then busy", far: invited().say(183, sdpOf("sendrecv")).pause(200).say(486, "").hear("ACK"), cause: call.UserBusy, told: []string{"taken", "rang"}},
		{name: "early media then answered", far: invited().say(183, sdpOf("sendrecv")).pause(100).say(200, sdpOf("sendrecv")).hear("ACK").hungUp(), talk: hangUpWhen("answered"),
			cause: call.NormalClearing, byUs: true, told: whole},
		{name: "12 provisional responses", far: floods.pause(50).say(200, sdpOf("sendrecv")).hear("ACK").hungUp(), talk: hangUpWhen("answered"), cause: call.NormalClearing, byUs: true, told: whole},
		{name: "ring timeout", far: invited().say(180, "").canceled(), order: quickRing, cause: call.NoAnswer, byUs: true, told: []string{"taken", "rang"}},
		{name: "cancelled after 100", far: invited().say(100, "").canceled(), talk: hangUpWhen("taken"), cause: call.OriginatorCancel, byUs: true, told: []string{"taken"}},
		{name: "cancelled while it rings", far: invited().say(180, "").canceled(), talk: hangUpWhen("rang"), cause: call.OriginatorCancel, byUs: true, told: []string{"taken", "rang"}},
		{name: "hold and resume", far: invited().answered().ask("INVITE", sdpOf("sendonly"), 2).told(200).ask("ACK", "", 2).pause(100).
			ask("INVITE", sdpOf("sendrecv"), 3).told(200).ask("ACK", "", 3).hungUp(),
			talk: func(l *leg) { l.until("offered", 2); l.hangUp(call.NormalClearing) }, cause: call.NormalClearing, byUs: true},
		{name: "session refreshed by us", far: invited().answered("Session-Expires: 2;refresher=uac", "Require: timer").hear("INVITE").ok(sdpOf("sendrecv"), "Session-Expires: 2;refresher=uac").
			hear("ACK").hangsUp(), cause: call.NormalClearing, told: append(whole, "agreed")},
		{name: "session not refreshed by them", far: invited().answered("Session-Expires: 1;refresher=uas").hungUp(), cause: call.RecoveryOnTimerExpire, byUs: true, told: whole},
		{name: "session refreshed by them", far: invited().answered("Session-Expires: 90;refresher=uas").ask("UPDATE", "", 2, "Session-Expires: 90;refresher=uac", "Supported: timer").told(200).hangsUp(),
			cause: call.NormalClearing, told: whole},
		{name: "transfer", far: invited().answered().hear("REFER").respond(202, "", "").ask("NOTIFY", "SIP/2.0 100 Trying\n", 2, "Event: refer", "Subscription-State: active;expires=60").told(200).
			ask("NOTIFY", "SIP/2.0 200 OK\n", 3, "Event: refer", "Subscription-State: terminated;reason=noresource").told(200).hungUp(),
			talk: func(l *leg) {
				l.until("answered", 1)
				if err := l.Refer(l.t.Context(), "+14155559999"); err != nil {
					l.t.Errorf("refer: %v", err)
				}
				l.hangUp(call.NormalClearing)
			}, cause: call.NormalClearing, byUs: true},
		{name: "INFO OPTIONS REFER", far: invited().answered().ask("INFO", "", 2).told(200).ask("OPTIONS", "", 3).told(200).ask("REFER", "", 4, "Refer-To: <sip:other@127.0.0.1>").told(603).hangsUp(),
			cause: call.NormalClearing, told: whole},
		{name: "credentials", trunk: account("secret"), far: invited().say(401, "", challenge).hear("ACK").add(verified).answered().hungUp().add(`<nop next="end"/><label id="bad"/>`).
			say(403, "").hear("ACK").add(`<label id="end"/>`), talk: hangUpWhen("answered"), cause: call.NormalClearing, byUs: true, told: whole},
		{name: "wrong credentials", trunk: account("wrong"), far: invited().say(401, "", challenge).hear("ACK").hear("INVITE").say(401, "", strings.Replace(challenge, "47", "48", 1)).hear("ACK"),
			cause: call.ProviderAuthFailed},
		{name: "silence", far: invited().pause(1500), order: func(o *signal.Invite, _ *leg) { o.FirstResponse = 700 * time.Millisecond }, cause: call.RecoveryOnTimerExpire, byUs: true},
		{name: "100 and no more", far: invited().say(100, "").canceled(), order: func(o *signal.Invite, _ *leg) { o.FirstRing = 4 * time.Second }, cause: call.RecoveryOnTimerExpire, byUs: true,
			told: []string{"taken"}},
	}
}
