package compose_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.yaml.in/yaml/v3"

	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/serviceauth"
)

func secretsScript(t *testing.T, dir string, env ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("SKIPPED: helm/environments/secrets.sh needs openssl")
	}
	script := exec.Command("sh", filepath.Join(root, "helm/environments/secrets.sh"), dir, "db.example.net",
		"pool.example.net:6543")
	script.Env = append(os.Environ(), env...)
	out, err := script.CombinedOutput()
	return string(out), err
}

func authority(t *testing.T) (path string, text []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of Postgres"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	path, text = filepath.Join(t.TempDir(), "ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, text
}

// With each database URL of secrets.sh, pgx must verify the server's name and certificate
// authority. The charts must mount the authority's file for the service and for the service's
// migration.
func TestCharts_SecretsVerifyPostgres(t *testing.T) {
	t.Parallel()
	ca, text := authority(t)
	for _, row := range []struct {
		name, rootCert string
		wantFile       bool
	}{
		{name: "certificate authority of the operator", rootCert: ca, wantFile: true},
		{name: "public certificate authority", rootCert: "system"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "made")
			if out, err := secretsScript(t, dir, "PGSSLROOTCERT="+row.rootCert); err != nil {
				t.Fatalf("secrets.sh: %v: %s", err, out)
			}
			file := filepath.Join(dir, "secrets.yaml")
			secrets := secretsIn(t, file)
			for _, name := range services {
				for _, variable := range []string{"POSTGRES_URL", "POSTGRES_DIRECT_URL", "POSTGRES_MIGRATE_URL"} {
					url := strings.ReplaceAll(secrets[name][variable], "/etc/ringfence/postgres-ca.pem", ca)
					wantVerifiedTLS(t, name+": "+variable, url)
				}
			}
			if got := secrets["certificates"]["postgres-ca.pem"] == string(text); got != row.wantFile {
				t.Errorf("authority in the Secret certificates = %v, want %v", got, row.wantFile)
			}
			wantMounts := 0
			if row.wantFile {
				wantMounts = 2 * len(services) // one for each service, and one for its migration
			}
			rendered := manifests(t, "ringfence", "--values", filepath.Join(dir, "values.yaml"),
				"--set", "global.registry="+registry, "--set", "global.nodes={198.51.100.0/24}")
			created, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			validate(t, created)
			const mount = "{name: files, mountPath: /etc/ringfence, readOnly: true}"
			if got := strings.Count(string(rendered), mount); got != wantMounts {
				t.Errorf("mounts of /etc/ringfence = %d, want %d", got, wantMounts)
			}
		})
	}
}

// wantVerifiedTLS checks that pgx verifies the server's certificate and name with the URL, without
// a fallback.
func wantVerifiedTLS(t *testing.T, name, url string) {
	t.Helper()
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if config.TLSConfig == nil {
		t.Fatalf("%s: no TLS", name)
	}
	if config.TLSConfig.InsecureSkipVerify {
		t.Errorf("%s: InsecureSkipVerify = true, want false", name)
	}
	if got := config.TLSConfig.ServerName; got != config.Host {
		t.Errorf("%s: server name = %q, want %q", name, got, config.Host)
	}
	if got := len(config.Fallbacks); got != 0 {
		t.Errorf("%s: %d fallbacks without verification, want 0", name, got)
	}
}

func TestCharts_SecretsRefuseUnverifiedTLS(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		env  []string
		want string
	}{
		{name: "no certificate authority", env: []string{"PGSSLMODE=", "PGSSLROOTCERT="}, want: "PGSSLROOTCERT is not set"},
		{
			name: "a file without a certificate", env: []string{"PGSSLMODE=", "PGSSLROOTCERT=" + os.DevNull},
			want: "contains no certificate in PEM",
		},
		{name: "an SSL mode that falls back to plain text", env: []string{"PGSSLMODE=prefer"}, want: "PGSSLMODE is prefer"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "made")
			out, err := secretsScript(t, dir, row.env...)
			if err == nil {
				t.Errorf("secrets.sh succeeded, want a refusal")
			}
			if !strings.Contains(out, row.want) {
				t.Errorf("secrets.sh printed %q, want it to contain %q", out, row.want)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("directory %s exists after a refusal (%v)", dir, err)
			}
		})
	}
}

// The binaries must accept the keys of the Secrets, and every public key must belong to its seed.
func TestCharts_SecretsHaveTheKeysThatTheChartsRead(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made")
	if out, err := secretsScript(t, dir, "PGSSLROOTCERT=system"); err != nil {
		t.Fatalf("secrets.sh: %v: %s", err, out)
	}
	out, err := secretsScript(t, dir, "PGSSLROOTCERT=system")
	if err == nil {
		t.Errorf("a second run of secrets.sh succeeded, want a refusal")
	}
	if want := "cannot be made twice"; !strings.Contains(out, want) {
		t.Errorf("a second run of secrets.sh printed %q, want it to contain %q", out, want)
	}
	passwords, err := os.ReadFile(filepath.Join(dir, "passwords.sql"))
	if err != nil {
		t.Fatal(err)
	}
	secrets, keys := secretsIn(t, filepath.Join(dir, "secrets.yaml")), map[string]*serviceauth.Keys{}
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
			wantEqual(t, name+": host of "+variable, at.Host, want.host)
			wantEqual(t, name+": role of "+variable, at.User.Username(), role)
			wantContains(t, "passwords.sql", string(passwords), "ALTER ROLE "+role+" PASSWORD '"+password+"';\n")
		}
		if keys[name], err = serviceauth.New(name, serviceauth.Config{SigningKey: data["SIGNING_KEY"]}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if sealing, ok := data["SEALING_KEYS"]; ok {
			if _, err := seal.New(seal.Config{Keys: strings.Split(sealing, ",")}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	public := filepath.Join(dir, "values.yaml")
	rendered := manifests(t, "ringfence", "--values", public, "--set", "global.registry="+registry,
		"--set", "global.nodes={198.51.100.0/24}")
	var trusted map[string]struct{ Env map[string]string }
	if len(rendered) == 0 {
		t.Error("helm template rendered nothing")
	}
	text, err := os.ReadFile(public)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &trusted); err != nil {
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
		if err != nil {
			t.Fatalf("%s: Decode: %v", path, err)
		}
		if o.Kind != "Secret" {
			t.Fatalf(`%s: o.Kind = %q, want "Secret"`, path, o.Kind)
		}
		found[o.Metadata.Name] = o.StringData
	}
}
