package e2e

import (
	"errors"
	"os"
	"testing"

	"ringfence.dev/test/kit"
)

// placesTheDocumentedCall runs the commands of the first call in docs/deploy/compose.md with the
// addresses of this stack.
func placesTheDocumentedCall(t *testing.T, s *kit.Stack) {
	t.Helper()
	output, err := kit.FirstCall(t.Context(), root, s.Demo.BaseURL, s.Demo.AdminURL, s.Demo.AdminToken)
	if errors.Is(err, kit.ErrNoShell) && os.Getenv("CI") != "true" {
		t.Logf("SKIPPED: %v", err)
		return
	}
	if err != nil {
		t.Errorf("%v:\n%s", err, output)
	}
}
