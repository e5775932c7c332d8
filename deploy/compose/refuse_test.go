package compose_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestCharts_RefuseWrongValues(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, set, want string }{
		{"a variable that the service does not read", "calls.env.KAFKA_BROKRS=x", "KAFKA_BROKRS"},
		{"a secret among the plain variables", "calls.env.SIGNING_KEY=x", "SIGNING_KEY"},
		{"a number of replicas that is not a number", "calls.replicas=two", "replicas"},
		{"an unsupported kind of workload", "dialer.kind=DaemonSet", "kind"},
		{"a pull policy in lower case", "gateway.image.pullPolicy=never", "pullPolicy"},
		{"a port above 65535", "gateway.adminPort=70000", "adminPort"},
		{"an unknown way to run the migration", "calls.migrate.as=cron", "/migrate/as"},
		{
			"a maximum of replicas below the minimum",
			"calls.autoscaling.enabled=true,calls.autoscaling.min=5,calls.autoscaling.max=2", "max (2) is less than min (5)",
		},
		{
			"more replicas than partitions",
			"contacts-compliance.autoscaling.enabled=true,contacts-compliance.autoscaling.max=4",
			"max is 4, and the topics of the service have at most 3 partitions",
		},
		{
			"a metric with a limit for all replicas and one for each",
			"calls.autoscaling.by[0].metric=a,calls.autoscaling.by[0].above=1,calls.autoscaling.by[0].each=1," +
				"calls.autoscaling.by[0].partitions=12",
			"/autoscaling/by/0",
		},
		{"a volume for a Deployment", "calls.state.size=1Gi", "only a StatefulSet"},
		{"an address instead of a network", "global.nodes={10.0.0.1}", "nodes"},
		{"no trusted public key", "calls.env.TRUSTED_KEYS=", "no public key of gateway"},
		{
			"the public key of only one of two calling services", "dialer.env.TRUSTED_KEYS=gateway=" + publicKey,
			"no public key of calls",
		},
		{
			"a placeholder instead of a key", "calls.env.TRUSTED_KEYS=gateway=BASE64",
			`"BASE64" is not the public key of gateway`,
		},
		{"an empty key", "calls.env.TRUSTED_KEYS=gateway=", `"" is not the public key of gateway`},
		{"no registry", "global.registry=", ":0.1.0 names no registry: set global.registry"},
		{"a dialer without the networks of its nodes", "global.nodes=null", "global.nodes is empty"},
		{"the node's address without host networking", "dialer.hostNetwork=false", "RTP_ADDR would be the node's address"},
		{"an address that is set in hostAddress and in env", "dialer.env.RTP_ADDR=192.0.2.1", "RTP_ADDR is also set in env"},
		{"a SIP address on the loopback network", "dialer.hostAddress={RTP_ADDR}", "SIP_ADVERTISED_ADDR is set neither"},
		{
			"a grace period shorter than the calls", "dialer.terminationGracePeriodSeconds=3600",
			"can take 14545 seconds to end (5s, 20s, 4h2m)",
		},
		{
			"a grace period shorter than the default of DRAIN_LIMIT",
			"dialer.env.DRAIN_LIMIT=null,dialer.terminationGracePeriodSeconds=39", "can take 40 seconds to end (5s, 20s, 15s)",
		},
		{"a grace period shorter than DRAIN_DELAY", "calls.env.DRAIN_DELAY=1m30s", "can take 110 seconds to end"},
		{
			"recordings in a directory outside the volume",
			"dialer.env.RECORDINGS_S3_URL=https://storage.example.net,dialer.env.RECORDINGS_SPOOL_DIR=/tmp/spool",
			"must outlive the pod",
		},
		{"recordings without a volume", "dialer.env.RECORDINGS_S3_URL=https://storage.example.net,dialer.state=null", "must outlive the pod"},
		{
			"recordings in RECORDINGS_DIR, which each replica would have alone", "dialer.env.RECORDINGS_DIR=/state/kept",
			"RECORDINGS_DIR",
		},
		{
			"a broker at a port that the network policy forbids", "calls.env.KAFKA_BROKERS=kafka:9092\\,kafka:9094",
			"network.kafka.ports has no 9094",
		},
		{
			"a collector at a port that the network policy forbids",
			"calls.env.OTEL_EXPORTER_OTLP_ENDPOINT=https://collector.example.net", "network.collector.ports has no 443",
		},
		{"a memory limit in a unit that GOMEMLIMIT does not support", "calls.resources.limits.memory=512M", "memory"},
		{"a service that does not exist", "calls.network.askedBy={unknown-service}", "askedBy"},
		{"an unknown value of a service", "dialer.replica=3", "replica"},
		{"an unknown value of the whole chart", "postgres.maxConns=3", "maxConns"},
		{"an empty address of the runbooks", "alerts.runbooks=", "/alerts/runbooks"},
		{
			"an address of the runbooks that contains a Prometheus template",
			"alerts.runbooks=https://wiki.example.net/{{ $labels.job }}", "/alerts/runbooks",
		},
		{"more connections than the database permits", "calls.replicas=9", "postgres.maxConnections"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			arguments := []string{"template", "ringfence", filepath.Join(root, "helm/ringfence")}
			arguments = append(arguments, requiredArgs(t, "ringfence")...)
			_, stderr, err := runHelm(t, append(arguments, "--set", row.set)...)
			if err == nil {
				t.Errorf("--set %s rendered, want a refusal", row.set)
			}
			wantContains(t, "refusal", stderr, row.want)
		})
	}
}

