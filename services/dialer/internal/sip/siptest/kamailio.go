package siptest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringfence.dev/libs/testkit/peertest"
)

// Dispatching is a Kamailio route that distributes calls over several destinations in turn and
// stays in their signaling path. If a destination refuses a call, Kamailio tries the next
// destination.
const Dispatching = `
modparam("dispatcher", "ds_ping_reply_codes", "class=2")
request_route {
	if (is_method("OPTIONS") && !has_totag()) { sl_send_reply("200", "OK"); exit; }
	if (is_method("CANCEL")) { if (t_check_trans()) { t_relay(); } exit; }
	if (has_totag()) {
		if (loose_route()) { t_relay(); exit; }
		if (is_method("ACK")) { if (t_check_trans()) { t_relay(); } exit; }
		sl_send_reply("404", "Not Here"); exit;
	}
	record_route();
	if (!ds_select_dst("1", "4")) { sl_send_reply("500", "Nobody"); exit; }
	t_on_failure("NEXT");
	t_relay();
}
failure_route[NEXT] {
	if (t_check_status("503|408") && ds_next_dst()) { t_on_failure("NEXT"); t_relay(); }
}`

// dispatching loads the dispatcher module. It is a format string: %q is the file with the
// destinations.
const dispatching = `
loadmodule "dispatcher.so"
modparam("tm", "fr_inv_timer", 20000)
modparam("dispatcher", "list_file", %q)
modparam("dispatcher", "flags", 2)
modparam("dispatcher", "ds_ping_interval", 1)
modparam("dispatcher", "ds_probing_mode", 1)
`

// Kamailio runs Kamailio with a route until the test ends, and returns its UDP port. destinations
// are lines of the dispatcher, such as "1 sip:127.0.0.1:5060".
func Kamailio(t testing.TB, routing string, destinations ...string) (port int) {
	t.Helper()
	peertest.Installed(t, "kamailio")
	dir := t.TempDir()
	list := filepath.Join(dir, "dispatcher.list")
	if err := os.WriteFile(list, []byte(strings.Join(append(destinations, "2 sip:127.0.0.1:9"), "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	program, port, err := peertest.Kamailio(dir, fmt.Sprintf(dispatching, list)+routing)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(program.Stop)
	return port
}
