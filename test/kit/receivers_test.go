package kit

import (
	"errors"
	"os"
	"path"
	"strings"
	"testing"
)

const examples = "../../examples/receivers"

// TestWebhooksPage_ShowsTheVerifyFunctions compares the code in docs/webhooks.md with the source
// files of the code.
func TestWebhooksPage_ShowsTheVerifyFunctions(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range []struct{ file, begins string }{
		{file: "go/webhook/verify.go", begins: "func Verify("},
		{file: "typescript/verify.ts", begins: "export function verify("},
		{file: "python/verify.py", begins: "def verify("},
	} {
		code, err := os.ReadFile(path.Join(examples, check.file))
		if err != nil {
			t.Fatal(err)
		}
		_, function, found := strings.Cut(string(code), check.begins)
		if !found {
			t.Fatalf("%s does not contain %q", check.file, check.begins)
		}
		if !strings.Contains(string(page), check.begins+function) {
			t.Errorf("docs/webhooks.md does not show %s… of %s", check.begins, check.file)
		}
	}
}

func TestReceivers_PassTestVectorsAndRefuseShortSecrets(t *testing.T) {
	t.Parallel()
	for _, language := range ReceiverLanguages() {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			example, err := PrepareReceiver(t.Context(), language, examples, t.TempDir())
			if errors.Is(err, ErrNoRuntime) && os.Getenv("CI") != "true" {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if example.Check != nil {
				if err := runQuiet(example.Command(t.Context(), example.Check)); err != nil {
					t.Error(err)
				}
			}
			err = runQuiet(example.Command(t.Context(), example.Receive, "WEBHOOK_SECRET=c2VjcmV0"))
			if err == nil {
				t.Fatal("receiver started with a truncated secret, want an error")
			}
			if want := "whsec_ included"; !strings.Contains(err.Error(), want) {
				t.Errorf("error = %v, want it to contain %q", err, want)
			}
		})
	}
}
