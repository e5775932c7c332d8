package compose_test

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestComposeFile_IsValid(t *testing.T) {
	t.Parallel()
	program := os.Getenv("RINGFENCE_COMPOSE")
	if program == "" {
		t.Skip("RINGFENCE_COMPOSE names no program: `make charts` builds it and runs this")
	}
	file := filepath.Join(root, "docker-compose.yml")
	if out, err := exec.Command(program, "-f", file, "config").CombinedOutput(); err != nil {
		t.Errorf("docker-compose.yml: %v: %s", err, out)
	}
	broken := filepath.Join(t.TempDir(), "compose.yml")
	if err := os.WriteFile(broken, []byte("services:\n  a:\n    image: a:1\n    helthcheck: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, "-f", broken, "config").CombinedOutput()
	if err == nil {
		t.Error("a misspelt field was accepted, want a refusal")
	}
	wantContains(t, "refusal", string(out), "helthcheck")
}

func parsed(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(strings.Join(lines(t, path), "\n")), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestComposeFile_HealthCheckCommandsAndPortsExist(t *testing.T) {
	t.Parallel()
	c := composed(t)
	image, frame := strings.Join(lines(t, "deploy/Dockerfile"), "\n"), goText(t, "libs/service")
	for _, name := range append([]string{"simcarrier"}, withConsole...) {
		s := c.Services[name]
		code := frame
		if name == "simcarrier" {
			code = goText(t, "cmd/simcarrier")
		}
		probe := s.Healthcheck.Test
		if len(probe) != 3 {
			t.Fatalf("%s: health check = %q, want three words", name, probe)
		}
		wantContains(t, "deploy/Dockerfile", image, fmt.Sprintf("ENTRYPOINT [%q]", probe[1]))
		if command := regexp.MustCompile(`rgs\[[01]\] == "` + probe[2] + `"`); !command.MatchString(code) {
			t.Errorf("%s: the program has no command %q, which its health check runs", name, probe[2])
		}
		var opens []string
		for variable, value := range env(t, name) {
			if _, port, err := net.SplitHostPort(value); err == nil && strings.HasSuffix(variable, "_ADDR") {
				opens = append(opens, port)
			}
		}
		for _, published := range s.Ports {
			if port := published[strings.LastIndex(published, ":")+1:]; !slices.Contains(opens, port) {
				t.Errorf("%s: %s is published, the process opens %v", name, published, opens)
			}
		}
	}
}

func TestComposeFile_MonitoringAddressesExist(t *testing.T) {
	t.Parallel()
	c := composed(t)
	leads := func(who, address string, ports ...string) {
		t.Helper()
		host, port, err := net.SplitHostPort(strings.TrimPrefix(address, "http://"))
		if err != nil {
			t.Errorf("%s: %v", who, err)
		}
		if _, ok := c.Services[host]; !ok {
			t.Errorf("%s: %s is no service of the file", who, host)
		}
		if !slices.Contains(ports, port) {
			t.Errorf("%s: port = %s, want one of %v", who, port, ports)
		}
	}
	var collector struct {
		Receivers struct {
			OTLP struct {
				Protocols map[string]struct{ Endpoint string }
			}
		}
		Processors, Exporters, Extensions map[string]struct{ Endpoint string }
		Service                           struct {
			Extensions []string
			Pipelines  map[string]struct{ Receivers, Processors, Exporters []string }
		}
	}
	parsed(t, "deploy/otel/collector.yml", &collector)
	_, port, _ := net.SplitHostPort(collector.Receivers.OTLP.Protocols["http"].Endpoint)
	for _, name := range services {
		leads(name, c.Services[name].Environment["OTEL_EXPORTER_OTLP_ENDPOINT"], port)
	}
	leads("the collector", collector.Exporters["otlp"].Endpoint, "4317")
	_, port, _ = net.SplitHostPort(collector.Extensions["health_check"].Endpoint)
	wantSlice(t, "extensions of the collector", collector.Service.Extensions, []string{"health_check"})
	probe, want := c.Services["collector-health"].Healthcheck.Test, "http://collector:"+port+"/"
	if !slices.Contains(probe, want) {
		t.Errorf("health check of the collector = %v, want %s in it", probe, want)
	}
	traces := collector.Service.Pipelines["traces"]
	for _, processor := range traces.Processors {
		if _, ok := collector.Processors[processor]; !ok {
			t.Errorf("the collector has no processor %s", processor)
		}
	}
	wantSlice(t, "receivers of traces", traces.Receivers, []string{"otlp"})
	wantSlice(t, "exporters of traces", traces.Exporters, []string{"otlp"})
	var prometheus struct {
		Rules  []string `yaml:"rule_files"`
		Scrape []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	parsed(t, "deploy/prometheus/prometheus.yml", &prometheus)
	for _, pattern := range prometheus.Rules {
		if found, err := filepath.Glob(filepath.Join(root, "deploy/prometheus", pattern)); err != nil {
			t.Errorf("Glob: %v", err)
		} else if len(found) == 0 {
			t.Errorf("Glob: length of found = 0, want more; pattern = %s", pattern)
		}
	}
	var scraped []string
	for _, job := range prometheus.Scrape {
		for _, static := range job.Static {
			for _, target := range static.Targets {
				host, _, _ := strings.Cut(target, ":")
				scraped = append(scraped, host)
				if slices.Contains(withConsole, host) {
					leads("Prometheus", target, strings.TrimPrefix(env(t, host)["PRIVATE_ADDR"], ":"))
				} else {
					leads("Prometheus", target, "8888")
				}
			}
		}
	}
	for _, name := range withConsole {
		if !slices.Contains(scraped, name) {
			t.Errorf("Prometheus does not scrape %s", name)
		}
	}
	var sources struct{ Datasources []struct{ UID, URL string } }
	parsed(t, "deploy/grafana/provisioning/datasources/ringfence.yml", &sources)
	for _, source := range sources.Datasources {
		at, err := url.Parse(source.URL)
		if err != nil {
			t.Errorf("source %s of Grafana at %s: url.Parse: %v", source.UID, source.URL, err)
		} else if !c.Services[at.Hostname()].publishes(at.Port()) {
			t.Errorf("source %s of Grafana at %s: published ports = %v, want port %s",
				source.UID, source.URL, c.Services[at.Hostname()].Ports, at.Port())
		}
	}
}

// TestComposeFile_ConnectionsFitPostgres compares max_connections with the connections that all
// services and their migrations can open (docs/runbooks/postgres-connections.md).
func TestComposeFile_ConnectionsFitPostgres(t *testing.T) {
	t.Parallel()
	command, most := composed(t).Services["postgres"].Command, 0
	for _, word := range command {
		if text, ok := strings.CutPrefix(word, "max_connections="); ok {
			most, _ = strconv.Atoi(text)
		}
	}
	pool, _ := strconv.Atoi(poolSize(t))
	sum := 0
	for _, name := range slices.Sorted(maps.Keys(composed(t).Services)) {
		if slices.Contains(services, name) {
			own := pool
			if text := env(t, name)["POSTGRES_MAX_CONNS"]; text != "" {
				own, _ = strconv.Atoi(text)
			}
			sum += own + 1 + 2
		}
	}
	if pool == 0 {
		t.Error("the size of a pool was not found")
	}
	if sum+13 > most { // 13 connections are reserved for superusers and operators
		t.Errorf("connections of the services = %d, want at most %d", sum, most-13)
	}
}

func poolSize(t *testing.T) string {
	t.Helper()
	help := described(t, "services/calls")["POSTGRES_MAX_CONNS"]
	_, size, _ := strings.Cut(help, "Default: ")
	return strings.TrimSuffix(size, ".")
}

func TestCharts_PoolSizeEqualsTheDefaultInTheCode(t *testing.T) {
	t.Parallel()
	if text := strings.Join(lines(t, "helm/ringfence/templates/budget.yaml"), "\n"); !strings.Contains(text, "POSTGRES_MAX_CONNS | default "+poolSize(t)+")") {
		t.Errorf("the charts count with another pool than the default of %s", poolSize(t))
	}
}
