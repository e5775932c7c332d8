package e2e

import (
	"errors"
	"os"
	"testing"

	"ringfence.dev/deploy/e2e/rig"
)

// placesTheREADMEsCall runs what README.md has one type beside docker compose, at this stack's addresses.
func placesTheREADMEsCall(t *testing.T, s *rig.Stack) {
	t.Helper()
	said, err := rig.FirstCall(t.Context(), "../../README.md", s.Demo.BaseURL, s.Demo.AdminURL, s.Demo.AdminToken)
	if errors.Is(err, rig.ErrNoShell) && os.Getenv("CI") != "true" {
		t.Logf("SKIPPED: %v", err)
		return
	}
	if err != nil {
		t.Errorf("%v:\n%s", err, said)
	}
}
