package sip_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ringfence.dev/libs/testkit/peertest"
)

// number returns the phone number that the proxy routes to a port.
func number(port int) string { return fmt.Sprintf("+1415%d%05d", 55, port) }

// routing is the configuration of kamailio. kamailio requests credentials, and adds Record-Route
// with the transport of the INVITE. A number that consists of +1415 55 and a port leads to that
// port. The stack's number leads to the registered address.
const routing = `
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
		if (!pv_www_authenticate("proxy.test", "%[2]s", "0")) { www_challenge("proxy.test", "1"); exit; }
		save("location"); exit;
	}
	record_route();
	if ($rU == "%[1]s") {
		if (!lookup("location")) { sl_send_reply("404", "Not Registered"); exit; }
		if (!t_relay()) { sl_reply_error(); }
		exit;
	}
	if (!pv_proxy_authenticate("proxy.test", "%[2]s", "0")) { proxy_challenge("proxy.test", "1"); exit; }
	consume_credentials();
	append_hf("X-Came-Over: $pr\r\n");
	$du = "sip:127.0.0.1:" + $(rU{s.substr,7,5});
	if (!t_relay()) { sl_reply_error(); }
}`

func (w *testStack) proxying() (port int, err error) {
	const waits = "modparam(\"tm\", \"fr_timer\", 20000)\nmodparam(\"tm\", \"fr_inv_timer\", 60000)\n"
	proxy, port, err := peertest.Kamailio(w.Home, waits+fmt.Sprintf(routing, account, secret), "tcp")
	if err != nil {
		return 0, err
	}
	w.AtEnd(func() error { proxy.Stop(); return nil })
	return port, nil
}

// caller starts a sipp that executes a scenario once. The scenario begins with an INVITE to the
// port.
func caller(t *testing.T, to int, steps []string) *peertest.Program {
	t.Helper()
	return sipp(t, peertest.Port(t), steps, fmt.Sprintf("127.0.0.1:%d", to))
}

// sipp starts a sipp that executes a scenario once at the port.
func sipp(t *testing.T, port int, steps []string, more ...string) *peertest.Program {
	t.Helper()
	dir := t.TempDir()
	text := `<?xml version="1.0" encoding="ISO-8859-1" ?>` + "\n<scenario name=\"far end\">\n" + strings.Join(steps, "\n") + "\n"
	for _, variable := range []string{"1", "2", "3"} {
		if strings.Contains(text, `assign_to="`+variable+`"`) && !strings.Contains(text, "[$"+variable+"]") {
			text += `<Reference variables="` + variable + `"/>` + "\n"
		}
	}
	file := filepath.Join(dir, "far.xml")
	if err := os.WriteFile(file, []byte(text+"</scenario>\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return peertest.Start(t, dir, "sipp", append([]string{
		"-sf", file, "-i", "127.0.0.1", "-p", strconv.Itoa(port), "-t", "u1", "-m", "1", "-nostdin", "-timeout", "60s", "-timeout_error",
		"-mp", strconv.Itoa(peertest.Port(t)), "-trace_err", "-error_file", "/dev/stderr",
	}, more...)...)
}
