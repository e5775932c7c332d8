package signaltest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Dispatching is a routing that stays in the way of calls and sends them to one of several destinations in turn, and to the next when one takes no more.
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

// Kamailio runs one with a routing, and with destinations of the dispatcher's, "1 sip:127.0.0.1:5060" each, until the test ends. It listens for UDP at the port.
func Kamailio(t testing.TB, routing string, destinations ...string) (port int) {
	t.Helper()
	Installed(t, "kamailio")
	modules, err := filepath.Glob("/usr/lib/*/kamailio/modules")
	if err != nil || len(modules) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("kamailio's modules are not where Debian puts them")
		}
		t.Skip("SKIPPED: kamailio's modules are not where Debian puts them")
	}
	dir, port := t.TempDir(), FreePort(t)
	file, list := filepath.Join(dir, "kamailio.cfg"), filepath.Join(dir, "dispatcher.list")
	text := fmt.Sprintf(`#!KAMAILIO
debug=0
log_stderror=yes
fork=yes
children=1
auto_aliases=no
disable_tcp=yes
listen=udp:127.0.0.1:%d
mpath="%s/"
`, port, modules[0])
	for _, name := range []string{"kex", "tm", "tmx", "sl", "rr", "pv", "maxfwd", "auth", "textops", "siputils", "usrloc", "registrar", "dispatcher", "xlog"} {
		text += fmt.Sprintf("loadmodule %q\n", name+".so")
	}
	text += fmt.Sprintf(`modparam("tm", "fr_inv_timer", 20000)
modparam("dispatcher", "list_file", "%s")
modparam("dispatcher", "flags", 2)
modparam("dispatcher", "ds_ping_interval", 1)
modparam("dispatcher", "ds_probing_mode", 1)
`, list)
	for name, content := range map[string]string{file: text + routing, list: strings.Join(append(destinations, "2 sip:127.0.0.1:9"), "\n") + "\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	Start(t, dir, "kamailio", "-f", file, "-DD", "-E", "-Y", dir, "-m", "32", "-M", "4").Listens(t.Context(), "udp", port)
	return port
}
