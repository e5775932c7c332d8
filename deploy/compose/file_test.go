package compose_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var (
	// pinnedImage matches an image with a tag that names one release, and a digest.
	pinnedImage = regexp.MustCompile(
		`^[a-z0-9/-]+:(v?\d+\.\d+(\.\d+)?|RELEASE\.[0-9TZ-]+)@sha256:[0-9a-f]{64}$`)
	// portVariable matches the published port of a service: a variable and its default.
	portVariable = regexp.MustCompile(`^\$\{[A-Z]+_PORT:-(\d+)\}$`)
)

// composeFile contains the parts of docker-compose.yml that the tests read, with resolved anchors.
type composeFile struct {
	Services map[string]member
	Volumes  map[string]any
}

type member struct {
	Image   string
	Restart string
	Pull    string `yaml:"pull_policy"`
	// The security settings below must be the same as those of a pod.
	ReadOnly bool     `yaml:"read_only"`
	CapDrop  []string `yaml:"cap_drop"`
	Security []string `yaml:"security_opt"`
	Build    struct {
		Context, Dockerfile string
		Args                map[string]string
	}
	EnvFile     string `yaml:"env_file"`
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Command     []string
	Entrypoint  []string
	Healthcheck struct{ Test []string }
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
}

func composed(t *testing.T) composeFile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var c composeFile
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// publishes reports whether the service by default publishes the port under the same number on the
// host.
func (s member) publishes(port string) bool {
	return slices.ContainsFunc(s.Ports, func(published string) bool {
		hostPort, found := strings.CutSuffix(strings.TrimPrefix(published, "127.0.0.1:"), ":"+port)
		match := portVariable.FindStringSubmatch(hostPort)
		return found && match != nil && match[1] == port
	})
}

// The ports of `make run` are the defaults in cmd/ringfence-local/internal/stack/ports.go.
func TestComposeFile_PortsDoNotConflictWithMakeRun(t *testing.T) {
	t.Parallel()
	taken := regexp.MustCompile(`(?m)^\s+usual\w+ += (\d+)$`).
		FindAllStringSubmatch(goText(t, "cmd/ringfence-local/internal/stack"), -1)
	if got := len(taken); got != 3 {
		t.Fatalf("ports of make run = %d, want 3", got)
	}
	variables := map[string]string{}
	for name, s := range composed(t).Services {
		for _, published := range s.Ports {
			variable := published[strings.Index(published, ":")+1 : strings.LastIndex(published, ":")]
			match := portVariable.FindStringSubmatch(variable)
			if match == nil {
				t.Errorf("port %s of %s is not changeable by a variable", published, name)
				continue
			}
			if other, twice := variables[variable]; twice {
				t.Errorf("%s and %s publish %s", name, other, variable)
			}
			variables[variable] = name
			for _, port := range taken {
				if match[1] == port[1] {
					t.Errorf("port %s of %s is also the port of make run", match[1], name)
				}
			}
		}
	}
	if got := len(variables); got < 7 {
		t.Errorf("published ports = %d, want at least 7", got)
	}
}

func TestComposeFile_ServicesArePinnedAndRestricted(t *testing.T) {
	t.Parallel()
	c := composed(t)
	want := append([]string{"postgres", "kafka", "storage", "collector", "traces", "prometheus", "grafana", "simcarrier",
		"collector-health"}, withConsole...)
	if got := slices.Sorted(maps.Keys(c.Services)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("it runs %v, want %v", got, want)
	}
	for name, s := range c.Services {
		ours := name == "simcarrier" || slices.Contains(withConsole, name)
		if ours {
			wantEqual(t, name+": image", s.Image, "ringfence/"+name)
			wantEqual(t, name+": build argument SERVICE", s.Build.Args["SERVICE"], name)
			wantEqual(t, name+": build argument VERSION", s.Build.Args["VERSION"], "${VERSION:-devel}")
			wantEqual(t, name+": build argument REVISION", s.Build.Args["REVISION"], "${REVISION:-}")
			wantEqual(t, name+": env_file", s.EnvFile, "deploy/compose/"+name+".env")
			wantEqual(t, name+": read_only", s.ReadOnly, true)
			wantSlice(t, name+": cap_drop", s.CapDrop, []string{"ALL"})
			wantSlice(t, name+": security_opt", s.Security, []string{"no-new-privileges:true"})
			// without this policy Compose tries to pull the image from a registry
			wantEqual(t, name+": pull_policy", s.Pull, "build")
		}
		wantEqual(t, name+": restart", s.Restart, "unless-stopped")
		if !ours && !pinnedImage.MatchString(s.Image) {
			t.Errorf("%s: the image %q is not pinned by an exact tag and a digest", name, s.Image)
		}
		// the image of the collector has no program for a health check, so another container checks
		// it
		if s.Healthcheck.Test == nil && name != "collector" {
			t.Errorf("%s has no health check", name)
		}
		if ours {
			isThere(t, name, filepath.Join(s.Build.Context, s.Build.Dockerfile))
		}
		if s.EnvFile != "" {
			isThere(t, name, s.EnvFile)
		}
		for other, how := range s.DependsOn {
			if _, ok := c.Services[other]; !ok {
				t.Errorf("%s depends on %s, which is not in the file", name, other)
			}
			if how.Condition == "service_healthy" && c.Services[other].Healthcheck.Test == nil {
				t.Errorf("%s waits for the health of %s, which has no health check", name, other)
			}
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s opens %s to the network", name, port)
			}
		}
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if _, named := c.Volumes[source]; !named {
				isThere(t, name, source)
			}
		}
	}
}

