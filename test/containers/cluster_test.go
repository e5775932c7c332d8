package containers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"ringfence.dev/test/kit"
)

const (
	namespace   = "ringfence"
	registry    = "registry.example.net"
	consoleHost = "console.example.net"
	// consoleFlags name an image with BusyBox, which `helm test console` needs.
	consoleFlags = "--set test.image=cluster.test/pause:1"
	// loadClients send a request every loadInterval each. Half of them open a connection for each
	// request, so that they reach every replica.
	loadClients  = 6
	loadInterval = 400 * time.Millisecond
	// readyTimeout limits the wait for a release that works.
	readyTimeout = 4 * time.Minute
	// failureTimeout limits the wait for a release with a defect. A defect does not heal, so the wait
	// is short. Then the test waits longer for the reason.
	failureTimeout = time.Minute
)

// replicated are the services of both charts, ringfence and console.
var replicated = append(slices.Clone(services[:6]), "console")

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
	console  string
	token    string
}

// TestCluster_NoRequestFailsDuringAPodReplacement installs the charts as docs/deploy/helm.md
// describes. Then it replaces pods in every way that operators use, while clients without retries
// place calls and read a page of the console.
func TestCluster_NoRequestFailsDuringAPodReplacement(t *testing.T) {
	needSandbox(t)
	buildImages(t)
	c := startCluster(t)
	c.install()
	if out, err := c.firstCall(readyTimeout); err != nil {
		t.Errorf("helm test: %v", err)
	} else if !strings.Contains(out, "is completed") {
		t.Errorf("helm test: %s, want a completed call", out)
	}
	mustRun(t, "helm", "-n", namespace, "test", "console", "--logs")
	t.Run("an invitation opens in the console", c.checkConsole)
	t.Run("network policies are enforced", c.checkPolicies)
	stack := &kit.Stack{}
	stack.Demo.BaseURL, stack.Demo.AdminURL, stack.Demo.AdminToken = c.base, c.operator, c.token
	w, err := stack.NewWorkspace(t.Context(), "cluster", "100000")
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	var numbers atomic.Int64
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"rollout restart", func() {
			for _, service := range replicated {
				mustRun(t, "kubectl", "-n", namespace, "rollout", "restart", workload(service))
			}
		}},
		{"helm upgrade", func() {
			c.page("helm upgrade ringfence", "--set global.tag=0.2.0")
			c.page("helm upgrade --install console", consoleFlags+" --set global.tag=0.2.0")
			c.wantVersion("0.2.0")
		}},
		{"helm rollback", func() {
			mustRun(t, "helm", "rollback", "ringfence", "-n", namespace)
			mustRun(t, "helm", "rollback", "console", "-n", namespace)
			c.wantVersion("0.1.0")
		}},
		{"deleted pods", func() { c.eachPod(c.delete) }},
		{"evicted pods", func() { c.eachPod(c.evict) }},
	} {
		t.Run(step.name, func(t *testing.T) {
			began := time.Now()
			load := c.startLoad(t, w, &numbers)
			step.do()
			if err := c.ready(readyTimeout); err != nil {
				t.Error(err)
			}
			load.stop()
			load.mu.Lock()
			defer load.mu.Unlock()
			t.Logf("%s: calls = %d, pages = %d, failed = %d, duration = %s", step.name, load.calls, load.pages,
				len(load.faults), time.Since(began).Round(time.Second))
			if load.calls < 20 {
				t.Errorf("calls = %d, want at least 20", load.calls)
			}
			if load.pages < 20 {
				t.Errorf("pages = %d, want at least 20", load.pages)
			}
			if len(load.faults) > 0 {
				t.Errorf("failed requests = %d, want 0; the first: %s", len(load.faults), load.faults[0])
			}
			accepted += load.accepted
		})
	}
	var requests []kit.Request
	await(t, "every call request has ended", func() (bool, error) {
		var err error
		requests, err = w.Requests(t.Context())
		open := slices.ContainsFunc(requests, func(r kit.Request) bool { return !r.Final() })
		return err == nil && !open, nil
	})
	if len(requests) != accepted {
		t.Errorf("call requests = %d, want the %d that were accepted", len(requests), accepted)
	}
	if differences, err := w.Differences(t.Context()); err != nil {
		t.Error(err)
	} else if len(differences) > 0 {
		t.Errorf("differences of the wallet = %v, want none", differences)
	}
	t.Run("broken charts are found", c.checkBrokenCharts)
}

