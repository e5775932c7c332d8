package sip_test

import (
	"fmt"
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// proxying is a Kamailio route. It challenges all requests and adds a Record-Route, so that
// requests within the call pass through the proxy.
const proxying = `
request_route {
	if (!mf_process_maxfwd_header("10")) { sl_send_reply("483", "Too Many Hops"); exit; }
	if (is_method("OPTIONS") && !has_totag()) { sl_send_reply("200", "OK"); exit; }
	if (is_method("CANCEL")) { if (t_check_trans()) { t_relay(); } exit; }
	if (has_totag()) {
		if (loose_route()) { t_relay(); exit; }
		if (is_method("ACK")) { if (t_check_trans()) { t_relay(); } exit; }
		sl_send_reply("404", "Not Here"); exit;
	}
	if (is_method("REGISTER")) {
		if (!pv_www_authenticate("proxy.test", "secret", "0")) { www_challenge("proxy.test", "1"); exit; }
		save("location"); exit;
	}
	if (!pv_proxy_authenticate("proxy.test", "secret", "0")) { proxy_challenge("proxy.test", "1"); exit; }
	consume_credentials();
	record_route();
	$du = "sip:127.0.0.1:%d";
	if (!t_relay()) { sl_reply_error(); }
}`

func TestKamailio_CallsThroughAProxy(t *testing.T) {
	t.Parallel()
	slots := make(chan struct{}, 3)
	for _, one := range sippCalls() {
		switch one.name {
		case "no response", "only 100", "right credentials", "wrong credentials", "canceled after 100",
			"12 provisional responses", "session not refreshed by the far end":
			continue // the proxy itself sends 100 and the challenge
		}
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			peer, far := one.far.play(t, transport.UDP)
			r := throughProxy(t, siptest.Kamailio(t, fmt.Sprintf(proxying, far)))
			l := r.dial("01", func(o *sip.Invite, l *leg) {
				if one.changeInvite != nil {
					one.changeInvite(o, l)
				}
			})
			if one.duringCall != nil {
				one.duringCall(l)
			}
			l.ends(one.cause, one.byUs, one.notifications...)
			peer.Ends(t)
		})
	}
}

func throughProxy(t *testing.T, port int) *fixture {
	return &fixture{t: t, agent: newAgent(t), trunk: sip.Trunk{
		Name: "proxy", Host: "127.0.0.1", Port: port, Transport: transport.UDP, CallerID: sip.InFrom, Username: "account", Password: "secret",
	}}
}

func TestKamailio_RegistrationNeedsTheRightPassword(t *testing.T) {
	t.Parallel()
	r := throughProxy(t, siptest.Kamailio(t, fmt.Sprintf(proxying, 9)))
	if err := r.agent.Probe(t.Context(), r.trunk); err != nil {
		t.Errorf("probe: %v", err)
	}
	switch granted, err := r.agent.Register(t.Context(), r.trunk, time.Hour); {
	case err != nil:
		t.Errorf("Register: %v", err)
	case granted < 59*time.Minute:
		t.Errorf("granted = %v, want at least %v", granted, 59*time.Minute)
	case granted > time.Hour:
		t.Errorf("granted = %v, want at most %v", granted, time.Hour)
	}
	if granted, err := r.agent.Register(t.Context(), r.trunk, 0); err != nil {
		t.Errorf("remove the registration: Register: %v", err)
	} else if granted != 0 {
		t.Errorf("take the registration back: granted = %v, want 0", granted)
	}
	r.trunk.Password = "wrong"
	if _, err := r.agent.Register(t.Context(), r.trunk, time.Hour); err == nil {
		t.Error("Register succeeded with a wrong password, want an error")
	}
	r.dial("01").ends(callstate.ProviderAuthFailed, false)
}
