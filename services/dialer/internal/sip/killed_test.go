package sip_test

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"

	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// TestMain places a call if SIGNAL_TEST_DIALS is set. A test starts this program with this
// variable, in order to kill it during the call.
func TestMain(m *testing.M) {
	if config := os.Getenv("SIGNAL_TEST_DIALS"); config != "" {
		if err := dialAndWait(config); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		return
	}
	sipmsg.Timer_1xx = 2 * siptest.Timeout // the far end must not send a 100 automatically
	os.Exit(m.Run())
}

type doomed struct {
	At    string
	Trunk sip.Trunk
}

func dialAndWait(config string) error {
	var what doomed
	if err := json.Unmarshal([]byte(config), &what); err != nil {
		return err
	}
	agent, err := sip.New(sip.Config{UDP: what.At, TCP: what.At, Admit: func(netip.Addr) bool { return true }})
	if err != nil {
		return err
	}
	var state []byte
	say := func(what string) { fmt.Println(what, hex.EncodeToString(state)) }
	_, err = agent.Invite(context.Background(), what.Trunk, sip.Invite{CallID: "doomed", From: "+15005550006", To: "+14155550101", Body: []byte(offer)}, sip.Observer{
		StoreState: func(s []byte) error { state = s; return nil },
		Rang:       func(time.Time, []byte) { say("rang") },
		Answered:   func(time.Time, []byte) error { say("answered"); return nil },
	})
	if err != nil {
		return err
	}
	select {}
}

// This test uses UDP. Over TCP, sipp ends a call when the connection of the killed process closes.
// TestReap_EndsRingingAndAnsweredCalls also covers TCP.
func TestReap_EndsTheCallOfAKilledProcess(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	slots := make(chan struct{}, 3)
	for _, way := range []string{"direct", "proxy"} {
		for when, far := range map[string]*scenario{
			"rang": invited().say(180, "").canceled(), "answered": invited().say(180, "").pause(50).say(200, sdpOf("sendrecv")).hear("ACK").hungUp(),
		} {
			t.Run(way+" "+when, func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				peer, port := far.play(t, transport.UDP)
				trunk := sip.Trunk{Name: "sipp", Host: "127.0.0.1", Port: port, Transport: transport.UDP}
				if way == "proxy" {
					trunk.Port, trunk.Username, trunk.Password = siptest.Kamailio(t, fmt.Sprintf(proxying, port)), "account", "secret"
				}
				at := fmt.Sprintf("127.0.0.1:%d", peertest.Port(t))
				state := killedWhen(t, when, doomed{At: at, Trunk: trunk})
				next := newAgent(t, func(cfg *sip.Config) { cfg.UDP, cfg.TCP = at, at })
				ctx, done := context.WithTimeout(t.Context(), siptest.Timeout)
				defer done()
				if err := next.Reap(ctx, trunk, state); err != nil {
					t.Errorf("reap: %v", err)
				}
				peer.Ends(t)
			})
		}
	}
}

// A killed process dialed the call. The next process at the same address must hang up when the
// call is answered.
func TestHandleResponse_HangsUpACallAnsweredAfterItsProcessWasKilled(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	far := invited().say(180, "").pause(3000).say(200, sdpOf("sendrecv")).hear("ACK").hungUp()
	peer, port := far.play(t, transport.UDP)
	trunk := sip.Trunk{Name: "sipp", Host: "127.0.0.1", Port: port, Transport: transport.UDP}
	at := fmt.Sprintf("127.0.0.1:%d", peertest.Port(t))
	killedWhen(t, "rang", doomed{At: at, Trunk: trunk})
	newAgent(t, func(cfg *sip.Config) { cfg.UDP, cfg.TCP = at, at })
	peer.Ends(t)
}

// killedWhen starts a process that dials. It kills the process when the process prints the given
// word, and returns the stored teardown state.
func killedWhen(t *testing.T, word string, what doomed) []byte {
	t.Helper()
	config, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0]) //nolint:gosec // runs this test program again
	cmd.Env = append(os.Environ(), "SIGNAL_TEST_DIALS="+string(config))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		event, text, _ := strings.Cut(lines.Text(), " ")
		if event == "failed" {
			t.Fatalf("output of the dialing process: %s", text)
		}
		if event == word {
			state, err := hex.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			return state
		}
	}
	t.Fatalf("the dialing process ended without printing %q", word)
	return nil
}
