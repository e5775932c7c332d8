package e2e

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

const root = "../.."

// TestSIP_CommandsInRunbooksAndTrunkDocsSucceed runs the commands in docs/runbooks and
// docs/sip-trunks on a stack with a SIP trunk to sipp.
func TestSIP_CommandsInRunbooksAndTrunkDocsSucceed(t *testing.T) {
	for _, program := range []string{"curl", "openssl", "psql", "pg_isready"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") != "true" {
			t.Skipf("the pages need %s", program)
		}
	}
	blocks, err := kit.PageBlocks(root, kit.OperatorTest)
	if err != nil {
		t.Fatal(err)
	}
	far := sippFarm(t, kit.Script(`([0-9][0-9])`, []string{"number"},
		kit.When(1, "number", []int{0, 99}, kit.Respond("180 Ringing")+kit.Answer()+kit.HangUp(100, 500)), kit.Over()))
	s, w, hooks := overSIP(t, []*kit.Sipp{far})
	r := readerOf(t, s, w, hooks)
	for _, b := range blocks {
		t.Run(b.String(), func(t *testing.T) {
			r.writeTrunk(t, b, far.Port)
			r.run(t, b.Text)
			if strings.Contains(b.Text, "accept-intents") {
				restartDialer(t, s)
			}
			if strings.Contains(b.Text, "trunks change") {
				restoreTrunk(t, s)
			}
		})
	}
}

// restartDialer kills the dialer and waits for the new process.
func restartDialer(t *testing.T, s *kit.Stack) {
	t.Helper()
	if !s.KillOne("dialer", 0) {
		t.Fatal("no dialer runs")
	}
	until(t, "the dialer handles requests", func() bool {
		_, err := s.RunCLI(t.Context(), "", "trunks", "check", "farm 0")
		return err == nil
	})
}

// restoreTrunk undoes commands that changed the host of the trunk or disabled it, because a dialer
// does not record the messages of a disabled trunk.
func restoreTrunk(t *testing.T, s *kit.Stack) {
	t.Helper()
	if _, err := s.RunCLI(t.Context(), "", "trunks", "change", "farm 0", "--set", "status=active",
		"--set", "host=127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	until(t, "the dialer uses the trunk", func() bool {
		output, err := s.RunCLI(t.Context(), "", "-o", "json", "trunks", "show", "farm 0")
		var trunk struct{ Replicas []json.RawMessage }
		return err == nil && json.Unmarshal([]byte(output), &trunk) == nil && len(trunk.Replicas) > 0
	})
}

// pageReader is a shell with the variables of docs/runbooks/README.md.
type pageReader struct {
	dir string
	env []string
	// placeholders contains the values of the words in capitals that a reader replaces.
	placeholders map[string]string
}

