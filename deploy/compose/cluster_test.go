package compose_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"ringfence.dev/libs/httpserver"
)

func written(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Helm reads YAML numbers as floats, and would print a large number as 1e+07.
func TestCharts_RenderNumbersUnchanged(t *testing.T) {
	t.Parallel()
	data := render(t, "dialer", "--values", written(t, "env: {MAX_LIVE_CALLS: 10000000, RTP_PORT_LOW: 12000, KAFKA_TLS: true}"))["ConfigMap/dialer"].Data
	wantEqual(t, "MAX_LIVE_CALLS", data["MAX_LIVE_CALLS"], "10000000")
	wantEqual(t, "RTP_PORT_LOW", data["RTP_PORT_LOW"], "12000")
	wantEqual(t, "KAFKA_TLS", data["KAFKA_TLS"], "true")
}

// Without GOMEMLIMIT, garbage could grow to four times the live heap (GOGC is 400, libs/service)
// and exceed the memory limit.
func TestCharts_SetGoMemoryLimit(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, values, want string }{
		{"default limit", "{}", "409MiB"},
		{"limit in Gi", "resources: {limits: {memory: 2Gi}}", "1638MiB"},
		{"GOMEMLIMIT is set", "env: {GOMEMLIMIT: 100MiB}", "100MiB"},
	} {
		if got := render(t, "calls", "--values", written(t, row.values))["ConfigMap/calls"].Data["GOMEMLIMIT"]; got != row.want {
			t.Errorf("%s: GOMEMLIMIT=%q, want %q", row.name, got, row.want)
		}
	}
}

func TestCharts_OptionalPodSettingsAreRendered(t *testing.T) {
	t.Parallel()
	const every = `
image: {pullPolicy: Always}
files: {secret: certificates}
nodeSelector: {pool: calls}
tolerations: [{key: calls, operator: Exists, effect: NoSchedule}]
priorityClassName: calls
topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app.kubernetes.io/part-of: ringfence}}}]
podAnnotations: {a: b}
serviceAccountAnnotations: {a: b}
imagePullSecrets: [{name: registry}]
`
	for _, name := range withConsole {
		for _, as := range []string{"job", "init", "none"} {
			if name == "console" && as != "none" {
				continue // the console has no database
			}
			rendered := manifests(t, name,
				append(requiredArgs(t, name), "--values", written(t, every), "--set", "migrate.as="+as)...)
			validate(t, rendered)
			places := 1
			if as == "job" {
				places = 2
			}
			for _, field := range []string{"tolerations:\n", "nodeSelector:\n", "priorityClassName: calls\n", "name: registry\n", "secretName: certificates"} {
				if n := bytes.Count(rendered, []byte(field)); n != places {
					t.Errorf("%s, migrate.as %s: %q occurs %d times, want %d", name, as, strings.TrimSpace(field), n, places)
				}
			}
			if n := bytes.Count(rendered, []byte("POSTGRES_MIGRATE_URL\n")); n != map[string]int{"job": 1, "init": 1}[as] {
				t.Errorf("%s, migrate.as %s: the owner's URL is in %d places", name, as, n)
			}
		}
	}
}

// Ports without a password must be opened only at the node's own address, not at every address of
// the host.
func TestCharts_HostNetworkingListensAtOneAddress(t *testing.T) {
	t.Parallel()
	set := map[string]string{}
	for _, v := range render(t, "dialer")["StatefulSet/dialer"].Spec.Template.Spec.Containers[0].Env {
		set[v.Name] = v.Value
		if v.Name == "NODE_ADDRESS" && v.ValueFrom.FieldRef.Path != "status.hostIP" {
			t.Errorf("the node's address is %+v", v.ValueFrom)
		}
	}
	for _, variable := range []string{"HTTP_ADDR", "PRIVATE_ADDR"} {
		for _, node := range []string{"127.0.0.1", "::1"} {
			host, port, err := net.SplitHostPort(strings.ReplaceAll(set[variable], "$(NODE_ADDRESS)", node))
			if err != nil {
				t.Errorf("%s: %v", variable, err)
			}
			wantEqual(t, "host of "+variable, host, node)
			wantEqual(t, "port of "+variable, port, map[string]string{"HTTP_ADDR": "8080", "PRIVATE_ADDR": "9090"}[variable])
		}
	}
	for _, v := range render(t, "calls")["Deployment/calls"].Spec.Template.Spec.Containers[0].Env {
		if v.Name == "PRIVATE_ADDR" {
			t.Error("a pod without host networking listens at its node's address")
		}
	}
}

// The dispatcher must be able to connect to any port, because a webhook URL can have any port.
func TestCharts_WebhooksReachAnyPort(t *testing.T) {
	t.Parallel()
	for name, ports := range map[string][]int{"webhook-dispatcher": {443, 8443, 81, 65535}, "dialer": {443, 5060, 5061, 8443}} {
		open := valuesOf(t, name).Network.Internet.Ports
		for _, port := range ports {
			if !slices.ContainsFunc(open, func(p portRange) bool { return p.Protocol == "TCP" && p.Port <= port && port <= max(p.Port, p.EndPort) }) {
				t.Errorf("%s may not reach port %d of the internet: %v", name, port, open)
			}
		}
	}
}

