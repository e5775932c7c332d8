package containers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"ringfence.dev/test/kit"
)

const (
	namespace = "ringfence"
	registry  = "registry.example.net"
	// loadClients send a request every loadInterval each. Half of them open a connection for each
	// request, so that they reach every replica.
	loadClients  = 6
	loadInterval = 400 * time.Millisecond
)

var kinds = map[string]string{"dialer": "statefulset", "contacts-compliance": "statefulset"}

// workload returns the name of a service's workload for kubectl.
func workload(service string) string {
	if kind := kinds[service]; kind != "" {
		return kind + "/" + service
	}
	return "deployment/" + service
}

// cluster is a cluster of one node with a release of the charts.
type cluster struct {
	t *testing.T
	// dir contains the keys, passwords and values of the release, and the packaged chart.
	dir      string
	base     string
	operator string
	token    string
}

// TestCluster_NoRequestFailsDuringAPodReplacement installs the charts as docs/deploy/helm.md
// describes. Then it replaces pods in every way that operators use, while clients without retries
// place calls.
func TestCluster_NoRequestFailsDuringAPodReplacement(t *testing.T) {
	needSandbox(t)
	c := startCluster(t)
	c.install()
	if out := mustRun(t, "helm", "-n", namespace, "test", namespace, "--logs"); !strings.Contains(out, "is completed") {
		t.Errorf("helm test: %s, want a completed call", out)
	}
	stack := &kit.Stack{}
	stack.Demo.BaseURL, stack.Demo.AdminURL, stack.Demo.AdminToken = c.base, c.operator, c.token
	w, err := stack.NewWorkspace(t.Context(), "cluster", "100000")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"rollout restart", func() {
			for _, service := range services[:6] {
				mustRun(t, "kubectl", "-n", namespace, "rollout", "restart", workload(service))
			}
		}},
		{"helm upgrade", func() {
			c.page("helm upgrade ringfence", "--set global.tag=0.2.0")
			c.wantVersion("0.2.0")
		}},
		{"helm rollback", func() {
			mustRun(t, "helm", "rollback", namespace, "-n", namespace)
			c.wantVersion("0.1.0")
		}},
		{"deleted pods", func() { c.eachPod(c.delete) }},
		{"evicted pods", func() { c.eachPod(c.evict) }},
	} {
		t.Run(step.name, func(t *testing.T) {
			load := startLoad(t, c.base, w)
			step.do()
			if err := c.ready(4 * time.Minute); err != nil {
				t.Error(err)
			}
			load.stop()
			sent, faults := load.result()
			t.Logf("requests = %d, failed = %d", sent, len(faults))
			if sent < 20 {
				t.Errorf("requests = %d, want at least 20", sent)
			}
			if len(faults) > 0 {
				t.Errorf("failed requests = %d of %d, want 0; the first: %s", len(faults), sent, faults[0])
			}
		})
	}
	await(t, "every call request has ended", func() (bool, error) {
		requests, err := w.Requests(t.Context())
		open := slices.ContainsFunc(requests, func(r kit.Request) bool { return !r.Final() })
		return err == nil && len(requests) > 0 && !open, nil
	})
	if differences, err := w.Differences(t.Context()); err != nil {
		t.Error(err)
	} else if len(differences) > 0 {
		t.Errorf("differences of the wallet = %v, want none", differences)
	}
	t.Run("broken charts are found", c.checkBrokenCharts)
}