// Each path must be on a mount of this repository or known to be in the image.
func TestComposeFile_PathsExist(t *testing.T) {
	t.Parallel()
	c, path := composed(t), regexp.MustCompile(`(?:^|[ =])(/[a-z][A-Za-z0-9._/-]*)`)
	inImage := map[string][]string{
		"minio/minio": {"/bin/sh"}, "jaegertracing/jaeger": {"/dev/null"},
	}
	seen := 0
	named := func(name, word string) {
		t.Helper()
		s := c.Services[name]
		for _, match := range path.FindAllStringSubmatch(word, -1) {
			seen++
			image, _, _ := strings.Cut(s.Image, ":")
			known := slices.Contains(inImage[image], match[1]) || strings.HasPrefix(image, "ringfence/") && match[1] == "/service"
			for _, volume := range s.Volumes {
				source, at, _ := strings.Cut(volume, ":")
				at, _, _ = strings.Cut(at, ":")
				if rest, below := strings.CutPrefix(match[1], at); below && (rest == "" || rest[0] == '/') {
					known = true
					if _, named := c.Volumes[source]; !named {
						isThere(t, name, filepath.Join(source, rest))
					}
				}
			}
			if !known {
				t.Errorf("%s: %s is on no mount and not known to be in %s", name, match[1], s.Image)
			}
		}
	}
	for name, s := range c.Services {
		for _, word := range slices.Concat(s.Entrypoint, s.Command, s.Healthcheck.Test) {
			named(name, word)
		}
		if s.EnvFile != "" {
			for variable, value := range fileOf(t, s.EnvFile) {
				if regexp.MustCompile(`_(DIRS?|LOG)$`).MatchString(variable) {
					named(name, value)
				}
			}
		}
	}
	var provided struct {
		Providers []struct{ Options struct{ Path string } }
	}
	parsed(t, "deploy/grafana/provisioning/dashboards/ringfence.yml", &provided)
	for _, provider := range provided.Providers {
		named("grafana", provider.Options.Path)
	}
	if seen < 10 {
		t.Errorf("only %d paths were found", seen)
	}
}

