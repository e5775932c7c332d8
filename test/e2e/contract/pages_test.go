package contract

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ringfence.dev/test/kit"
)

const root = "../../.."

// TestDocumentation_CommandsForCustomersAndOperatorsSucceed runs the commands of the pages on the
// demo workspace. Each page must restore a calling policy that permits calls, because the next page
// places calls.
func TestDocumentation_CommandsForCustomersAndOperatorsSucceed(t *testing.T) {
	for _, program := range []string{"curl", "jq", "openssl", "python3"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") != "true" {
			t.Skipf("the pages need %s", program)
		}
	}
	blocks, err := kit.PageBlocks(root, kit.DemoTest)
	if err != nil {
		t.Fatal(err)
	}
	dir, left := checkout(t), map[string][]kit.PageBlock{}
	for _, b := range blocks {
		left[b.Page] = append(left[b.Page], b)
	}
	for _, page := range []struct{ name, wantOutput string }{
		{name: "README.md", wantOutput: `"external_ref":"order-1042"`},
		{name: "docs/quick-start.md", wantOutput: `"status": "completed"`},
		{name: "docs/place-a-call.md", wantOutput: "canceled"},
		{name: "docs/errors-and-retries.md", wantOutput: "Idempotency-Replayed: true"},
		{name: "docs/test-numbers.md", wantOutput: "callback_requested"},
		{name: "docs/compliance.md", wantOutput: "opt_out_removed"},
		{name: "docs/billing.md", wantOutput: "0 differences"},
		{name: "docs/ai-agents.md", wantOutput: "openai_realtime"},
		{name: "docs/media-stream-agents.md", wantOutput: "has_key"},
		{name: "docs/recordings.md", wantOutput: "recording_not_available"},
		{name: "docs/operate.md", wantOutput: "0 differences"},
		{name: "docs/kafka.md", wantOutput: "dial-events.v1"},
		{name: "cmd/simcarrier/README.md", wantOutput: `"hang"`},
	} {
		t.Run(page.name, func(t *testing.T) {
			shell := exec.CommandContext(t.Context(), "sh", "-euc", kit.PageScript(left[page.name]))
			shell.Dir, shell.Env = dir, append(os.Environ(), stack(t).Env...)
			output, err := shell.CombinedOutput()
			if err != nil {
				t.Fatalf("%v:\n%s", err, output)
			}
			if !strings.Contains(string(output), page.wantOutput) {
				t.Errorf("output does not contain %q:\n%s", page.wantOutput, output)
			}
		})
		delete(left, page.name)
	}
	// the page of the simulated carrier adds a fault, which would apply to the calls of other tests
	carrier := kit.NewClient(stack(t).Demo.SimURL, "")
	if err := carrier.Into(t.Context(), "DELETE", "/faults", nil, http.StatusNoContent, nil); err != nil {
		t.Error(err)
	}
	for page := range left {
		t.Errorf("the commands of %s did not run: add the page to the table", page)
	}
}

// checkout returns a directory with the paths that the pages use.
func checkout(t *testing.T) string {
	t.Helper()
	w, dir := stack(t), t.TempDir()
	links := map[string]string{".ringfence": w.Home, "bin": w.Bin, "examples": filepath.Join(root, "examples")}
	for name, path := range links {
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
