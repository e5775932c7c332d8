package containers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestImages_ContainOneProgramAndRunRestricted(t *testing.T) {
	needSandbox(t)
	buildImages(t)
	for _, service := range services {
		image := "ringfence/" + service
		for _, fault := range imageFaults(t.Context(), image) {
			t.Errorf("%s: %s", image, fault)
		}
	}
}

// Each planted defect must be found, so that the checks are known to work.
func TestImages_BrokenDockerfilesAreFound(t *testing.T) {
	needSandbox(t)
	dockerfile := readFile(t, "deploy/Dockerfile")
	for _, row := range []struct{ name, from, to, want string }{
		{
			name: "no certificate authorities", want: "/etc/ssl/certs/ca-certificates.crt is missing",
			from: "COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/\n",
		},
		{name: "root user", from: "USER 65532:65532", to: "USER root", want: `user = "root"`},
		{name: "a shell", from: "FROM scratch", to: "FROM standin/debian", want: "/bin/sh is in the image"},
		{name: "wrong program", from: `ENTRYPOINT ["/service"]`, to: `ENTRYPOINT ["/servant"]`, want: "run --version"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if !strings.Contains(dockerfile, row.from) {
				t.Fatalf("deploy/Dockerfile does not contain %q", row.from)
			}
			broken := filepath.Join(t.TempDir(), "Dockerfile")
			if err := os.WriteFile(broken, []byte(strings.Replace(dockerfile, row.from, row.to, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			buildImage(t, broken, "simcarrier", "ringfence/broken")
			faults := imageFaults(t.Context(), "ringfence/broken")
			if !slices.ContainsFunc(faults, func(fault string) bool { return strings.Contains(fault, row.want) }) {
				t.Errorf("faults = %q, want %q among them", faults, row.want)
			}
		})
	}
}

// buildImages builds the images of all services.
func buildImages(t *testing.T) {
	t.Helper()
	for _, service := range services {
		buildImage(t, "deploy/Dockerfile", service, "ringfence/"+service)
	}
}

func buildImage(t *testing.T, dockerfile, service, image string) {
	t.Helper()
	mustRun(t, "docker", "build", "-q", "-f", dockerfile, "-t", image,
		"--build-arg", "GO="+goVersion(t), "--build-arg", "SERVICE="+service,
		"--build-arg", "VERSION=1.2.3-test", "--build-arg", "REVISION=0123abc", ".")
}

// imageFaults returns the deviations of an image from what deploy/Dockerfile promises.
func imageFaults(ctx context.Context, image string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	out, err := run(ctx, "docker", "image", "inspect", "-f", "{{json .Config}}", image)
	if err != nil {
		return []string{err.Error()}
	}
	var config struct {
		User   string
		Labels map[string]string
	}
	if err := json.Unmarshal([]byte(out), &config); err != nil {
		return []string{err.Error()}
	}
	if config.User != "65532:65532" {
		fault("user = %q, want 65532:65532", config.User)
	}
	for label, want := range map[string]string{"version": "1.2.3-test", "revision": "0123abc", "licenses": "Apache-2.0"} {
		if got := config.Labels["org.opencontainers.image."+label]; got != want {
			fault("label %s = %q, want %q", label, got, want)
		}
	}
	files, err := run(ctx, "sh", "-c",
		"id=$(docker create --pull never "+image+") && docker export $id | tar -t; docker rm $id > /dev/null")
	if err != nil {
		fault("%v", err)
	}
	names := strings.Fields(files)
	for _, name := range []string{"etc/ssl/certs/ca-certificates.crt", "service", "sbom.cdx.json", "state/"} {
		if !slices.Contains(names, name) {
			fault("/%s is missing", name)
		}
	}
	for _, name := range []string{"bin/sh", "usr/bin/sh"} {
		if slices.Contains(names, name) {
			fault("/bin/sh is in the image")
		}
	}
	version, err := run(ctx, "docker", "run", "--rm", "--pull", "never", "--read-only", "--cap-drop", "ALL",
		"--network", "none", "--security-opt", "no-new-privileges", image, "--version")
	if err != nil {
		fault("run --version: %v", err)
	} else if !strings.Contains(version, " 1.2.3-test go1.") {
		fault("run --version: %q, want version 1.2.3-test", version)
	}
	return faults
}
