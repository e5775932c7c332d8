// Package asterisk_test runs docs/sip-trunks/asterisk.md with a real Asterisk.
package asterisk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const (
	root = "../.."
	page = root + "/docs/sip-trunks/asterisk.md"
	// In the commands of the page, the test replaces these addresses by loopback addresses.
	ringfenceInPage, asteriskInPage = "192.0.2.10", "192.0.2.20"
	hangup                          = "for channel in "
	drainLimit                      = time.Second
)

type call struct {
	Direction string `json:"direction"`
	From      string `json:"from"`
	To        string `json:"to"`
	Status    string `json:"status"`
}

type recipe struct {
	text string
	dir  string
	// commands contains every command that the method run has executed.
	commands string
	asterisk *peertest.Asterisk
	stack    *sharedstack.TestStack
}

// TestAsteriskPage_CommandsRun runs every command of the page, except the command that starts
// Ringfence. The test kit starts Ringfence with the same variables.
func TestAsteriskPage_CommandsRun(t *testing.T) {
	peertest.AsteriskInstalled(t)
	network := fmt.Sprintf("127.%d.%d.", 128+rand.IntN(127), rand.IntN(256))
	ringfence, asterisk := network+"10", network+"20"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	addresses := strings.NewReplacer(ringfenceInPage, ringfence, asteriskInPage, asterisk)
	r := &recipe{text: addresses.Replace(string(text)), dir: t.TempDir()}
	r.stack = start(t, r.section(t, "## 2."), ringfence)
	r.asterisk, err = peertest.StartAsterisk(r.dir, map[string]string{
		"pjsip.conf":      setMediaAddress(r.file(t, "ini", "; pjsip.conf"), asterisk),
		"extensions.conf": r.file(t, "ini", "; extensions.conf"),
		"rtp.conf":        "[general]\nrtpstart=20000\nrtpend=20199\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.asterisk.Stop)
	r.run(t, r.section(t, "## 1."))
	r.placeWithoutTrunk(t, ringfence)
	if err := os.WriteFile(filepath.Join(r.dir, "trunk.json"), []byte(r.file(t, "json", "{")), 0o600); err != nil {
		t.Fatal(err)
	}
	placed, rest, found := strings.Cut(r.section(t, "## 4."), "asterisk -rx 'core show channels'\n")
	if !found {
		t.Fatal("section 4 does not show the channels of Asterisk")
	}
	r.run(t, r.section(t, "## 3.")+placed)
	outbound := call{Direction: "outbound", From: "+14155550100", To: "+14155550199", Status: "in_progress"}
	r.awaitCall(t, outbound)
	r.run(t, "asterisk -rx 'core show channels'\n"+rest)
	outbound.Status = "completed"
	r.awaitCall(t, outbound)

	const qualify = "asterisk -rx 'pjsip qualify ringfence'\n"
	receive, found := strings.CutPrefix(r.section(t, "## 5."), qualify)
	if !found {
		t.Fatal("section 5 does not begin with pjsip qualify")
	}
	r.run(t, qualify)
	reachable := "Contact ringfence/sip:" + ringfence + ":5060 is now Reachable"
	err = kit.Until(t.Context(), kit.HangTimeout, reachable, func() (bool, error) {
		return strings.Contains(terminalCodes.ReplaceAllString(r.asterisk.Output(), ""), reachable), nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, r.asterisk.Output())
	}
	receive, end, found := strings.Cut(receive, hangup)
	if !found {
		t.Fatal("section 5 does not hang up")
	}
	r.run(t, receive)
	inbound := call{Direction: "inbound", From: "anonymous", To: "+14155550100", Status: "in_progress"}
	r.awaitCall(t, inbound)
	r.run(t, hangup+end)
	inbound.Status = "completed"
	r.awaitCall(t, inbound)
	r.addTrunks(t)
	outbound.Status = "in_progress"
	r.run(t, realCall(t, asterisk))
	r.awaitCall(t, outbound)
	r.checkBlocks(t, addresses, asterisk)
	r.stopDuringCall(t)
	r.stopTwice(t)
}

// checkBlocks checks that the test executed every code block that kit.PageBlocks returns for this
// test.
func (r *recipe) checkBlocks(t *testing.T, addresses *strings.Replacer, asterisk string) {
	t.Helper()
	blocks, err := kit.PageBlocks(root, kit.AsteriskTest)
	if err != nil {
		t.Fatal(err)
	}
	executed := map[string]int{}
	for _, b := range blocks {
		text := strings.ReplaceAll(addresses.Replace(b.Text), realCallHost, asterisk)
		executed[text]++
		if strings.Count(r.commands, text) < executed[text] {
			t.Errorf("%s: the commands were not executed", b)
		}
	}
}

// realCallHost is the host of the trunk in README.md.
const realCallHost = "sip.example.net"

// placeWithoutTrunk places a call before a trunk exists. The CLI must show why the call request
// stays queued. The console must show the SIP address, and no number of the simulated carrier.
func (r *recipe) placeWithoutTrunk(t *testing.T, ringfence string) {
	t.Helper()
	const simulated = "+14155550101"
	r.await(t, "the console shows the SIP address", func() bool {
		return strings.Contains(r.log(t), "Trunks reach it at "+ringfence)
	})
	if strings.Contains(r.log(t), simulated) {
		t.Errorf("the log of the stack contains %q", simulated)
	}
	client := kit.NewClient(r.stack.Demo.BaseURL, r.stack.Demo.WriteKey)
	order := map[string]any{"agent_id": r.stack.Demo.AgentID, "to": "+14155550199"}
	var placed, canceled kit.Request
	if err := client.Into(t.Context(), "POST", "/v1/calls", order, http.StatusAccepted, &placed); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"bin/ringfence calls why " + placed.ID: "Now no SIP trunk is active: add one with `ringfence trunks add`",
		"bin/ringfence status || true":         "no SIP trunk is active: add one with `ringfence trunks add`",
	} {
		if got := r.run(t, command); !strings.Contains(got, want) {
			t.Errorf("output of %q = %q, want it to contain %q", command, got, want)
		}
	}
	path := "/v1/call-requests/" + placed.ID + "/cancel"
	if err := client.Into(t.Context(), "POST", path, nil, http.StatusOK, &canceled); err != nil {
		t.Fatalf("cancel the call request that is queued: %v", err)
	}
}

func realCall(t *testing.T, asterisk string) string {
	t.Helper()
	const readme, host = root + "/README.md", realCallHost
	text, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	section := (&recipe{text: string(text)}).section(t, "## A real call\n")
	_, commands, found := strings.Cut(section, " make run\n")
	if !found {
		t.Fatal("README.md does not start the stack before the real call")
	}
	if !strings.Contains(commands, host) {
		t.Fatalf("README.md does not name the host %s", host)
	}
	return strings.ReplaceAll(commands, host, asterisk)
}

// stopDuringCall stops the stack during a call, as Ctrl-C does. The call at Asterisk must end
// within DRAIN_LIMIT plus 15 s. A supervisor must wait this long before it kills the dialer.
func (r *recipe) stopDuringCall(t *testing.T) {
	t.Helper()
	if got, want := r.channels(t), "1 active channel\n"; !strings.HasPrefix(got, want) {
		t.Errorf("channels of Asterisk before the stop = %q, want %q", got, want)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.stack.Stop() }()
	err := kit.Until(t.Context(), drainLimit+15*time.Second, "Asterisk has no call", func() (bool, error) {
		return strings.HasPrefix(r.channels(t), "0 active channels\n"), nil
	})
	if err != nil {
		t.Errorf("%v; channels of Asterisk: %s", err, r.channels(t))
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop the stack: %v", err)
	}
	if want := awaited(drainLimit); !strings.Contains(r.log(t), want) {
		t.Errorf("the log of the stack lacks %q", want)
	}
	if got, want := r.channels(t), "0 active channels\n"; !strings.HasPrefix(got, want) {
		t.Errorf("channels of Asterisk after the stop = %q, want %q", got, want)
	}
}

// stopTwice sends SIGINT twice to a stack with a long DRAIN_LIMIT. The call must end before
// DRAIN_LIMIT has passed.
func (r *recipe) stopTwice(t *testing.T) {
	t.Helper()
	const limit = time.Hour
	if err := r.stack.Start(append(slices.Clone(r.stack.Env), "DRAIN_LIMIT="+limit.String())...); err != nil {
		t.Fatal(err)
	}
	client := kit.NewClient(r.stack.Demo.BaseURL, r.stack.Demo.WriteKey)
	var page kit.Page[struct {
		AgentID string `json:"agent_id"`
	}]
	if err := client.Into(t.Context(), "GET", "/v1/calls?limit=1", nil, http.StatusOK, &page); err != nil {
		t.Fatal(err)
	}
	order := map[string]any{"agent_id": page.Data[0].AgentID, "to": "+14155550199"}
	if err := client.Into(t.Context(), "POST", "/v1/calls", order, http.StatusAccepted, nil); err != nil {
		t.Fatal(err)
	}
	r.await(t, "the call is answered", func() bool {
		var page kit.Page[call]
		err := client.Into(t.Context(), "GET", "/v1/calls?limit=1", nil, http.StatusOK, &page)
		return err == nil && page.Data[0].Status == "in_progress"
	})
	if got, want := r.channels(t), "1 active channel\n"; !strings.HasPrefix(got, want) {
		t.Errorf("channels of Asterisk before the stop = %q, want %q", got, want)
	}
	stopped := make(chan error, 2)
	for range 2 { // each call of Stop sends one SIGINT
		go func() { stopped <- r.stack.Stop() }()
		r.await(t, "the stack waits for the call", func() bool { return strings.Contains(r.log(t), awaited(limit)) })
	}
	r.await(t, "Asterisk has no call", func() bool { return strings.HasPrefix(r.channels(t), "0 active channels\n") })
	for range 2 {
		if err := <-stopped; err != nil {
			t.Errorf("stop the stack: %v", err)
		}
	}
}

func awaited(limit time.Duration) string {
	return fmt.Sprintf("waiting for live calls to end; a second signal hangs them up calls=1 limit=%v", limit)
}

func (r *recipe) log(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.stack.Home, "stack.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (r *recipe) await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := kit.Until(t.Context(), kit.HangTimeout, what, func() (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatalf("%v; channels of Asterisk: %s", err, r.channels(t))
	}
}

