package phoning_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/libs/loopback"
)

// installed skips the test where a program is missing, and fails it with CI=true: `make test` installs them where it may.
func installed(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing: `make peers` installs it", program)
		}
		t.Skipf("SKIPPED: %s is missing: `make peers` installs it", program)
	}
}

// peer is a program that runs.
type peer struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	said bytes.Buffer
	done chan struct{}
	err  error
}

func (p *peer) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(text)
}

func (p *peer) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// run starts a program in a folder.
func run(dir, program string, args ...string) (*peer, error) {
	p := &peer{cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, p, p
	p.cmd.Env = append(os.Environ(), "HOME="+dir, "TERM=dumb")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with those that it starts itself
	p.cmd.WaitDelay = 2 * time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	return p, nil
}

func (p *peer) kill() error {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
	return nil
}

// ends waits for the program's end, which must be a good one.
func (p *peer) ends(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
		if p.err != nil {
			t.Errorf("%s: %v\n%s", p.cmd.Path, p.err, p.text())
		}
	case <-time.After(soon):
		t.Errorf("%s goes on\n%s", p.cmd.Path, p.text())
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := loopback.Port()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// number is the one at which the proxy reaches a port.
func number(port int) string { return fmt.Sprintf("+1415%d%05d", 55, port) }

// routing asks us for credentials, stays in the way of calls (Record-Route), writes down what they came over, sends +1415 55 and a port to that port, and calls for us to where we have registered.
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

// proxying starts a kamailio that listens for UDP and TCP.
func (w *world) proxying() (port int, err error) {
	modules, err := filepath.Glob("/usr/lib/*/kamailio/modules")
	if err != nil || len(modules) == 0 {
		return 0, fmt.Errorf("kamailio's modules are not where Debian puts them: %w", err)
	}
	if port, err = loopback.Port(); err != nil {
		return 0, err
	}
	text := fmt.Sprintf(`#!KAMAILIO
debug=0
log_stderror=yes
fork=yes
children=2
tcp_children=1
auto_aliases=no
listen=udp:127.0.0.1:%[1]d
listen=tcp:127.0.0.1:%[1]d
mpath="%[2]s/"
`, port, modules[0])
	for _, name := range []string{"kex", "tm", "tmx", "sl", "rr", "pv", "maxfwd", "auth", "textops", "siputils", "usrloc", "registrar"} {
		text += fmt.Sprintf("loadmodule %q\n", name+".so")
	}
	text += `modparam("tm", "fr_timer", 3000)` + "\n" + `modparam("tm", "fr_inv_timer", 60000)` + "\n" + fmt.Sprintf(routing, account, secret)
	file := filepath.Join(w.Home, "kamailio.cfg")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return 0, err
	}
	p, err := run(w.Home, "kamailio", "-f", file, "-DD", "-E", "-Y", w.Home, "-m", "32", "-M", "4")
	if err != nil {
		return 0, err
	}
	w.AtEnd(p.kill)
	for begun := time.Now(); !loopback.Open("udp", port); time.Sleep(10 * time.Millisecond) { // a poll of the condition
		select {
		case <-p.done:
			return 0, fmt.Errorf("kamailio ended: %w\n%s", p.err, p.text())
		default:
		}
		if time.Since(begun) > soon {
			return 0, fmt.Errorf("kamailio does not listen\n%s", p.text())
		}
	}
	return port, nil
}

// caller plays a scenario once that begins with an INVITE to a port.
func caller(t *testing.T, to int, steps []string) *peer {
	t.Helper()
	return sipp(t, freePort(t), steps, fmt.Sprintf("127.0.0.1:%d", to))
}

// sipp plays a scenario once at a port.
func sipp(t *testing.T, port int, steps []string, more ...string) *peer {
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
	p, err := run(dir, "sipp", append([]string{
		"-sf", file, "-i", "127.0.0.1", "-p", strconv.Itoa(port), "-t", "u1", "-m", "1", "-nostdin", "-timeout", "60s", "-timeout_error",
		"-mp", strconv.Itoa(freePort(t)), "-trace_err", "-error_file", "/dev/stderr",
	}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.kill()
		if t.Failed() {
			t.Logf("sipp said: %s", p.text())
		}
	})
	return p
}