func TestComposeFile_UsesTheKafkaVersionOfTheTests(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^const version = "([0-9.]+)"$`).FindStringSubmatch(goText(t, "test/apachekafka"))
	if version == nil {
		t.Fatal("the version of Apache Kafka was not found")
	}
	image, _, _ := strings.Cut(composed(t).Services["kafka"].Image, "@")
	wantEqual(t, "image of kafka", image, "apache/kafka:"+version[1])
}

// The file with the latest signed hashes of the consent log must survive the container.
func TestComposeFile_ConsentKeyIsSetAndHeadsAreOnAVolume(t *testing.T) {
	t.Parallel()
	c, set := composed(t), env(t, "contacts-compliance")
	kept := slices.ContainsFunc(c.Services["contacts-compliance"].Volumes, func(volume string) bool {
		source, path, _ := strings.Cut(volume, ":")
		_, named := c.Volumes[source]
		return named && path == filepath.Dir(set["CONSENT_HEAD_LOG"])
	})
	if !kept {
		t.Errorf("CONSENT_HEAD_LOG = %q, want it on a named volume", set["CONSENT_HEAD_LOG"])
	}
	if set["CONSENT_KEYS"] == "" {
		t.Error("CONSENT_KEYS is empty")
	}
}

// The dialer writes recordings of live calls to a volume. The service `calls` signs links to the
// bucket to which the dialer uploads.
func TestComposeFile_RecordingsHaveAVolumeAndABucket(t *testing.T) {
	t.Parallel()
	c, dialer, calls := composed(t), env(t, "dialer"), env(t, "calls")
	_, path, _ := strings.Cut(c.Services["dialer"].Volumes[0], ":")
	if spool := dialer["RECORDINGS_SPOOL_DIR"]; !strings.HasPrefix(spool, path+"/") {
		t.Errorf("the dialer records in %q, which lies on no volume", spool)
	}
	for _, variable := range []string{"RECORDINGS_S3_URL", "RECORDINGS_S3_BUCKET", "RECORDINGS_S3_ACCESS_KEY", "RECORDINGS_S3_SECRET_KEY"} {
		if dialer[variable] == "" {
			t.Errorf("%s of the dialer is empty", variable)
		}
		wantEqual(t, variable+" of calls", calls[variable], dialer[variable])
	}
	storage := c.Services["storage"].Environment
	wantEqual(t, "MINIO_ROOT_PASSWORD", storage["MINIO_ROOT_PASSWORD"], dialer["RECORDINGS_S3_SECRET_KEY"])
	wantEqual(t, "MINIO_ROOT_USER", storage["MINIO_ROOT_USER"], dialer["RECORDINGS_S3_ACCESS_KEY"])
}

func isThere(t *testing.T, who, path string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, path)); err != nil {
		t.Errorf("%s needs %s: %v", who, path, err)
	}
}

func env(t *testing.T, name string) map[string]string {
	t.Helper()
	return fileOf(t, "deploy/compose/"+name+".env")
}

func fileOf(t *testing.T, path string) map[string]string {
	t.Helper()
	set := map[string]string{}
	for _, line := range lines(t, path) {
		if match := envLine.FindStringSubmatch(line); match != nil {
			set[match[1]] = match[2]
		}
	}
	return set
}

// Each address must belong to a service of the file. Each trusted public key must match the seed of
// the service that signs. A script of the repository must create each role.
func TestComposeFile_AddressesKeysAndRolesAgree(t *testing.T) {
	t.Parallel()
	c, roles := composed(t), strings.Join(lines(t, "deploy/compose/postgres.sql"), "\n")
	public := map[string]string{}
	for _, name := range services {
		seed, err := base64.StdEncoding.DecodeString(env(t, name)["SIGNING_KEY"])
		if err != nil {
			t.Fatalf("%s: SIGNING_KEY: %v", name, err)
		}
		if len(seed) != ed25519.SeedSize {
			t.Fatalf("%s: length of SIGNING_KEY = %d, want %d", name, len(seed), ed25519.SeedSize)
		}
		public[name] = base64.StdEncoding.EncodeToString(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
	}
	for _, name := range services {
		for variable, value := range env(t, name) {
			for part := range strings.SplitSeq(value, ",") {
				switch {
				case variable == "TRUSTED_KEYS":
					if asker, key, _ := strings.Cut(part, "="); key != public[asker] {
						t.Errorf("%s trusts another key than the key of %s", name, asker)
					}
				case strings.Contains(part, "://"):
					if start := strings.Index(part, "=http"); start >= 0 {
						part = part[start+1:]
					}
					place, err := url.Parse(part)
					if err != nil {
						t.Errorf("%s: %s: %v", name, variable, err)
						continue
					}
					// clients outside the containers use localhost and a published port
					if place.Hostname() == "localhost" {
						if !slices.ContainsFunc(
							slices.Collect(maps.Values(c.Services)),
							func(s member) bool { return s.publishes(place.Port()) },
						) {
							t.Errorf("%s: the port in %s is not published", name, variable)
						}
						continue
					}
					if _, ok := c.Services[place.Hostname()]; !ok {
						t.Errorf("%s: the host in %s is %s, want a service of the file", name, variable, place.Host)
					}
					schema, _ := strings.CutSuffix(strings.TrimSuffix(place.User.Username(), "_app"), "_owner")
					if place.Scheme == "postgres" && (schema != strings.ReplaceAll(name, "-", "_") || !strings.Contains(roles, "'"+schema+"'")) {
						t.Errorf("%s: %s connects as %s, which is not its role or is not created", name, variable, place.User.Username())
					}
				}
			}
		}
	}
}
