package e2e

import (
	"errors"
	"os"
	"testing"

	"ringfence.dev/deploy/e2e/rig"
)

// placesTheDocumentedCall runs the first call of docs/deploy/compose.md at this stack's addresses.
func placesTheDocumentedCall(t *testing.T, s *rig.Stack) {
	t.Helper()
	output, err := rig.FirstCall(
		t.Context(), "../../docs/deploy/compose.md", s.Demo.BaseURL, s.Demo.AdminURL, s.Demo.AdminToken)
	if errors.Is(err, rig.ErrNoShell) && os.Getenv("CI") != "true" {
		t.Logf("SKIPPED: %v", err)
		return
	}
	if err != nil {
		t.Errorf("%v:\n%s", err, output)
	}
}