// checkBrokenCharts upgrades to charts that have one defect each. Every upgrade must fail with the
// reason of its defect, which shows that the check of a release works. The last row is the control:
// its change is harmless and replaces every pod, and the same upgrade must succeed.
func (c *cluster) checkBrokenCharts(t *testing.T) {
	for _, row := range []struct {
		name, file, from, to string
		// want is a text of the reason. Without a text, the upgrade must succeed.
		want string
		// upgrade and ready limit the parts of the check.
		upgrade, ready time.Duration
	}{
		{
			name: "wrong port", upgrade: readyTimeout, ready: failureTimeout,
			want: "no connection to http://gateway:8080 within",
			file: "_service.tpl", from: "port: 8080, targetPort: http", to: "port: 8080, targetPort: 8099",
		},
		{
			name: "bad probe", upgrade: readyTimeout, ready: failureTimeout,
			want: "Readiness probe failed: HTTP probe failed with statuscode: 404",
			file: "_workload.tpl", from: "path: /readyz", to: "path: /nothing",
		},
		{
			// Without the group, the migrations cannot read the certificate authority of Postgres.
			name: "missing permission", upgrade: failureTimeout, ready: failureTimeout,
			want: "/etc/ringfence/postgres-ca.pem: permission denied",
			file: "_workload.tpl", from: "  fsGroup: 65532\n", to: "",
		},
		{
			name: "closed network policy", upgrade: readyTimeout, ready: failureTimeout,
			want: "Not ready yet: ", // the gateway names the services that it cannot reach
			file: "_network.tpl",
			from: "app.kubernetes.io/name: {{ . }}, app", to: "app.kubernetes.io/name: {{ . }}-other, app",
		},
		{
			name: "control", upgrade: readyTimeout, ready: readyTimeout,
			file: "_workload.tpl", from: "port: private}, periodSeconds: 5", to: "port: private}, periodSeconds: 4",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.want != "" {
				await(t, row.want+" is not reported before the upgrade", func() (bool, error) {
					return !strings.Contains(c.reasons(t, row.want), row.want), nil
				})
			}
			err := c.upgradeTo(t, c.brokenChart(t, row.file, row.from, row.to), row.upgrade, row.ready)
			if row.want == "" {
				if err != nil {
					t.Errorf("without a defect: %v", err)
				}
				return // the upgrade is the last one
			}
			if err == nil {
				t.Fatal("the release is ready and places a call, want a failure")
			}
			reasons := ""
			_ = kit.Until(t.Context(), kit.HangTimeout, "the reason is reported", func() (bool, error) {
				reasons = err.Error() + "\n" + c.reasons(t, row.want)
				return strings.Contains(reasons, row.want), nil
			})
			if !strings.Contains(reasons, row.want) {
				t.Errorf("reasons = %s\nwant %q", reasons, row.want)
			}
			mustRun(t, "helm", "rollback", "ringfence", "-n", namespace)
			// A StatefulSet does not replace a pod that was never ready.
			mustRun(t, "kubectl", "-n", namespace, "delete", "pods", "--wait=false",
				"contacts-compliance-0", "contacts-compliance-1", "dialer-0", "dialer-1")
			if err := c.ready(readyTimeout); err != nil {
				t.Fatalf("after the rollback: %v", err)
			}
		})
	}
}

// reasons returns what the cluster reports about its state: the events of pods, the response of the
// gateway's /readyz, and lines with the text in the logs of present and deleted pods.
func (c *cluster) reasons(t *testing.T, text string) string {
	t.Helper()
	events := mustRun(t, "kubectl", "-n", namespace, "get", "events", "-o",
		`jsonpath={range .items[*]}{.involvedObject.name}: {.message}{"\n"}{end}`)
	_, readiness, err := kit.NewClient(c.base, "").Do(t.Context(), http.MethodGet, "/readyz", nil)
	if err != nil {
		readiness = []byte(err.Error())
	}
	logs := mustRun(t, "sh", "-c", `grep -rhFs "$0" /var/log/kept || :`, text)
	return events + string(readiness) + "\n" + logs
}

