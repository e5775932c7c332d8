package compose_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
)

// TestCharts_ServicesStartAndPlaceACall runs the six binaries with the settings of
// environments/small.yaml. It creates the database and the Secrets with the scripts that operators
// use. It places the first call of docs/deploy/compose.md and looks for the metrics of every HPA.
func TestCharts_ServicesStartAndPlaceACall(t *testing.T) {
	t.Parallel()
	bin := os.Getenv("RINGFENCE_BIN")
	if bin == "" || testing.Short() {
		t.Skip("RINGFENCE_BIN is not set, or -short: run `make charts`, which builds the programs and sets it")
	}
	if _, err := exec.LookPath("openssl"); err != nil && os.Getenv("CI") != "true" {
		t.Skip("SKIPPED: helm/environments/secrets.sh needs openssl")
	}
	server, err := kit.StartPostgres(bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	c := &cluster{t: t, bin: bin, dir: t.TempDir(), at: map[string]string{"kafka:9092": listening(t), "simcarrier:8090": listening(t), "admin": listening(t)}}
	for _, name := range services {
		c.at[name+":8080"], c.at[name+"-ready:9090"] = listening(t), listening(t)
	}
	c.secrets(server.URL)
	c.start(
		"broker",
		"ringfence-local",
		nil,
		"broker",
		"--dir",
		filepath.Join(c.dir, "kafka"),
		"--port",
		port(c.at["kafka:9092"]),
	)
	c.start(
		"simcarrier",
		"simcarrier",
		[]string{
			"SIMCARRIER_ADDR=" + c.at["simcarrier:8090"],
			"SIMCARRIER_DIR=" + c.dir + "/simcarrier",
			"SIMULATOR_TIME_SCALE=0.02",
			"SIMCARRIER_TOKEN=" + c.secret["simcarrier"]["SIMCARRIER_TOKEN"],
		},
	)
	objects := objectsIn(t, "small", []byte(strings.Join(lines(t, "deploy/compose/testdata/charts/small.yaml"), "\n")))
	for _, name := range services {
		settings := c.settings(name, objects["ConfigMap/"+name].Data)
		migrate := exec.Command(filepath.Join(bin, name), "migrate")
		migrate.Env = append(settings, "POSTGRES_MIGRATE_URL="+c.secret[name]["POSTGRES_MIGRATE_URL"])
		if out, err := migrate.CombinedOutput(); err != nil {
			t.Fatalf("%s migrate: %v: %s", name, err, out)
		}
		c.start(name, name, append(settings, "KAFKA_INSTANCE_ID="+name+"-0"))
	}
	base, admin := "http://"+c.at["gateway:8080"], "http://"+c.at["admin"]
	if err := kit.Until(t.Context(), kit.HangTimeout, "all six are ready", func() (bool, error) {
		status, _, err := kit.NewClient(base, "").Do(t.Context(), http.MethodGet, "/readyz", nil)
		return err == nil && status == http.StatusOK, nil
	}); err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(c.secret["gateway"]["OPERATOR_TOKENS"], "=")
	output, err := kit.FirstCall(t.Context(), root, base, admin, token)
	if err != nil && (!errors.Is(err, kit.ErrNoShell) || os.Getenv("CI") == "true") {
		t.Errorf("%v:\n%s", err, output)
	}
	c.helmTest(base, admin)
	c.scales()
	c.end()
}

// cluster is a database, a broker, a simulated carrier and six services on this machine. The
// addresses of these processes differ from the addresses in the charts.
type cluster struct {
	t        *testing.T
	bin, dir string
	at       map[string]string
	secret   map[string]map[string]string
	running  []*exec.Cmd
}

func listening(t *testing.T) string {
	t.Helper()
	free, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", free)
}

func port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

func (c *cluster) secrets(super string) {
	c.t.Helper()
	into, conn := filepath.Join(c.dir, "made"), connected(c.t, super)
	made := exec.Command("sh", filepath.Join(root, "helm/environments/secrets.sh"), into, fmt.Sprintf("%s:%d", conn.Config().Host, conn.Config().Port))
	made.Env = append(os.Environ(), "PGSSLMODE=disable")
	if out, err := made.CombinedOutput(); err != nil {
		c.t.Fatalf("secrets.sh: %v: %s", err, out)
	}
	passwords, err := os.ReadFile(filepath.Join(into, "passwords.sql"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, step := range append(roleStatements(c.t, conn), string(passwords)) {
		if _, err := conn.Exec(c.t.Context(), step); err != nil {
			c.t.Fatalf("%v: %s", err, step)
		}
	}
	c.secret = secretsIn(c.t, filepath.Join(into, "secrets.yaml"))
	var trusted map[string]struct{ Env map[string]string }
	text, err := os.ReadFile(filepath.Join(into, "values.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &trusted); err != nil {
		c.t.Fatal(err)
	}
	for name, v := range trusted {
		c.secret[name]["TRUSTED_KEYS"] = v.Env["TRUSTED_KEYS"]
	}
}

// The owner role's URL is left out, because a service must not migrate the database.
func (c *cluster) settings(name string, data map[string]string) (env []string) {
	var places []string
	for from, to := range c.at {
		places = append(places, from, to)
	}
	state := filepath.Join(c.dir, "state", name)
	if err := os.MkdirAll(state, 0o700); err != nil {
		c.t.Fatal(err)
	}
	replace := strings.NewReplacer(append(places, "/state/", state+"/")...)
	for variable, value := range data {
		env = append(env, variable+"="+replace.Replace(value))
	}
	env = append(env, "HTTP_ADDR="+c.at[name+":8080"], "PRIVATE_ADDR="+c.at[name+"-ready:9090"], "ADMIN_ADDR="+c.at["admin"])
	for variable, value := range c.secret[name] {
		if variable != "POSTGRES_MIGRATE_URL" {
			env = append(env, variable+"="+value)
		}
	}
	return env
}

func (c *cluster) start(name, program string, env []string, args ...string) {
	c.t.Helper()
	log, err := os.Create(filepath.Join(c.dir, name+".log"))
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(c.bin, program), args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, log, log
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.running = append(c.running, cmd)
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && c.t.Failed() {
			c.t.Logf("%s:\n%s", name, text[max(0, len(text)-2000):])
		}
	})
}

// helmTest runs the program of the pod that `helm test` starts, with the settings of the pod.
func (c *cluster) helmTest(base, admin string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(c.bin, "simcarrier"), "call")
	cmd.Env = []string{
		"RINGFENCE_URL=" + base, "RINGFENCE_ADMIN_URL=" + admin, "OPERATOR_TOKENS=" + c.secret["gateway"]["OPERATOR_TOKENS"],
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Errorf("simcarrier call: %v: %s", err, out)
	}
	wantContains(c.t, "output of simcarrier call", string(out), "is completed")
}

func (c *cluster) scales() {
	c.t.Helper()
	for _, name := range services {
		for _, by := range valuesOf(c.t, name).Autoscaling.By {
			if err := kit.Until(c.t.Context(), kit.HangTimeout, name+" exports its scaling metrics", func() (bool, error) {
				status, body, err := kit.NewClient("http://"+c.at[name+"-ready:9090"], "").
					Do(c.t.Context(), http.MethodGet, "/metrics", nil)
				return err == nil && status == http.StatusOK && hasGauge(string(body), by.Metric, by.Labels), nil
			}); err != nil {
				c.t.Errorf("%s%v: %v", by.Metric, by.Labels, err)
			}
		}
	}
}

// hasGauge reports whether the metrics contain a gauge with at least these labels.
func hasGauge(metrics, name string, labels map[string]string) bool {
	for line := range strings.Lines(metrics) {
		rest, is := strings.CutPrefix(line, name)
		if !is || !strings.HasPrefix(rest, "{") && !strings.HasPrefix(rest, " ") {
			continue
		}
		for label, value := range labels {
			is = is && strings.Contains(rest, fmt.Sprintf("%s=%q", label, value))
		}
		if is {
			return strings.Contains(metrics, "# TYPE "+name+" gauge\n")
		}
	}
	return false
}

func (c *cluster) end() {
	c.t.Helper()
	six := c.running[len(c.running)-len(services):]
	for _, cmd := range six {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			c.t.Errorf("%s is gone: %v", cmd.Path, err)
		}
	}
	for _, cmd := range six {
		if err := cmd.Wait(); err != nil {
			c.t.Errorf("%s: %v", filepath.Base(cmd.Path), err)
		}
	}
}