func (r *recipe) channels(t *testing.T) string {
	t.Helper()
	command := r.asterisk.Shell() + " -rx 'core show channels count'"
	out, err := exec.CommandContext(t.Context(), "bash", "-c", command).CombinedOutput()
	if err != nil {
		t.Errorf("count the channels of Asterisk: %v", err)
	}
	return string(out)
}

// addTrunks adds the trunks of the other pages about SIP trunks. A trunk with an invalid setting
// fails the test.
func (r *recipe) addTrunks(t *testing.T) {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(filepath.Dir(page), "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	admin := kit.NewClient(r.stack.Demo.AdminURL, r.stack.Demo.AdminToken)
	added := 0
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range jsonBlock.FindAllSubmatch(text, -1) {
			var trunk map[string]any
			if err := json.Unmarshal(block[1], &trunk); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			trunk["name"] = fmt.Sprintf("trunk %d", added)
			trunk["host"] = "127.0.0.1" // the dialer must not send requests to hosts outside this machine
			var made struct {
				ID string `json:"id"`
			}
			if err := admin.Into(t.Context(), "POST", "/admin/v1/trunks", trunk, http.StatusCreated, &made); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if err := admin.Into(t.Context(), "DELETE", "/admin/v1/trunks/"+made.ID, nil, http.StatusOK, nil); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			added++
		}
	}
	if added < len(pages) {
		t.Errorf("%d trunks in %d pages, want at least one in each page", added, len(pages))
	}
}