func TestCharts_SmallEnvironmentUsesTheSimulatedCarrier(t *testing.T) {
	t.Parallel()
	text := manifests(t, "simcarrier", requiredArgs(t, "simcarrier")...)
	objects := objectsIn(t, "simcarrier", text)
	pod := objects["Deployment/simcarrier"].Spec.Template
	if got := len(pod.Spec.Containers); got != 1 {
		t.Fatalf("containers = %d, want 1", got)
	}
	service, ports := objects["Service/simcarrier"], pod.Spec.Containers[0].Ports
	if !opensTargetPorts(service, pod.Spec.Containers[0]) {
		t.Errorf("ports of the Service = %+v, want ports of the container: %+v", service.Spec.Ports, ports)
	}
	if !selectorMatches(service.Spec.Selector, pod.Metadata.Labels) {
		t.Errorf("selector of the Service = %v, want labels of the pod: %v", service.Spec.Selector, pod.Metadata.Labels)
	}
	c, set := pod.Spec.Containers[0], map[string]bool{}
	for _, v := range c.Env {
		set[v.Name] = true
	}
	compare(t, "helm/simcarrier", set, readVariables(t, "cmd/simcarrier"))
	if want := registry + "/ringfence/simcarrier:" + appVersion(t, "dialer"); c.Image != want {
		t.Errorf("it runs %s, want %s", c.Image, want)
	}
	at := fmt.Sprintf("http://simcarrier:%d", objects["Service/simcarrier"].Spec.Ports[0].Port)
	if got := render(t, "ringfence", "--values", filepath.Join(root, "helm/environments/small.yaml"))["ConfigMap/dialer"].Data["SIM_URL"]; got != at {
		t.Errorf("small.yaml calls over %q, the carrier is at %q", got, at)
	}
}

func TestCharts_IngressRoutesToTheGatewayOnly(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Join(lines(t, "helm/environments/ingress.yaml"), "\n"))
	way := regexp.MustCompile(`service: \{name: ([a-z-]+), port: \{name: ([a-z-]+)\}\}`).FindAllSubmatch(text, -1)
	if len(way) != 1 {
		t.Fatalf("services of the Ingress = %q, want one", way)
	}
	wantEqual(t, "service of the Ingress", string(way[0][1]), "gateway")
	rendered := manifests(t, "gateway", requiredArgs(t, "gateway")...)
	ports := objectsIn(t, "gateway", rendered)["Service/gateway"].Spec.Ports
	if len(ports) != 1 {
		t.Fatalf("ports of the Service = %+v, want one", ports)
	}
	wantEqual(t, "port of the Ingress", string(way[0][2]), ports[0].Name)
	if most := fmt.Sprintf("%d KiB", httpserver.MaxBody>>10); !bytes.Contains(text, []byte(most)) {
		t.Errorf("it does not say that bodies have %s", most)
	}
	both := slices.Concat(rendered, []byte("\n---\n"), text) // kube-score needs the Service of the Ingress
	validate(t, both)
	runTool(t, both, "RINGFENCE_KUBESCORE", kubeScoreArgs()...)
}

// Each binary must parse every value. It then stops, because the database URL is empty.
func TestCharts_BinariesParseTheirSettings(t *testing.T) {
	t.Parallel()
	bin := os.Getenv("RINGFENCE_BIN")
	if bin == "" {
		t.Skip("RINGFENCE_BIN is not set: run `make charts`, which builds the programs and sets it")
	}
	for _, values := range []string{"default", "small", "production"} {
		objects := objectsIn(t, values, []byte(strings.Join(lines(t, "deploy/compose/testdata/charts/"+values+".yaml"), "\n")))
		for _, name := range services {
			cmd := exec.Command(filepath.Join(bin, name), "migrate")
			for _, key := range valuesOf(t, name).Secret.Keys {
				cmd.Env = append(cmd.Env, key+"=secret")
			}
			for variable, value := range objects["ConfigMap/"+name].Data {
				cmd.Env = append(cmd.Env, variable+"="+value)
			}
			cmd.Env = append(cmd.Env, "POSTGRES_MIGRATE_URL=postgres://%")
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil {
				t.Fatalf("%s: %v", name, err)
			}
			what := name + " with the settings of " + values + ".yaml"
			wantEqual(t, what+": exit status", cmd.ProcessState.ExitCode(), 1)
			wantContains(t, what+": output", string(out), "POSTGRES_MIGRATE_URL: cannot parse")
		}
	}
}

func TestCharts_ContainEveryDashboardUnchanged(t *testing.T) {
	t.Parallel()
	rendered := manifests(t, "ringfence", append(requiredArgs(t, "ringfence"),
		"--set", "dashboards.enabled=true", "--show-only", "templates/dashboards.yaml")...)
	validate(t, rendered)
	files, err := filepath.Glob(filepath.Join(root, "deploy/grafana/dashboards/*.json"))
	if err != nil {
		t.Fatalf("no dashboards: Glob: %v", err)
	}
	if len(files) == 0 {
		t.Fatal("no dashboards: length of files = 0, want more")
	}
	documents := yaml.NewDecoder(bytes.NewReader(rendered))
	for range files {
		var o struct {
			Metadata struct{ Labels map[string]string }
			Data     map[string]string
		}
		if err := documents.Decode(&o); err != nil {
			t.Fatalf("ConfigMap of %d files: %v", len(files), err)
		}
		wantEqual(t, "files in the ConfigMap", len(o.Data), 1)
		wantEqual(t, "label grafana_dashboard", o.Metadata.Labels["grafana_dashboard"], "1")
		for file, text := range o.Data {
			want := strings.TrimRight(strings.Join(lines(t, "deploy/grafana/dashboards/"+file), "\n"), "\n")
			if got := strings.TrimRight(text, "\n"); got != want {
				t.Errorf("%s differs in the chart: %d bytes, want %d", file, len(got), len(want))
			}
			if !json.Valid([]byte(text)) {
				t.Errorf("%s is not JSON in the chart", file)
			}
		}
	}
}
