package compose_test

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"go/version"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

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
	if command == nil {
		t.Fatal("deploy/Dockerfile builds in a way that this test does not read: command = nil, want a value")
	}
	if setting == nil {
		t.Fatal("deploy/Dockerfile builds in a way that this test does not read: setting = nil, want a value")
	}
	return command[1], []string{setting[1], "GOWORK=", "GOFLAGS=", "VERSION=1.2.3-test"}
}

func programs() map[string]string {
	mains := map[string]string{"simcarrier": "./cmd/simcarrier"}
	for _, name := range withConsole {
		mains[name] = "./services/" + name + "/cmd/" + name
	}
	return mains
}

func TestImage_ContainsOneProgram(t *testing.T) {
	t.Parallel()
	text := strings.Join(lines(t, "deploy/Dockerfile"), "\n")
	build, last, found := strings.Cut(text, "\nFROM scratch\n")
	if !found {
		t.Fatal("the last stage is not FROM scratch")
	}
	wantNotContains(t, "last stage", last, "\nRUN ")
	wantNotContains(t, "last stage", last, "\nADD ")
	wantContains(t, "last stage", last, `ENTRYPOINT ["/service"]`)
	users := regexp.MustCompile(`(?m)^USER .*$`).FindAllString(last, -1)
	// the image must use the same user as the charts
	wantSlice(t, "users of the last stage", users, []string{"USER 65532:65532"})
	for _, line := range regexp.MustCompile(`(?m)^COPY .*`).FindAllString(last, -1) {
		if !regexp.MustCompile(`^COPY --from=build (--chown=65532:65532 )?(/out/\S+|/etc/ssl/certs/ca-certificates\.crt) /\S+$`).MatchString(line) {
			t.Errorf("the last stage has %q", line)
		}
	}
	for name, main := range programs() {
		if !strings.Contains(build, name+") main="+main+" ;;") && !strings.Contains(build, `main="`+strings.ReplaceAll(main, name, "$SERVICE")+`"`) {
			t.Errorf("the first stage does not build %s from %s", name, main)
		}
	}
	with := regexp.MustCompile(`(?m)^ARG GO=([0-9.]+)@sha256:[0-9a-f]{64}$`).FindStringSubmatch(build)
	needs := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(strings.Join(lines(t, "go.work"), "\n"))
	if with == nil {
		t.Fatal("deploy/Dockerfile has no ARG GO with a digest")
	}
	if needs == nil {
		t.Fatal("go.work has no version of Go")
	}
	if version.Compare("go"+with[1], "go"+needs[1]) < 0 {
		t.Errorf("Go of deploy/Dockerfile = %s, want at least %s of go.work", with[1], needs[1])
	}
}

// Each build has an empty build cache. `make test-nightly` runs this test.
func TestImage_BuildsAreIdenticalInTwoFolders(t *testing.T) {
	t.Parallel()
	flags, env := recipe(t)
	var digests [2]map[string][32]byte
	from, built := root, ""
	for i := range digests {
		folder := filepath.Join(t.TempDir(), strings.Repeat("deeper/", i), "src")
		for _, part := range []string{"cmd", "docs", "libs", "proto", "services"} {
			if err := os.CopyFS(filepath.Join(folder, part), os.DirFS(filepath.Join(from, part))); err != nil {
				t.Fatal(err)
			}
		}
		// The images are built in the Go workspace, whose files determine the versions of the
		// dependencies.
		for _, file := range []string{"go.mod", "go.sum", "go.work", "go.work.sum"} {
			if err := os.WriteFile(filepath.Join(folder, file), []byte(strings.Join(lines(t, file), "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// the second copy is made from the first copy, because another process could change the
		// repository
		from = folder
		own := append(slices.Clone(env), "GOCACHE="+t.TempDir())
		built = t.TempDir()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "cd "+folder+" && go build "+flags+" -o "+built+"/ "+strings.Join(slices.Sorted(maps.Values(programs())), " "))
		cmd.Env = append(os.Environ(), own...)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		digests[i] = map[string][32]byte{}
		for name := range programs() {
			binary, err := os.ReadFile(filepath.Join(built, name))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(binary, []byte(folder)) {
				t.Errorf("%s names the folder that it was built in", name)
			}
			digests[i][name] = sha256.Sum256(binary)
		}
	}
	for name := range programs() {
		t.Logf("%s: sha256 %x", name, digests[0][name])
		if digests[0][name] != digests[1][name] {
			t.Errorf("%s: sha256 %x in one folder, %x in another", name, digests[0][name], digests[1][name])
		}
		standsAlone(t, name, filepath.Join(built, name))
	}
}

// The images exist for arm64 too, and people run the local stack on macOS. With a warm build cache
// the test takes half a minute of CPU time.
func TestImage_ProgramsCompileForOtherPlatforms(t *testing.T) {
	t.Parallel()
	flags, env := recipe(t)
	mains := strings.Join(slices.Sorted(maps.Values(programs())), " ")
	for _, row := range []struct{ system, machine, mains string }{
		{system: "linux", machine: "arm64", mains: mains},
		{system: "darwin", machine: "arm64", mains: mains + " ./cmd/ringfence ./cmd/ringfence-local"},
	} {
		built := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", "go build "+flags+" -o "+built+"/ "+row.mains)
		cmd.Dir, cmd.Env = root, slices.Concat(os.Environ(), env, []string{"GOOS=" + row.system, "GOARCH=" + row.machine})
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s/%s: %v: %s", row.system, row.machine, err, out)
		}
		files, err := os.ReadDir(built)
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "programs for "+row.system, len(files), len(strings.Fields(row.mains)))
		if row.system != "linux" {
			continue
		}
		for _, file := range files {
			program, err := elf.Open(filepath.Join(built, file.Name()))
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, "machine of "+file.Name(), program.Machine, elf.EM_AARCH64)
			if err := program.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func standsAlone(t *testing.T, name, path string) {
	t.Helper()
	if runtime.GOOS == "linux" {
		binary, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = binary.Close() }()
		for _, header := range binary.Progs {
			switch header.Type {
			case elf.PT_INTERP, elf.PT_DYNAMIC:
				t.Errorf("program header of %s = %v, want a static binary", name, header.Type)
			}
		}
		if binary.Section(".dynamic") != nil {
			t.Errorf("%s has the section .dynamic, want a static program", name)
		}
	}
	out, err := exec.CommandContext(t.Context(), path, "--version").Output()
	if err != nil {
		t.Errorf("%s --version: %v", name, err)
	}
	wantContains(t, name+" --version", string(out), name+" 1.2.3-test go1.")
}