// checkBrokenCharts upgrades to charts with a planted defect each, so that the check of a release
// is known to work.
func (c *cluster) checkBrokenCharts(t *testing.T) {
	for _, row := range []struct{ name, file, from, to string }{
		{name: "wrong port", file: "_service.tpl", from: "port: 8080, targetPort: http", to: "port: 8080, targetPort: 8099"},
		{name: "bad probe", file: "_workload.tpl", from: "path: /readyz", to: "path: /nothing"},
		{name: "missing permission", file: "_workload.tpl", from: "  runAsGroup: 65532\n", to: ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			folder := t.TempDir()
			mustRun(t, "cp", "-rL", "helm", "deploy", folder)
			for _, chart := range append([]string{"."}, services[:6]...) {
				library := "helm/ringfence-lib"
				if chart != "." {
					library = filepath.Join("helm/ringfence/charts", chart, "charts/ringfence-lib")
				}
				file := filepath.Join(folder, library, "templates", row.file)
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				broken := strings.Replace(string(text), row.from, row.to, 1)
				if broken == string(text) {
					t.Fatalf("%s does not contain %q", row.file, row.from)
				}
				if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			mustRun(t, "helm", "upgrade", namespace, filepath.Join(folder, "helm/ringfence"), "-n", namespace,
				"--reuse-values")
			if err := c.ready(time.Minute); err == nil {
				t.Error("the release is ready, want a failure")
			}
			mustRun(t, "helm", "rollback", namespace, "-n", namespace)
			// A StatefulSet does not replace a pod that was never ready.
			mustRun(t, "kubectl", "-n", namespace, "delete", "pods", "--wait=false",
				"contacts-compliance-0", "contacts-compliance-1", "dialer-0", "dialer-1")
			if err := c.ready(4 * time.Minute); err != nil {
				t.Fatalf("after the rollback: %v", err)
			}
		})
	}
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	for name, value := range map[string]string{
		"KUBECONFIG": filepath.Join(bin, "containers/cluster/admin.conf"),
		"PATH":       filepath.Join(bin, "tools/kubernetes") + ":" + filepath.Join(bin, "tools") + ":" + os.Getenv("PATH"),
	} {
		t.Setenv(name, value)
	}
	cmd := exec.CommandContext(t.Context(), "test/containers/cluster.sh",
		filepath.Join(bin, "containers/cluster"), filepath.Join(bin, "tools/kubernetes"))
	cmd.Dir = root
	// The processes of the cluster keep the output open, so it must not be a pipe.
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("cluster.sh: %v", err)
	}
	c := &cluster{t: t, dir: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := run(context.Background(), "kubectl", "get", "pods,jobs,events", "-A",
				"--sort-by=.metadata.creationTimestamp")
			t.Log(out)
		}
	})
	return c
}

// install runs the commands of docs/deploy/helm.md, with the addresses of the cluster.
func (c *cluster) install() {
	c.t.Helper()
	values := map[string]any{
		"postgres": map[string]int{"maxConnections": 300},
		"global":   map[string]string{"registry": registry},
	}
	for _, service := range services[:6] {
		brokers := map[string]string{"KAFKA_BROKERS": "kafka.stores:9092"}
		values[service] = map[string]any{"replicas": 2, "env": brokers}
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "cluster.yaml"), text, 0o600); err != nil {
		c.t.Fatal(err)
	}
	host := mustRun(c.t, "kubectl", "-n", "stores", "get", "service", "postgres", "-o", "jsonpath={.spec.clusterIP}")
	for name, value := range map[string]string{"PGHOST": host, "PGUSER": "postgres", "PGPASSWORD": "example"} {
		c.t.Setenv(name, value)
	}
	c.page("deploy/release.sh", "")
	c.page("secrets.sh", "")
	c.page("createdb", "")
	c.page("helm upgrade --install simcarrier", "")
	c.page("helm upgrade --install ringfence", "")
	service := func(name string) string {
		return "http://" + c.get("service", name, "jsonpath={.spec.clusterIP}")
	}
	c.base, c.operator = service("gateway")+":8080", service("gateway-admin")+":8081"
	tokens := c.get("secret", "gateway", "go-template={{.data.OPERATOR_TOKENS | base64decode}}")
	_, c.token, _ = strings.Cut(tokens, "=")
	if err := c.ready(4 * time.Minute); err != nil {
		c.t.Fatal(err)
	}
}

