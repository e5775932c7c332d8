package compose_test

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// kubeScoreArgs returns arguments with which kube-score leaves out the ignored checks. Warnings
// count as errors. The charts set no CPU limit, because it would throttle a service while other CPU
// is idle. They do not use the pull policy Always, because a start would depend on the registry.
func kubeScoreArgs(ignored ...string) []string {
	args := []string{
		"score", "--output-format", "ci", "--exit-one-on-warning",
		"--kubernetes-version", "v1.25", // the oldest Kubernetes version in docs/deploy/helm.md
		"--enable-optional-test", "container-seccomp-profile",
		"--enable-optional-test", "container-ports-check", "--ignore-container-cpu-limit",
	}
	for _, test := range append(ignored, "container-image-pull-policy") {
		args = append(args, "--ignore-test", test)
	}
	return append(args, "-")
}

// replicasCheck is the name of the check that a Deployment has several replicas. The examples
// environments/small.yaml and the chart simcarrier have one replica, because they are for trials.
const replicasCheck = "deployment-replicas"

// simcarrierChecks are the checks that the chart simcarrier fails intentionally. Each of two
// concurrent carriers would have only half of the calls, so there is one replica and the strategy
// is Recreate.
var simcarrierChecks = []string{replicasCheck, "deployment-strategy"}

// hpaReplicasCheck is the name of the check that a Deployment with a HorizontalPodAutoscaler does
// not set replicas. The charts set replicas anyway: without the field, the API server would set 1
// when autoscaling is enabled.
const hpaReplicasCheck = "deployment-targeted-by-hpa-does-not-have-replicas-configured"

func TestCharts_MatchTheGoldenFiles(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, chart string
		args        []string
		// ignored are the checks of kube-score that the manifests fail intentionally.
		ignored []string
	}{
		{name: "default", chart: "ringfence", args: requiredArgs(t, "ringfence")},
		{name: "small", chart: "ringfence", args: environmentArgs(t, "small"), ignored: []string{replicasCheck}},
		{name: "production", chart: "ringfence", args: environmentArgs(t, "production"), ignored: []string{hpaReplicasCheck}},
		{
			name: "console", chart: "console",
			args: append(requiredArgs(t, "console"), "--set", "test.image="+busybox),
		},
		{name: "simcarrier", chart: "simcarrier", args: requiredArgs(t, "simcarrier"), ignored: simcarrierChecks},
		{
			name: "gateway-for-console", chart: "gateway",
			args: append(requiredArgs(t, "gateway"), "--set", "consolePort=8082", "--set", "env.CONSOLE_URL="+consoleURL),
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			args := row.args
			if row.chart == "ringfence" {
				// The golden files contain neither the alerts nor the dashboards, because other tests
				// check them.
				args = append(args, "--set", "alerts.enabled=false,dashboards.enabled=false")
			}
			rendered := manifests(t, row.chart, args...)
			compareGolden(t, filepath.Join("testdata/charts", row.name+".yaml"), rendered)
			validate(t, rendered)
			runTool(t, rendered, "RINGFENCE_KUBESCORE", kubeScoreArgs(row.ignored...)...)
		})
	}
}

// The chart must contain the rules of deploy/prometheus/rules. Only the addresses of the runbooks
// differ: the chart uses the address in alerts.runbooks.
func TestCharts_ContainEveryAlertRuleUnchanged(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "deploy/prometheus/rules/*.yml"))
	if err != nil {
		t.Fatalf("no rules: Glob: %v", err)
	}
	if len(files) == 0 {
		t.Fatal("no rules: length of files = 0, want more")
	}
	for _, row := range []struct{ name, set, address string }{
		{"default path of the runbooks", "alerts.enabled=true", "docs/runbooks"},
		{
			"address of the operator", "alerts.enabled=true,alerts.runbooks=https://wiki.example.net/on-call",
			"https://wiki.example.net/on-call",
		},
		{
			"address that ends in a slash", "alerts.enabled=true,alerts.runbooks=https://wiki.example.net/?page=/",
			"https://wiki.example.net/?page=",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			args := append(requiredArgs(t, "ringfence"), "--set", row.set, "--show-only", "templates/rules.yaml")
			out := manifests(t, "ringfence", args...)
			validate(t, out)
			if n := bytes.Count(out, []byte("kind: PrometheusRule")); n != len(files) {
				t.Errorf("%d objects for %d files", n, len(files))
			}
			documents := yaml.NewDecoder(bytes.NewReader(out))
			for _, file := range files { // Helm renders the files in the same order
				var o struct {
					Metadata struct{ Name string }
					Spec     any
				}
				if err := documents.Decode(&o); err != nil {
					t.Fatalf("PrometheusRule of %s: %v", file, err)
				}
				name := "ringfence-" + strings.TrimSuffix(filepath.Base(file), ".yml")
				wantEqual(t, "name of the PrometheusRule", o.Metadata.Name, name)
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				var want any
				if err := yaml.Unmarshal(runbook.ReplaceAll(text, []byte("runbook_url: "+row.address+"/$1.md")), &want); err != nil {
					t.Fatal(err)
				}
				if len(runbook.FindAll(text, -1)) != bytes.Count(text, []byte("- alert: ")) {
					t.Errorf("%s: not every alert has a runbook", file)
				}
				if !reflect.DeepEqual(want, o.Spec) {
					t.Errorf("%s is another in the chart:\n%v\nwant:\n%v", file, o.Spec, want)
				}
			}
		})
	}
}

