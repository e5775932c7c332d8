package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"ringfence.dev/deploy/e2e/rig"
)

// placesTheREADMEsCall runs what README.md has one type beside docker compose, at this stack's addresses.
func placesTheREADMEsCall(t *testing.T, s *rig.Stack) {
	t.Helper()
	for _, program := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil && os.Getenv("CI") != "true" {
			t.Logf("SKIPPED: the first call of README.md needs %s", program)
			return
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(readme), "### On docker compose\n")
	_, block, opened := strings.Cut(section, "```sh\ndocker compose up --wait\n")
	block, _, closed := strings.Cut(block, "```\n")
	if !found || !opened || !closed {
		t.Fatal("README.md has no first call on docker compose")
	}
	for from, to := range map[string]string{"http://localhost:8081": s.Demo.AdminURL, "http://localhost:8080": s.Demo.BaseURL, "example-operator-token": s.Demo.AdminToken} {
		if !strings.Contains(block, from) {
			t.Errorf("README.md's first call does not name %s", from)
		}
		block = strings.ReplaceAll(block, from, to)
	}
	asks := "ask $key $url/v1/call-requests\n"
	if !strings.HasSuffix(block, asks) {
		t.Fatalf("README.md's first call does not end with %s", asks)
	}
	var said []byte
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", block+`for i in $(seq 100); do `+strings.TrimSpace(asks)+` | jq -r '.data[0].status' | grep -x completed && exit; sleep 0.2; done; exit 1`)
	began := time.Now()
	if said, err = cmd.CombinedOutput(); err != nil || !strings.Contains(string(said), `"status":"queued"`) {
		t.Errorf("after %s: %v:\n%s", time.Since(began), err, said)
	}
}