// brokenChart copies the charts, replaces a text in the library chart, and returns the folder of
// the chart ringfence.
func (c *cluster) brokenChart(t *testing.T, name, from, to string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	mustRun(t, "cp", "-rL", "helm", "deploy", folder)
	for _, service := range services[:6] {
		library := filepath.Join(folder, "helm/ringfence/charts", service, "charts/ringfence-lib")
		file := filepath.Join(library, "templates", name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		broken := strings.Replace(string(text), from, to, 1)
		if broken == string(text) {
			t.Fatalf("%s does not contain %q", name, from)
		}
		if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "helm/ringfence")
}

// upgradeTo upgrades the release to a chart. It returns an error unless the release becomes ready
// and places a call.
func (c *cluster) upgradeTo(t *testing.T, chart string, upgrade, ready time.Duration) error {
	t.Helper()
	if _, err := run(t.Context(), "helm", "upgrade", "ringfence", chart, "-n", namespace, "--reuse-values",
		"--timeout", upgrade.String()); err != nil {
		return err
	}
	err := c.ready(ready)
	_, callErr := c.firstCall(ready)
	return errors.Join(err, callErr)
}

// firstCall runs `helm test`, which places a call.
func (c *cluster) firstCall(timeout time.Duration) (output string, err error) {
	return run(c.t.Context(), "helm", "-n", namespace, "test", "ringfence", "--logs", "--timeout", timeout.String())
}

// checkConsole opens the link of an invitation. The console reads the invitation from the gateway.
func (c *cluster) checkConsole(t *testing.T) {
	link := mustRun(t, "kubectl", "-n", namespace, "exec", "deployment/gateway", "--", "/service", "invite-operator")
	path, found := strings.CutPrefix(strings.TrimSpace(link), "https://"+consoleHost)
	if !found {
		t.Fatalf("link = %q, want an address of %s", link, consoleHost)
	}
	if err := c.readPage(t.Context(), http.DefaultClient, path); err != nil {
		t.Error(err)
	}
	if err := c.readPage(t.Context(), http.DefaultClient, path+"x"); err == nil {
		t.Error("a link with another token opens, want a refusal")
	}
}

// readPage returns an error unless the console responds to GET with status 200.
func (c *cluster) readPage(ctx context.Context, client *http.Client, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.console+path, nil)
	if err != nil {
		return err
	}
	request.Host = consoleHost
	request.Header.Set("X-Forwarded-Proto", "https")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s of the console: status %d, want 200", path, response.StatusCode)
	}
	return err
}