// TestCharts_DrainTimesMatchTheCode compares the shutdown times in the template
// ringfence-lib.refuse with two times in the code: the time that all parts of a service have to
// stop (20 s), and the default of DRAIN_LIMIT.
func TestCharts_DrainTimesMatchTheCode(t *testing.T) {
	t.Parallel()
	stopTimeout := regexp.MustCompile(`(?m)^const stopTimeout = (\d+) \* time\.Second$`)
	drain := stopTimeout.FindStringSubmatch(goText(t, "libs/service"))
	if drain == nil {
		t.Fatal("libs/service has no constant stopTimeout")
	}
	text := strings.Join(lines(t, "helm/ringfence-lib/templates/_refuse.tpl"), "\n")
	wantContains(t, "_refuse.tpl", text, `"`+drain[1]+`s" }}`)
	config := strings.Join(lines(t, "services/dialer/cmd/dialer/config.go"), "\n")
	limit := regexp.MustCompile("`env:\"DRAIN_LIMIT\" +envDefault:\"(\\w+)\"").FindStringSubmatch(config)
	if limit == nil {
		t.Fatal("the dialer has no default of DRAIN_LIMIT")
	}
	wantContains(t, "_refuse.tpl", text, `.Values.env.DRAIN_LIMIT | default "`+limit[1]+`"`)
}

// A chart must not render without its required values. An example of helm/environments must not
// render without the operator's keys (docs/deploy/helm.md, section Install).
func TestCharts_RefuseToRenderWithoutTheOperatorsValues(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, chart string
		args        []string
		want        string
	}{
		{name: "gateway alone", chart: "gateway", want: "names no registry"},
		{name: "calls alone", chart: "calls", want: "names no public key of gateway"},
		{name: "simcarrier alone", chart: "simcarrier", want: "names no registry"},
		{name: "all six", chart: "ringfence", want: "names no registry"},
		{
			name: "small.yaml alone", chart: "ringfence",
			args: []string{"--values", filepath.Join(root, "helm/environments/small.yaml")},
			want: "names no public key of gateway",
		},
		{
			name: "production.yaml alone", chart: "ringfence",
			args: []string{"--values", filepath.Join(root, "helm/environments/production.yaml")},
			want: "names no public key of gateway",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			out, stderr, err := runHelm(t,
				append([]string{"template", "ringfence", filepath.Join(root, "helm", row.chart)}, row.args...)...)
			if err == nil {
				t.Fatalf("helm template rendered %d bytes, want a refusal", len(out))
			}
			if !strings.Contains(stderr, row.want) {
				t.Errorf("refusal = %s, want it to contain %q", stderr, row.want)
			}
		})
	}
}
