package contract

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPages_CommandsRun runs the commands in the pages for customers and operators against the demo
// workspace. Each page must leave a calling policy that permits calls, because the next page places
// calls.
func TestPages_CommandsRun(t *testing.T) {
	for _, program := range []string{"curl", "jq", "openssl", "python3"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") != "true" {
			t.Skipf("the pages need %s", program)
		}
	}
	dir := checkout(t)
	for _, page := range []struct{ name, wantOutput string }{
		{name: "quick-start", wantOutput: `"status": "completed"`},
		{name: "place-a-call", wantOutput: "canceled"},
		{name: "webhooks", wantOutput: "received webhook.test"},
		{name: "errors-and-retries", wantOutput: "Idempotency-Replayed: true"},
		{name: "test-numbers", wantOutput: "callback_requested"},
		{name: "compliance", wantOutput: "opt_out_removed"},
		{name: "billing", wantOutput: "0 differences"},
		{name: "ai-agents", wantOutput: "openai_realtime"},
		{name: "media-stream-agents", wantOutput: "has_key"},
		{name: "recordings", wantOutput: "recording_not_available"},
		{name: "operate", wantOutput: "0 differences"},
		{name: "kafka", wantOutput: "dial-events.v1"},
	} {
		t.Run(page.name, func(t *testing.T) {
			text, err := os.ReadFile("../../../docs/" + page.name + ".md")
			if err != nil {
				t.Fatal(err)
			}
			shell := exec.CommandContext(t.Context(), "sh", "-euc", commandsOf(string(text)))
			shell.Dir, shell.Env = dir, append(os.Environ(), stack(t).Env...)
			output, err := shell.CombinedOutput()
			if err != nil {
				t.Fatalf("%v:\n%s", err, output)
			}
			if !strings.Contains(string(output), page.wantOutput) {
				t.Errorf("output does not contain %q:\n%s", page.wantOutput, output)
			}
		})
	}
}

// checkout returns a directory with the paths that the pages use.
func checkout(t *testing.T) string {
	t.Helper()
	w, dir := stack(t), t.TempDir()
	for name, path := range map[string]string{".ringfence": w.Home, "bin": w.Bin, "examples": "../../../examples"} {
		target, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var (
	shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")
	makeLine   = regexp.MustCompile(`(?m)^(\S+=\S+ )*make .*$`)
)

// commandsOf returns the shell blocks of a page as one script. It omits make, which would start the
// stack.
func commandsOf(page string) string {
	var script strings.Builder
	for _, block := range shellBlock.FindAllStringSubmatch(page, -1) {
		script.WriteString(makeLine.ReplaceAllString(block[1], ""))
	}
	return script.String()
}
