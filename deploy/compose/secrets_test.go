package compose_test

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/trust"
)

// TestCharts_SecretsAreWhatTheChartsRead runs the script that makes them: each chart's keys are there, the roles have their passwords, the binaries take the keys, and every asker's public key
// is the one of its seed. With its values, and the nodes, all six render.
func TestCharts_SecretsAreWhatTheChartsRead(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("openssl"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("SKIPPED: helm/environments/secrets.sh needs openssl")
	}
	dir := filepath.Join(t.TempDir(), "made")
	script := func() ([]byte, error) {
		return exec.Command("sh", filepath.Join(root, "helm/environments/secrets.sh"), dir, "db.example.net", "pool.example.net:6543").CombinedOutput()
	}
	if said, err := script(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if said, err := script(); err == nil || !strings.Contains(string(said), "cannot be made twice") {
		t.Errorf("a second run: %v, %s", err, said)
	}
	passwords, err := os.ReadFile(filepath.Join(dir, "passwords.sql"))
	if err != nil {
		t.Fatal(err)
	}
	secrets, keys := secretsIn(t, filepath.Join(dir, "secrets.yaml")), map[string]*trust.Keys{}
	for _, name := range services {
		data, v := secrets[name], valuesOf(t, name)
		for _, key := range append(slices.Clone(v.Secret.Keys), "POSTGRES_MIGRATE_URL") {
			if data[key] == "" {
				t.Errorf("the Secret of %s has no %s", name, key)
			}
		}
		for variable, want := range map[string]struct{ host, role string }{
			"POSTGRES_URL": {"pool.example.net:6543", "_app"}, "POSTGRES_DIRECT_URL": {"db.example.net:5432", "_app"}, "POSTGRES_MIGRATE_URL": {"db.example.net:5432", "_owner"},
		} {
			at, err := url.Parse(data[variable])
			if err != nil {
				t.Fatalf("%s: %s: %v", name, variable, err)
			}
			password, _ := at.User.Password()
			role := strings.ReplaceAll(name, "-", "_") + want.role
			if at.Host != want.host || at.User.Username() != role || !strings.Contains(string(passwords), "ALTER ROLE "+role+" PASSWORD '"+password+"';\n") {
				t.Errorf("%s: %s=%s leads as %s to %s, want %s with the password of passwords.sql", name, variable, at.Redacted(), at.User.Username(), at.Host, role)
			}
		}
		if keys[name], err = trust.New(name, trust.Config{SigningKey: data["SIGNING_KEY"]}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if sealing, ok := data["SEALING_KEYS"]; ok {
			if _, err := seal.New(seal.Config{Keys: strings.Split(sealing, ",")}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	public := filepath.Join(dir, "values.yaml")
	rendered := manifests(t, "ringfence", "--values", public, "--set", "global.nodes={198.51.100.0/24}")
	var trusted map[string]struct{ Env map[string]string }
	text, err := os.ReadFile(public)
	if err != nil || yaml.Unmarshal(text, &trusted) != nil || len(rendered) == 0 {
		t.Fatal(err)
	}
	for _, name := range services {
		var want []string
		for _, asker := range valuesOf(t, name).Network.AskedBy {
			want = append(want, asker+"="+keys[asker].Public())
		}
		if got := trusted[name].Env["TRUSTED_KEYS"]; got != strings.Join(want, ",") {
			t.Errorf("%s trusts %q, want %q", name, got, want)
		}
	}
}

// secretsIn is every Secret of a file, by name.
func secretsIn(t *testing.T, path string) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]string{}
	documents := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var o struct {
			Kind       string
			Metadata   struct{ Name string }
			StringData map[string]string `yaml:"stringData"`
		}
		err := documents.Decode(&o)
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil || o.Kind != "Secret" {
			t.Fatalf("%s: %q, %v", path, o.Kind, err)
		}
		found[o.Metadata.Name] = o.StringData
	}
}