// setMediaAddress sets Asterisk's RTP address, which Asterisk cannot derive from a route on
// loopback.
func setMediaAddress(pjsip, asterisk string) string {
	media := "direct_media=no\nmedia_address=" + asterisk + "\nbind_rtp_to_media_address=yes\n"
	return strings.Replace(pjsip, "direct_media=no\n", media, 1)
}

// start starts the stack with the variables of the page's command, except the model's key.
func start(t *testing.T, command, ringfence string) *sharedstack.TestStack {
	t.Helper()
	variables, found := strings.CutSuffix(strings.TrimSpace(command), " REALTIME_KEY=<key of the model> make run")
	if !found {
		t.Fatalf("section 2 has another command: %q", command)
	}
	want := fmt.Sprintf("CARRIER=sip SIP_UDP_ADDR=%[1]s:5060 SIP_ADVERTISED_ADDR=%[1]s RTP_ADDR=%[1]s", ringfence)
	if diff := cmp.Diff(want, variables); diff != "" {
		t.Fatalf("variables of section 2 (-want +got):\n%s", diff)
	}
	system, err := sharedstack.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := system.End(!t.Failed()); err != nil {
			t.Errorf("end the stack: %v", err)
		}
	})
	// Asterisk sends the agent's audio back as the person's speech. The model must answer this speech,
	// because otherwise the model ends the call.
	model, err := system.Model([]map[string]any{{"heard": "…", "text": "Go on."}})
	if err != nil {
		t.Fatal(err)
	}
	env := append(strings.Fields(variables), "REALTIME_KEY=test", "REALTIME_URL="+model)
	// With a scale of 1, simulated calls take real time.
	env = append(env, "SIMULATOR_TIME_SCALE=1", "DRAIN_LIMIT="+drainLimit.String())
	if err := system.Start(env...); err != nil {
		t.Fatal(err)
	}
	// The demo workspace needs a higher rate limit, because awaitCall sends many requests.
	admin := kit.NewClient(system.Demo.AdminURL, system.Demo.AdminToken)
	limit := map[string]any{"rate_limit_per_minute": 6000}
	path := "/admin/v1/workspaces/" + system.Demo.WorkspaceID
	if err := admin.Into(t.Context(), "PATCH", path, limit, http.StatusOK, nil); err != nil {
		t.Fatal(err)
	}
	return system
}

