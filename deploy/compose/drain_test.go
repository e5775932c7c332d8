package compose_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// After DRAIN_LIMIT the dialer needs 30 s to hang up and to store the ends of the calls.
func TestComposeFile_DialerHangsUpBeforeItIsKilled(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatalf("read docker-compose.yml: %v", err)
	}
	var file struct {
		Services map[string]struct {
			Grace string `yaml:"stop_grace_period"`
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatalf("parse docker-compose.yml: %v", err)
	}
	grace, err := time.ParseDuration(file.Services["dialer"].Grace)
	if err != nil {
		t.Fatalf("parse stop_grace_period of the dialer: %v", err)
	}
	env, err := os.ReadFile(filepath.Join(root, "deploy/compose/dialer.env"))
	if err != nil {
		t.Fatalf("read dialer.env: %v", err)
	}
	setting := regexp.MustCompile(`(?m)^DRAIN_LIMIT=(\S+)$`).FindSubmatch(env)
	if setting == nil {
		t.Fatal("DRAIN_LIMIT in dialer.env = none, want a duration")
	}
	drain, err := time.ParseDuration(string(setting[1]))
	if err != nil {
		t.Fatalf("parse DRAIN_LIMIT: %v", err)
	}
	if want := drain + 30*time.Second; grace < want {
		t.Errorf("stop_grace_period of the dialer = %v, want at least %v", grace, want)
	}
}
