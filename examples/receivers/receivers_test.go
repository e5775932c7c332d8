package receivers

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestWebhooksPage_ShowsTheVerifyFunctions compares the code in docs/webhooks.md with the files that it comes from.
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
		code, err := os.ReadFile(check.file)
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

func TestExamples_HoldTheVectorsAndRefuseHalfASecret(t *testing.T) {
	t.Parallel()
	for _, language := range Languages() {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			example, err := Prepare(t.Context(), language, ".", t.TempDir())
			if errors.Is(err, ErrMissing) && os.Getenv("CI") != "true" {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if example.Check != nil {
				if err := succeed(example.Command(t.Context(), example.Check)); err != nil {
					t.Error(err)
				}
			}
			err = succeed(example.Command(t.Context(), example.Receive, "WEBHOOK_SECRET=c2VjcmV0"))
			if err == nil {
				t.Fatal("the receiver started with half a secret, want a refusal")
			}
			if want := "whsec_ included"; !strings.Contains(err.Error(), want) {
				t.Errorf("refusal = %v, want it to contain %q", err, want)
			}
		})
	}
}