// file returns the page's code block that begins with the given line.
func (r *recipe) file(t *testing.T, language, first string) string {
	t.Helper()
	_, rest, found := strings.Cut(r.text, "```"+language+"\n"+first)
	content, _, closed := strings.Cut(rest, "```\n")
	if !found {
		t.Fatalf("found = false, want true; page = %s; language = %s", page, language)
	}
	if !closed {
		t.Fatalf("closed = false, want true; page = %s; language = %s", page, language)
	}
	return first + content
}

var terminalCodes = regexp.MustCompile("\x1b\\[[0-9;]*m")

var jsonBlock = regexp.MustCompile("(?s)```json\n(.*?)```\n")

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```\n")

func (r *recipe) section(t *testing.T, heading string) string {
	t.Helper()
	_, rest, _ := strings.Cut(r.text, "\n"+heading)
	text, _, _ := strings.Cut(rest, "\n## ")
	var commands strings.Builder
	for _, block := range shellBlock.FindAllStringSubmatch(text, -1) {
		commands.WriteString(block[1])
	}
	if commands.Len() == 0 {
		t.Fatalf("%s has no commands in section %q", page, heading)
	}
	return commands.String()
}

// run executes commands of the page in r.dir, with links to the programs and to the folder of the
// stack.
func (r *recipe) run(t *testing.T, commands string) (output string) {
	t.Helper()
	for name, target := range map[string]string{"bin": r.stack.Bin, ".ringfence": r.stack.Home} {
		if err := os.Symlink(target, filepath.Join(r.dir, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	script := "asterisk() { " + r.asterisk.Shell() + ` "$@"; }` + "\n" + commands
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, commands, out)
	}
	r.commands += commands
	return string(out)
}

func (r *recipe) awaitCall(t *testing.T, want call) {
	t.Helper()
	client := kit.NewClient(r.stack.Demo.BaseURL, r.stack.Demo.ReadKey)
	var page kit.Page[call]
	err := kit.Until(context.WithoutCancel(t.Context()), kit.HangTimeout, "the call", func() (bool, error) {
		err := client.Into(t.Context(), "GET", "/v1/calls?limit=1", nil, http.StatusOK, &page)
		if err != nil || len(page.Data) == 0 || page.Data[0] == want {
			return len(page.Data) > 0, err
		}
		if status := page.Data[0].Status; status == "failed" {
			err = errors.New("the call failed")
		}
		return false, err
	})
	if err != nil {
		t.Logf("log of Asterisk:\n%s", r.asterisk.Output())
		t.Fatalf("%v (-want +got):\n%s", err, cmp.Diff([]call{want}, page.Data))
	}
}