// readerOf places one call and returns a pageReader whose variables and placeholders name the
// workspace, the subscription, the trunk and the request of this call.
func readerOf(t *testing.T, s *kit.Stack, w *kit.Workspace, hooks *kit.Receiver) *pageReader {
	t.Helper()
	r := &pageReader{dir: t.TempDir()}
	private, err := s.PrivateAddresses("dialer")
	if err != nil {
		t.Fatal(err)
	}
	req, err := w.Place(t.Context(), map[string]any{"to": number(100)})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the call's events", func() bool { return slices.Contains(types(hooks, "/"+w.ID), "call.completed") })
	var subscriptions kit.Page[struct{ ID string }]
	if err := w.API.Into(t.Context(), "GET", "/v1/webhook-subscriptions", nil, 200, &subscriptions); err != nil {
		t.Fatal(err)
	}
	later, err := w.Place(t.Context(), map[string]any{"to": number(101), "scheduled_for": time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	db, err := s.SuperuserURL()
	if err != nil {
		t.Fatal(err)
	}
	outside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(outside.Close)
	r.env = append(s.Environ(), "PATH="+r.fakePrograms(t)+":"+binaries(t)+":"+os.Getenv("PATH"),
		"RINGFENCE_WORKSPACE="+w.ID, "W="+w.ID, "S="+subscriptions.Data[0].ID, "KEY="+w.WriteKey,
		"BASE="+s.Demo.BaseURL, "PRIVATE=http://"+private[0], "AGENT="+w.AgentID, "REQUEST="+later.ID,
		"DB="+db, "KAFKA=localhost:9092", "SUMMARY_URL="+outside.URL, "SUMMARY_KEY=key")
	r.placeholders = map[string]string{
		"TRUNK": "'farm 0'", "AGENT": w.AgentID, "REQUEST": req.ID, "ID": req.ID,
		"https://api.openai.com": outside.URL,
	}
	r.write(t, "credentials.json", `{"username":"ringfence","password":"changed"}`)
	r.run(t, `openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=sip.example.net -keyout sip.key -out sip.crt`)
	var attempts []struct {
		CallID string `json:"sip_call_id"`
	}
	if err := json.Unmarshal(r.run(t, "ringfence -o json calls attempts ID"), &attempts); err != nil {
		t.Fatal(err)
	}
	r.placeholders["CALL-ID"] = attempts[0].CallID
	return r
}

// fakePrograms returns a folder with programs that do nothing. deploy/compose checks the arguments
// of kubectl, docker and helm. test/apachekafka runs the tools of Kafka.
func (r *pageReader) fakePrograms(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(r.dir, "programs")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{
		"kubectl", "docker", "helm", "ssh", "kafka-topics.sh", "kafka-configs.sh", "kafka-consumer-groups.sh",
	} {
		r.write(t, filepath.Join("programs", program), "#!/bin/sh\n")
	}
	return folder
}

func (r *pageReader) write(t *testing.T, name, text string) {
	t.Helper()
	//nolint:gosec // some of the files are programs
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// shellFunctions replace commands of the pages. curl fails for status 400 and above. grep does not
// fail if no line matches. psql ignores that the placeholders SLOT and GID do not exist.
const shellFunctions = `
curl() { command curl --fail-with-body "$@"; }
logs() { cat "$RINGFENCE_HOME/stack.log"; }
grep() { command grep "$@" || [ $? -eq 1 ]; }
psql() {
	command psql -v ON_ERROR_STOP=1 "$@" 2> psql.err || command grep -E '"(SLOT|GID)" does not exist' psql.err ||
		{ cat psql.err >&2; return 1; }
}
`

// run runs the script with the shellFunctions.
func (r *pageReader) run(t *testing.T, script string) (stdout []byte) {
	t.Helper()
	for word, value := range r.placeholders {
		script = regexp.MustCompile(`(\s)`+word+`\b`).ReplaceAllString(script, "${1}"+value)
	}
	script = strings.ReplaceAll(script, "(PID)", "(0)")
	shell := exec.CommandContext(t.Context(), "sh", "-euc", shellFunctions+script)
	var stderr strings.Builder
	shell.Dir, shell.Env, shell.Stderr = r.dir, r.env, &stderr
	stdout, err := shell.Output()
	if err != nil {
		t.Fatalf("%v: %s\n%s%s", err, script, stdout, stderr.String())
	}
	return stdout
}

var jsonBlock = regexp.MustCompile("(?s)```json\n(.*?)```")

// writeTrunk writes trunk.json with the last JSON block of the page before the commands, and with
// the address of sipp.
func (r *pageReader) writeTrunk(t *testing.T, b kit.PageBlock, port int) {
	t.Helper()
	if !strings.Contains(b.Text, "trunk.json") {
		return
	}
	text, err := os.ReadFile(filepath.Join(root, b.Page))
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), b.Text)
	found := jsonBlock.FindAllStringSubmatch(before, -1)
	if len(found) == 0 {
		t.Fatal("the page does not show trunk.json")
	}
	var trunk map[string]any
	if err := json.Unmarshal([]byte(found[len(found)-1][1]), &trunk); err != nil {
		t.Fatal(err)
	}
	trunk["host"], trunk["port"] = "127.0.0.1", port
	content, err := json.Marshal(trunk)
	if err != nil {
		t.Fatal(err)
	}
	r.write(t, "trunk.json", string(content))
}
