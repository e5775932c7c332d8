// Package containers_test builds the images and runs docker-compose.yml on Docker Engine, in a
// sandbox (sandbox.sh). Stand-ins take the place of the images of other projects (images.sh).
package containers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	root = "../.."
	// moduleAddr is the address at which the test serves Go modules in the sandbox. The stand-in for
	// the image golang has a GOPROXY with the same port (images.sh).
	moduleAddr = "0.0.0.0:8999"
)

var services = []string{
	"gateway", "calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher", "simcarrier",
	"console",
}

// bin is the folder of the built programs. It is empty outside of the sandbox.
var bin = os.Getenv("RINGFENCE_BIN")

func TestMain(m *testing.M) {
	if os.Getenv("SANDBOX") != "" {
		if err := prepare(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// prepare serves the module cache of this machine to the builds, because the sandbox has no
// network. It builds the stand-ins.
func prepare() error {
	listener, err := net.Listen("tcp", moduleAddr)
	if err != nil {
		return err
	}
	modules := http.FileServer(http.Dir(filepath.Join(os.Getenv("MODULES"), "cache/download")))
	go func() { _ = http.Serve(listener, modules) }() //nolint:gosec // only builds in the sandbox use it
	plugins := filepath.Join(bin, "containers/client/cli-plugins")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		return err
	}
	plugin := filepath.Join(plugins, "docker-compose")
	program := filepath.Join(bin, "tools/docker-compose")
	if err := errors.Join(os.RemoveAll(plugin), os.Symlink(program, plugin)); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"DOCKER_CONFIG": filepath.Dir(plugins), "DOCKER_BUILDKIT": "1",
		"COMPOSE_PARALLEL_LIMIT": "1", "COMPOSE_BAKE": "false", "VERSION": "1.2.3-test", "REVISION": "0123abc",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	_, err = run(context.Background(), "test/containers/images.sh", "build", filepath.Join(bin, "containers"),
		filepath.Join(bin, "tools/standins"), filepath.Join(bin, "apachekafka"))
	return err
}

func needSandbox(t *testing.T) {
	t.Helper()
	if os.Getenv("SANDBOX") == "" {
		t.Skip("no container engine: `make test-containers` starts one and runs this")
	}
}

// run runs a program in the root of the repository and returns its output.
func run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = root
	var out, faults bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &faults
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w:\n%s%s",
			program, strings.Join(args, " "), err, out.String(), faults.String())
	}
	return out.String(), nil
}

func mustRun(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := run(t.Context(), program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// goVersion returns the tag of the image golang in deploy/Dockerfile.
func goVersion(t *testing.T) string {
	t.Helper()
	match := regexp.MustCompile(`(?m)^ARG GO=([0-9.]+)@`).FindStringSubmatch(readFile(t, "deploy/Dockerfile"))
	if match == nil {
		t.Fatal("deploy/Dockerfile has no ARG GO")
	}
	return match[1]
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// composeOverride writes a file for `docker compose` that replaces the pinned images by their
// stand-ins, leaves out Grafana, and lets the dispatcher send webhooks to the receiver of the test.
func composeOverride(t *testing.T, receiverCA string) string {
	t.Helper()
	var file struct {
		Services map[string]struct{ Image string }
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "docker-compose.yml")), &file); err != nil {
		t.Fatal(err)
	}
	changes := map[string]map[string]any{}
	for name, s := range file.Services {
		if slices.Contains(services, name) {
			changes[name] = map[string]any{"build": map[string]any{"args": map[string]string{"GO": goVersion(t)}}}
			continue
		}
		image, _, _ := strings.Cut(s.Image, "@")
		changes[name] = map[string]any{"image": image, "pull_policy": "never"}
	}
	changes["grafana"]["profiles"] = []string{"not-available"}
	dispatcher := changes["webhook-dispatcher"]
	dispatcher["extra_hosts"] = []string{receiverHost + ":" + sandboxAddr}
	dispatcher["environment"] = map[string]string{
		"WEBHOOK_ALLOW_NETWORKS": "172.16.0.0/12", "WEBHOOK_EXTRA_CA_FILE": "/receiver-ca.pem",
	}
	dispatcher["volumes"] = []string{receiverCA + ":/receiver-ca.pem:ro"}
	changes["dialer"]["networks"] = map[string]any{"default": map[string]string{"ipv4_address": dialerAddr}}
	subnet := map[string]any{"ipam": map[string]any{"config": []map[string]string{{"subnet": composeNet}}}}
	return composeFile(t, map[string]any{"services": changes, "networks": map[string]any{"default": subnet}})
}

// composeFile writes a further file for `docker compose`.
func composeFile(t *testing.T, content any) (path string) {
	t.Helper()
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "override.yml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