// page runs the commands of docs/deploy/helm.md that begin with the text. flags are added to those
// of Helm.
func (c *cluster) page(begin, flags string) {
	c.t.Helper()
	blocks, err := kit.PageBlocks(root, kit.DeployTest)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, b := range blocks {
		if b.Page != "docs/deploy/helm.md" || !strings.Contains(b.Text, begin) {
			continue
		}
		text := b.Text
		if begin == "deploy/release.sh" { // the images are built, and there is no registry
			text = text[strings.Index(text, begin):]
		}
		places := strings.NewReplacer(
			"../made", c.dir+"/made",
			"--values production.yaml", "--values helm/environments/small.yaml --values "+c.dir+"/cluster.yaml "+flags,
			"postgres.example.net pgbouncer.example.net", "postgres.stores",
			"PGSSLROOTCERT=postgres-ca.pem", "PGSSLROOTCERT="+filepath.Join(bin, "containers/cluster/pki/ca.crt"),
		)
		mustRun(c.t, "sh", "-euc", places.Replace(text))
		return
	}
	c.t.Fatalf("docs/deploy/helm.md has no command %q", begin)
}

// get returns a field of an object in the namespace of the release.
func (c *cluster) get(kind, name, format string) string {
	c.t.Helper()
	return mustRun(c.t, "kubectl", "-n", namespace, "get", kind, name, "-o", format)
}

// ready returns an error unless all workloads have their replicas and the gateway responds.
func (c *cluster) ready(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), timeout)
	defer cancel()
	for _, service := range services[:6] {
		if _, err := run(ctx, "kubectl", "-n", namespace, "rollout", "status", workload(service)); err != nil {
			return err
		}
	}
	return kit.Until(ctx, timeout, "the gateway is ready", func() (bool, error) {
		status, _, err := kit.NewClient(c.base, "").Do(ctx, http.MethodGet, "/readyz", nil)
		return err == nil && status == http.StatusOK, nil
	})
}

func (c *cluster) wantVersion(want string) {
	c.t.Helper()
	for _, service := range services[:6] {
		const format = `jsonpath={.metadata.labels.app\.kubernetes\.io/version} {.spec.template.spec.containers[0].image}`
		kind, name, _ := strings.Cut(workload(service), "/")
		got := c.get(kind, name, format)
		if want := want + " " + registry + "/ringfence/" + service + ":" + want; got != want {
			c.t.Errorf("version and image of %s = %q, want %q", service, got, want)
		}
	}
}

// eachPod replaces one pod of each service, one after another.
func (c *cluster) eachPod(replace func(pod string)) {
	c.t.Helper()
	for _, service := range services[:6] {
		replace(mustRun(c.t, "kubectl", "-n", namespace, "get", "pods", "-l", "app.kubernetes.io/name="+service,
			"-o", "jsonpath={.items[0].metadata.name}"))
		if err := c.ready(4 * time.Minute); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) delete(pod string) {
	c.t.Helper()
	mustRun(c.t, "kubectl", "-n", namespace, "delete", "pod", pod)
}

func (c *cluster) evict(pod string) {
	c.t.Helper()
	body := fmt.Sprintf(
		`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`,
		pod,
		namespace,
	)
	path := "/api/v1/namespaces/" + namespace + "/pods/" + pod + "/eviction"
	mustRun(c.t, "sh", "-euc", "echo '"+body+"' | kubectl create --raw "+path+" -f -")
	mustRun(c.t, "kubectl", "-n", namespace, "wait", "--for=delete", "pod/"+pod, "--timeout=180s")
}

// load is clients that place calls and do not retry.
type load struct {
	end    context.CancelFunc
	ended  sync.WaitGroup
	mu     sync.Mutex
	sent   int
	faults []string
}

func startLoad(t *testing.T, base string, w *kit.Workspace) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{end: cancel}
	t.Cleanup(cancel)
	for client := range loadClients {
		l.ended.Go(func() {
			tick := time.NewTicker(loadInterval)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					one := *w
					if client%2 == 0 {
						one.API = kit.NewClient(base, w.WriteKey)
					}
					_, err := one.Place(t.Context(), map[string]any{"to": answeringNumber})
					l.count(err)
				}
			}
		})
	}
	return l
}

func (l *load) count(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if err != nil && !errors.Is(err, context.Canceled) {
		l.faults = append(l.faults, err.Error())
	}
}

func (l *load) stop() {
	l.end()
	l.ended.Wait()
}

func (l *load) result() (sent int, faults []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent, l.faults
}