// checkPolicies connects from pods without a policy for outgoing connections, so that the policies
// of the services decide.
func (c *cluster) checkPolicies(t *testing.T) {
	for name, label := range map[string]string{"stranger": "app=stranger", "operator": "ringfence.dev/operator=true"} {
		mustRun(t, "kubectl", "-n", namespace, "run", name, "--image", "cluster.test/pause:1", "--labels", label,
			"--image-pull-policy", "Never", "--restart", "Never")
		mustRun(t, "kubectl", "-n", namespace, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=120s")
	}
	for _, row := range []struct {
		pod, host, port string
		open            bool
	}{
		{pod: "operator", host: "gateway-admin", port: "8081", open: true},
		{pod: "operator", host: "calls", port: "8080"},
		{pod: "stranger", host: "gateway", port: "8080", open: true},
		{pod: "stranger", host: "console", port: "8080", open: true},
		{pod: "stranger", host: "gateway-admin", port: "8081"},
		{pod: "stranger", host: "gateway-console", port: "8082"},
		{pod: "stranger", host: "calls", port: "8080"},
		{pod: "stranger", host: "dialer-private", port: "9090"},
		{pod: "stranger", host: "billing-wallet-ready", port: "9090"},
		{pod: "stranger", host: "simcarrier", port: "8090"},
	} {
		await(t, fmt.Sprintf("%s to %s:%s is open: %v", row.pod, row.host, row.port, row.open), func() (bool, error) {
			_, err := run(t.Context(), "kubectl", "-n", namespace, "exec", row.pod, "--", "getent", "hosts", row.host)
			if err != nil { // a name that is not known must not count as a closed port
				return false, err
			}
			_, err = run(t.Context(), "kubectl", "-n", namespace, "exec", row.pod, "--",
				"timeout", "3", "bash", "-c", "exec 3<> /dev/tcp/"+row.host+"/"+row.port)
			return (err == nil) == row.open, nil
		})
	}
	mustRun(t, "kubectl", "-n", namespace, "delete", "pods", "stranger", "operator", "--wait=false")
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
			const warnings = `grep -rhE '"level":"(WARN|ERROR)"' /var/log/kept | sort > `
			file := filepath.Join(bin, "containers/cluster/services.log")
			_, err := run(context.Background(), "sh", "-c", warnings+file)
			t.Logf("warnings of the services are in %s (%v)", file, err)
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
		env := map[string]string{"KAFKA_BROKERS": "kafka.stores:9092"}
		changes := map[string]any{"replicas": 2, "env": env}
		// A node with two cores must have room for the pods of all rollouts at the same time.
		changes["resources"] = map[string]any{"requests": map[string]string{"cpu": "50m"}}
		if service == "gateway" {
			changes["consolePort"], env["CONSOLE_URL"] = 8082, "https://"+consoleHost
		}
		values[service] = changes
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
	c.page("helm upgrade --install console", consoleFlags)
	service := func(name string) string {
		return "http://" + c.get("service", name, "jsonpath={.spec.clusterIP}")
	}
	c.base, c.operator = service("gateway")+":8080", service("gateway-admin")+":8081"
	c.console = service("console") + ":8080"
	tokens := c.get("secret", "gateway", "go-template={{.data.OPERATOR_TOKENS | base64decode}}")
	_, c.token, _ = strings.Cut(tokens, "=")
	if err := c.ready(readyTimeout); err != nil {
		c.t.Fatal(err)
	}
}

// page runs the commands of docs/deploy/helm.md that contain the text. flags are added to those of
// Helm.
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
			"--set env.CONSOLE_URL", flags+" --set env.CONSOLE_URL",
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
	for _, service := range replicated {
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
	for _, service := range replicated {
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
	for _, service := range replicated {
		replace(mustRun(c.t, "kubectl", "-n", namespace, "get", "pods", "-l", "app.kubernetes.io/name="+service,
			"-o", "jsonpath={.items[0].metadata.name}"))
		if err := c.ready(readyTimeout); err != nil {
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

// load is clients that do not retry. They place calls and read a page of the console.
type load struct {
	end   context.CancelFunc
	ended sync.WaitGroup

	mu                     sync.Mutex
	calls, accepted, pages int
	faults                 []string
}

// startLoad starts the clients. Each call has another number, because a person is not called twice
// at the same time.
func (c *cluster) startLoad(t *testing.T, w *kit.Workspace, numbers *atomic.Int64) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{end: cancel}
	t.Cleanup(cancel)
	for client := range loadClients {
		l.repeat(ctx, func() {
			one := *w
			if client%2 == 0 {
				one.API = kit.NewClient(c.base, w.WriteKey)
			}
			n := numbers.Add(1)
			number := fmt.Sprintf("+1415%05d%02d", n/90, n%90) // the last two digits 00 to 89 answer
			_, err := one.Place(t.Context(), map[string]any{"to": number})
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls++
			if err == nil {
				l.accepted++
			}
			l.fail(err)
		})
	}
	browser := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	l.repeat(ctx, func() {
		err := c.readPage(t.Context(), browser, "/sign-in")
		l.mu.Lock()
		defer l.mu.Unlock()
		l.pages++
		l.fail(err)
	})
	return l
}

// repeat calls a function every loadInterval until stop.
func (l *load) repeat(ctx context.Context, request func()) {
	l.ended.Go(func() {
		tick := time.NewTicker(loadInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				request()
			}
		}
	})
}

// fail records an error. The caller holds the lock.
func (l *load) fail(err error) {
	if err != nil {
		l.faults = append(l.faults, time.Now().Format(time.TimeOnly)+" "+err.Error())
	}
}

func (l *load) stop() {
	l.end()
	l.ended.Wait()
}