var runbook = regexp.MustCompile(`runbook_url: docs/runbooks/([A-Za-z]+)\.md`)

// runTool passes the manifests to a program and fails the test if the program fails. variable is
// the environment variable that contains the program's path.
func runTool(t *testing.T, rendered []byte, variable string, args ...string) {
	t.Helper()
	program := os.Getenv(variable)
	if program == "" {
		t.Fatalf("%s names no program: run `make charts`", variable)
	}
	cmd := exec.Command(program, args...)
	cmd.Stdin = bytes.NewReader(rendered)
	out, err := cmd.CombinedOutput()
	var faults []string
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "[OK]") && !strings.HasPrefix(line, "[SKIPPED]") {
			faults = append(faults, line)
		}
	}
	if err != nil {
		t.Errorf("%s: %v:\n%s", variable, err, strings.Join(faults, ""))
	}
}

func TestCharts_PassHelmLint(t *testing.T) {
	t.Parallel()
	for chart, args := range map[string][]string{
		"ringfence":  append(environmentArgs(t, "production"), "--with-subcharts"),
		"console":    requiredArgs(t, "console"),
		"simcarrier": requiredArgs(t, "simcarrier"),
	} {
		args = append([]string{"lint", "--strict", "--quiet", filepath.Join(root, "helm", chart)}, args...)
		out, stderr, err := runHelm(t, args...)
		if err != nil {
			t.Errorf("helm lint %s: %v\n%s%s", chart, err, out, stderr)
		}
	}
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("%s %v, want %v", what, got, want)
	}
}

// An API server rejects an exception that is outside of the IP block.
func TestCharts_InternetExcludesPrivateNetworks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"webhook-dispatcher", "dialer"} {
		internet := valuesOf(t, name).Network.Internet
		for world, exceptions := range map[string][]string{"0.0.0.0/0": internet.Except4, "::/0": internet.Except6} {
			_, whole, err := net.ParseCIDR(world)
			if err != nil {
				t.Fatal(err)
			}
			if len(exceptions) < 5 {
				t.Fatalf("%s: exceptions of %s = %v, want at least 5", name, world, exceptions)
			}
			for _, exception := range exceptions {
				_, part, err := net.ParseCIDR(exception)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				wantEqual(t, name+": network of "+exception, part.String(), exception)
				if !whole.Contains(part.IP) {
					t.Errorf("%s: %s is outside of %s", name, exception, world)
				}
			}
		}
		for _, private := range []string{
			"10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.168.0.1", "198.18.0.1", "224.0.0.1", "0.0.0.0", "255.255.255.255",
			"::1", "64:ff9b::a00:1", "fd00::1", "fe80::1", "ff02::1", "2002:a00:1::",
		} {
			at := netip.MustParseAddr(private)
			if !slices.ContainsFunc(slices.Concat(internet.Except4, internet.Except6), func(network string) bool { return netip.MustParsePrefix(network).Contains(at) }) {
				t.Errorf("%s may reach %s", name, private)
			}
		}
	}
}

// The grace period is one minute longer than the longest call of an agent.
func TestCharts_GracePeriodExceedsTheLongestCall(t *testing.T) {
	t.Parallel()
	v := valuesOf(t, "dialer")
	drain, err := time.ParseDuration(v.Env["DRAIN_LIMIT"].(string))
	if err != nil {
		t.Fatal(err)
	}
	agent := strings.Join(lines(t, "services/calls/internal/agents/agents.go"), "\n")
	match := regexp.MustCompile(`maxMaxCallSeconds += (\d+)`).FindStringSubmatch(agent)
	if match == nil {
		t.Fatal("maxMaxCallSeconds was not found in the code")
	}
	longest, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatal(err)
	}
	ring := regexp.MustCompile(`env:"RING_LIMIT" +envDefault:"(\w+)"`).FindStringSubmatch(strings.Join(lines(t, "services/dialer/cmd/dialer/config.go"), "\n"))
	first := regexp.MustCompile(`FirstRing += (\d+) \* time.Second`).FindStringSubmatch(strings.Join(lines(t, "services/dialer/internal/sip/invite.go"), "\n"))
	if ring == nil {
		t.Fatal("RING_LIMIT was not found in the code")
	}
	if first == nil {
		t.Fatal("the time until the first response to an INVITE was not found in the code")
	}
	unanswered := time.Duration(0)
	for _, text := range []string{ring[1], first[1] + "s"} {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		unanswered += d
	}
	if drain < time.Duration(longest)*time.Second+unanswered {
		t.Errorf("DRAIN_LIMIT = %s, want at least the longest call (%d s) and the time until its answer (%s)",
			drain, longest, unanswered)
	}
	if grace := time.Duration(v.Grace) * time.Second; grace < drain+time.Minute {
		t.Errorf("grace period = %s, want at least DRAIN_LIMIT (%s) and one minute", grace, drain)
	}
}
