package compose_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestCharts_RefuseWrongValues(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, set, says string }{
		{"a variable that the service does not read", "calls.env.KAFKA_BROKRS=x", "KAFKA_BROKRS"},
		{"a secret among the plain variables", "calls.env.SIGNING_KEY=x", "SIGNING_KEY"},
		{"a number of replicas in words", "calls.replicas=two", "replicas"},
		{"a kind that is none", "dialer.kind=DaemonSet", "kind"},
		{"a pull policy in lower case", "gateway.image.pullPolicy=never", "pullPolicy"},
		{"a port that cannot be", "gateway.adminPort=70000", "adminPort"},
		{"a migration by a stranger", "calls.migrate.as=cron", "/migrate/as"},
		{"less replicas at most than at least", "calls.autoscaling.enabled=true,calls.autoscaling.min=5,calls.autoscaling.max=2", "max (2) is less than min (5)"},
		{"more consumers than partitions", "contacts-compliance.autoscaling.enabled=true,contacts-compliance.autoscaling.max=4", "max is 4, and what it reads has 3 partitions"},
		{"a record as a limit and as a share", "calls.autoscaling.by[0].metric=a,calls.autoscaling.by[0].above=1,calls.autoscaling.by[0].each=1,calls.autoscaling.by[0].partitions=12", "/autoscaling/by/0"},
		{"a volume without a name", "calls.state.size=1Gi", "only a StatefulSet"},
		{"a network that is an address", "global.nodes={10.0.0.1}", "nodes"},
		{"no trusted key", "calls.env.TRUSTED_KEYS=", "no public key of gateway"},
		{"one asker's key and not the other's", "dialer.env.TRUSTED_KEYS=gateway=" + publicKey, "no public key of calls"},
		{
			"a placeholder instead of a key", "calls.env.TRUSTED_KEYS=gateway=BASE64",
			`"BASE64" is not the public key of gateway`,
		},
		{"an empty key", "calls.env.TRUSTED_KEYS=gateway=", `"" is not the public key of gateway`},
		{"no registry", "global.registry=", ":0.1.0 names no registry: set global.registry"},
		{"a dialer without the networks of its nodes", "global.nodes=null", "global.nodes is empty"},
		{"the node's address without its network", "dialer.hostNetwork=false", "RTP_ADDR would be the node's address"},
		{"an address from two sides", "dialer.env.RTP_ADDR=192.0.2.1", "RTP_ADDR is also set in env"},
		{"telephony on the loopback", "dialer.hostAddress={RTP_ADDR}", "SIP_ADVERTISED_ADDR is set neither"},
		{"a pod that ends before its calls", "dialer.terminationGracePeriodSeconds=3600", "may take 14545 to end (5s, 20s, 4h2m)"},
		{
			"a pod that ends before its calls, with the default of DRAIN_LIMIT",
			"dialer.env.DRAIN_LIMIT=null,dialer.terminationGracePeriodSeconds=39", "may take 40 to end (5s, 20s, 15s)",
		},
		{"a pod that ends before it has left", "calls.env.DRAIN_DELAY=1m30s", "may take 110 to end"},
		{"recordings on a disk that cannot be written", "dialer.env.RECORDINGS_S3_URL=https://storage.example.net,dialer.env.RECORDINGS_SPOOL_DIR=/tmp/spool", "must outlive the pod"},
		{"recordings without a volume", "dialer.env.RECORDINGS_S3_URL=https://storage.example.net,dialer.state=null", "must outlive the pod"},
		{"recordings in a directory of each replica", "dialer.env.RECORDINGS_DIR=/state/kept", "RECORDINGS_DIR"},
		{"a broker at a port that is shut", "calls.env.KAFKA_BROKERS=kafka:9092\\,kafka:9094", "network.kafka.ports has no 9094"},
		{"a collector at a port that is shut", "calls.env.OTEL_EXPORTER_OTLP_ENDPOINT=https://collector.example.net", "network.collector.ports has no 443"},
		{"memory in a unit that GOMEMLIMIT is not made of", "calls.resources.limits.memory=512M", "memory"},
		{"a service that does not exist", "calls.network.askedBy={stranger}", "askedBy"},
		{"a value with another name", "dialer.replica=3", "replica"},
		{"a setting of the whole with another name", "postgres.maxConns=3", "maxConns"},
		{"runbooks without a place", "alerts.runbooks=", "/alerts/runbooks"},
		{"runbooks at an address that is a template of Prometheus", "alerts.runbooks=https://wiki.example.net/{{ $labels.job }}", "/alerts/runbooks"},
		{"more connections than there are", "calls.replicas=9", "postgres.maxConnections"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			arguments := []string{"template", "ringfence", filepath.Join(root, "helm/ringfence")}
			arguments = append(arguments, least(t, "ringfence")...)
			_, stderr, err := helm(t, append(arguments, "--set", row.set)...)
			if err == nil {
				t.Errorf("--set %s rendered, want a refusal", row.set)
			}
			wantContains(t, "refusal", stderr, row.says)
		})
	}
}

// TestCharts_RefusalsCountWithTheCodesDrain compares the times in the template ringfence-lib.refuse
// with the times in the code: 20 s, and the default of DRAIN_LIMIT.
func TestCharts_RefusalsCountWithTheCodesDrain(t *testing.T) {
	t.Parallel()
	drain := regexp.MustCompile(`(?m)^const drain = (\d+) \* time\.Second$`).FindStringSubmatch(goText(t, "libs/service"))
	if drain == nil {
		t.Fatal("libs/service has no constant drain")
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

// A chart must not render without its required values, and an example not without the operator's
// keys (docs/deploy/helm.md, section Install).
func TestCharts_RefuseToRenderWithoutTheOperatorsValues(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, chart string
		args        []string
		want        string
	}{
		{name: "gateway alone", chart: "gateway", want: "names no registry"},
		{name: "calls alone", chart: "calls", want: "names no public key of gateway"},
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
			out, stderr, err := helm(t,
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
