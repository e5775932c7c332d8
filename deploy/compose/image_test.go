package compose_test

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// recipe is how deploy/Dockerfile builds a program.
func recipe(t *testing.T) (flags string, env []string) {
	t.Helper()
	text := strings.Join(lines(t, "deploy/Dockerfile"), "\n")
	command := regexp.MustCompile(`go build (.*) -o /out/service "\$main"`).FindStringSubmatch(text)
	setting := regexp.MustCompile(`(?m)^ENV (CGO_ENABLED=\d)`).FindStringSubmatch(text)
	for _, part := range []string{"FROM --platform=$BUILDPLATFORM golang:", "ARG TARGETOS\nARG TARGETARCH\n", "GOOS=$TARGETOS GOARCH=$TARGETARCH go build "} {
		if !strings.Contains(text, part) {
			t.Errorf("deploy/Dockerfile does not say %q: an image would be the builder's, whatever platform was asked for", part)
		}
	}
	if command == nil || setting == nil {
		t.Fatal("deploy/Dockerfile builds in a way that this test does not read")
	}
	return command[1], []string{setting[1], "GOWORK=", "GOFLAGS=", "VERSION=1.2.3-test"}
}

// TestImage_BuildsTheSameInTwoFolders builds what goes into an image as deploy/Dockerfile does: the same bytes wherever it is built, static, and stamped with its version.
// `make reproducible` does it for all of them, and compiles everything twice.
func TestImage_BuildsTheSameInTwoFolders(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: nothing is compiled twice")
	}
	flags, env := recipe(t)
	mains, all := map[string]string{"simcarrier": "deploy/simcarrier"}, os.Getenv("RINGFENCE_REPRODUCE") == "all"
	if all {
		for _, name := range services {
			mains[name] = "services/" + name + "/cmd/" + name
		}
	}
	var digests [2]map[string][32]byte
	from := root
	for i := range digests {
		digests[i] = map[string][32]byte{}
		folder := filepath.Join(t.TempDir(), strings.Repeat("deeper/", i), "src")
		for _, part := range []string{"libs", "proto", "deploy", "services"} {
			if err := os.CopyFS(filepath.Join(folder, part), os.DirFS(filepath.Join(from, part))); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []string{"go.work", "go.work.sum"} { // an image is built in the workspace: that is what decides its versions
			if err := os.WriteFile(filepath.Join(folder, file), []byte(strings.Join(lines(t, file), "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		from = folder // somebody may be writing in the first
		own := slices.Clone(env)
		if all {
			own = append(own, "GOCACHE="+t.TempDir())
		}
		for name, main := range mains {
			out := filepath.Join(t.TempDir(), name)
			cmd := exec.Command("sh", "-c", "cd "+folder+" && go build "+flags+" -o "+out+" ./"+main)
			cmd.Env = append(os.Environ(), own...)
			if said, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", name, err, said)
			}
			binary, err := os.ReadFile(out)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(binary, []byte(folder)) {
				t.Errorf("%s names the folder that it was built in", name)
			}
			digests[i][name] = sha256.Sum256(binary)
			standsAlone(t, name, out, i == 0)
		}
	}
	for name := range mains {
		t.Logf("%s: sha256 %x", name, digests[0][name])
		if digests[0][name] != digests[1][name] {
			t.Errorf("%s: sha256 %x in one folder, %x in another", name, digests[0][name], digests[1][name])
		}
	}
}

// standsAlone: it needs no other file, knows its version, and tells what it is made of.
func standsAlone(t *testing.T, name, path string, first bool) {
	t.Helper()
	if runtime.GOOS == "linux" {
		binary, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = binary.Close() }()
		if slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			t.Errorf("%s is not static", name)
		}
	}
	if !first {
		return
	}
	if said, err := exec.Command(path, "--version").Output(); err != nil || !strings.HasPrefix(string(said), name+" 1.2.3-test go1.") {
		t.Errorf("%s --version: %q, %v", name, said, err)
	}
	said, err := exec.Command("go", "run", "ringfence.dev/deploy/tools/sbom", path, "1.2.3-test").Output()
	var bill struct {
		Format   string `json:"bomFormat"`
		Metadata struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, PURL string }
	}
	if err != nil || json.Unmarshal(said, &bill) != nil || bill.Format != "CycloneDX" || bill.Metadata.Component.Version != "1.2.3-test" || bill.Metadata.Component.Name != name {
		t.Errorf("the bill of materials of %s: %+v, %v", name, bill.Metadata, err)
	}
	for _, want := range []string{"std", "go.opentelemetry.io/otel"} {
		if !slices.ContainsFunc(bill.Components, func(c struct{ Name, PURL string }) bool {
			return c.Name == want && strings.HasPrefix(c.PURL, "pkg:golang/"+want+"@")
		}) {
			t.Errorf("the bill of materials of %s names no %s", name, want)
		}
	}
}
