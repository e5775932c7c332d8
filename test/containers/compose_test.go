package containers_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"ringfence.dev/test/kit"
)

const (
	receiverHost = kit.ReceiverHost
	// sandboxAddr is the address of the sandbox in the network of the containers.
	sandboxAddr  = "172.17.0.1"
	receiverPort = "8443"

	baseURL  = "http://localhost:18080"
	adminURL = "http://localhost:18081"
	token    = "example-operator-token"
	// answeringNumber is answered by the simulated carrier (docs/test-numbers.md).
	answeringNumber = "+14155550101"
)

// TestCompose_CommandsOfThePageWork runs the commands of docs/deploy/compose.md in their order, and
// checks what the page promises.
func TestCompose_CommandsOfThePageWork(t *testing.T) {
	needSandbox(t)
	receiver := startReceiver(t)
	t.Setenv("COMPOSE_FILE", "docker-compose.yml:"+composeOverride(t, receiver.CAFile))
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := run(context.Background(), "docker", "compose", "ps", "--all")
			logs, _ := run(context.Background(), "docker", "compose", "logs", "--tail", "20")
			t.Logf("%s\n%s", out, logs)
		}
		if _, err := run(context.Background(), "docker", "compose", "down", "--volumes", "--timeout", "1"); err != nil {
			t.Error(err)
		}
	})
	page := pageCommands(t)
	mustRun(t, "sh", "-euc", page.start)
	if output, err := kit.FirstCall(t.Context(), root, baseURL, adminURL, token); err != nil {
		t.Fatalf("first call: %v:\n%s", err, output)
	}
	mustRun(t, "sh", "-euc", page.operate)
	w := newWorkspace(t)
	if _, err := w.Subscribe(t.Context(), receiver); err != nil {
		t.Fatal(err)
	}
	request := placeCall(t, w)
	await(t, "a signed webhook call.completed arrives", func() (bool, error) {
		return slices.ContainsFunc(receiver.Deliveries(w.ID), func(d kit.Delivery) bool {
			return d.Type == "call.completed" && d.Signed
		}), nil
	})
	checkTelemetry(t)
	t.Run("killed containers start again", func(t *testing.T) { checkKilledContainers(t, w) })

	mustRun(t, "sh", "-euc", page.stop)
	mustRun(t, "sh", "-euc", page.start)
	kept, err := w.Request(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if kept.Status != "completed" {
		t.Errorf("status after down and up = %s, want completed", kept.Status)
	}
	placeCall(t, w)
	if differences, err := w.Differences(t.Context()); err != nil {
		t.Error(err)
	} else if len(differences) > 0 {
		t.Errorf("differences of the wallet = %v, want none", differences)
	}
}

// A planted defect in the settings must prevent the start, so that a start is known to check them.
func TestCompose_WrongVariablesPreventTheStart(t *testing.T) {
	needSandbox(t)
	receiver := startReceiver(t)
	override := composeOverride(t, receiver.CAFile)
	const wrongPassword = "postgres://billing_wallet_app:wrong@postgres:5432/ringfence?sslmode=disable"
	for _, row := range []struct{ name, service, variable, value string }{
		{name: "wrong broker", service: "calls", variable: "KAFKA_BROKERS", value: "kafka:9093"},
		{name: "wrong password", service: "billing-wallet", variable: "POSTGRES_URL", value: wrongPassword},
		{name: "misspelt key", service: "dialer", variable: "SEALING_KEYS", value: "example=wrong"},
	} {
		t.Run(row.name, func(t *testing.T) {
			broken := filepath.Join(t.TempDir(), "broken.yml")
			text := "services: {" + row.service + ": {environment: {" + row.variable + `: "` + row.value + `"}}}`
			if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("COMPOSE_FILE", "docker-compose.yml:"+override+":"+broken)
			t.Cleanup(func() {
				if _, err := run(context.Background(), "docker", "compose", "down", "--volumes", "--timeout", "1"); err != nil {
					t.Error(err)
				}
			})
			if _, err := run(t.Context(), "docker", "compose", "up", "--wait", "--wait-timeout", "90", row.service); err == nil {
				t.Errorf("%s starts with %s=%s, want a failure", row.service, row.variable, row.value)
			}
		})
	}
}

// page contains the commands of docs/deploy/compose.md.
type page struct{ start, operate, stop string }

func pageCommands(t *testing.T) (p page) {
	t.Helper()
	blocks, err := kit.PageBlocks(root, kit.DeployTest)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if b.Page != "docs/deploy/compose.md" {
			continue
		}
		for line := range strings.Lines(b.Text) {
			command, _, _ := strings.Cut(line, "  #")
			command = strings.TrimSpace(command) + "\n"
			switch {
			case strings.HasPrefix(command, "docker compose up"):
				p.start += command
			case strings.Contains(command, "down --volumes"): // the cleanup of the test runs this command
			case strings.HasPrefix(command, "docker compose down"):
				p.stop += command
			default:
				p.operate += strings.Replace(command, "logs -f", "logs", 1) // -f does not end
			}
		}
	}
	for name, commands := range map[string]string{"start": p.start, "operate": p.operate, "stop": p.stop} {
		if commands == "" {
			t.Fatalf("docs/deploy/compose.md has no command to %s", name)
		}
	}
	return p
}

// startReceiver starts a webhook receiver that the containers reach at receiverHost.
func startReceiver(t *testing.T) *kit.Receiver {
	t.Helper()
	receiver, err := kit.NewReceiver(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(receiver.Close)
	local := strings.TrimPrefix(receiver.URL, "https://")
	listener, err := net.Listen("tcp", sandboxAddr+":"+receiverPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(from, local)
		}
	}()
	receiver.URL = "https://" + receiverHost + ":" + receiverPort
	return receiver
}

func forward(from net.Conn, address string) {
	to, err := net.Dial("tcp", address)
	if err == nil {
		go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
		_, _ = io.Copy(from, to)
	}
	_ = from.Close()
}

func newWorkspace(t *testing.T) *kit.Workspace {
	t.Helper()
	stack := &kit.Stack{}
	stack.Demo.BaseURL, stack.Demo.AdminURL, stack.Demo.AdminToken = baseURL, adminURL, token
	w, err := stack.NewWorkspace(t.Context(), "containers", "1000")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func await(t *testing.T, condition string, cond func() (bool, error)) {
	t.Helper()
	if err := kit.Until(t.Context(), kit.HangTimeout, condition, cond); err != nil {
		t.Fatal(err)
	}
}

// placeCall places a call and returns its call request when it is completed.
func placeCall(t *testing.T, w *kit.Workspace) (id string) {
	t.Helper()
	request, err := w.Place(t.Context(), map[string]any{"to": answeringNumber})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the call is completed", func() (bool, error) {
		now, err := w.Request(t.Context(), request.ID)
		if err != nil || !now.Final() {
			return false, err
		}
		if now.Status != "completed" {
			return false, errors.New("call request " + now.ID + " is " + now.Status)
		}
		return true, nil
	})
	return request.ID
}

// checkTelemetry waits for traces of all services in Jaeger, and for all targets of Prometheus.
func checkTelemetry(t *testing.T) {
	t.Helper()
	read := func(url string, into any) error {
		status, body, err := kit.NewClient(url, "").Do(t.Context(), http.MethodGet, "", nil)
		if err == nil && status != http.StatusOK {
			err = errors.New(url + ": status " + strconv.Itoa(status))
		}
		return errors.Join(err, json.Unmarshal(body, into))
	}
	own := services[:6]
	await(t, "Jaeger has traces of every service", func() (bool, error) {
		var found struct{ Data []string }
		if err := read("http://localhost:16686/api/services", &found); err != nil {
			return false, nil //nolint:nilerr // Jaeger may not be ready
		}
		return !slices.ContainsFunc(own, func(name string) bool { return !slices.Contains(found.Data, name) }), nil
	})
	await(t, "Prometheus reads the metrics of every service", func() (bool, error) {
		var targets struct {
			Data struct {
				Active []struct {
					Labels struct{ Job string }
					Health string
				} `json:"activeTargets"`
			}
		}
		if err := read("http://localhost:9090/api/v1/targets", &targets); err != nil {
			return false, nil //nolint:nilerr // Prometheus may not be ready
		}
		up := 0
		for _, target := range targets.Data.Active {
			if target.Health == "up" {
				up++
			}
		}
		return up > len(own), nil // and the collector
	})
}

// checkKilledContainers sends SIGKILL to the process of each container and places a call after its
// restart.
func checkKilledContainers(t *testing.T, w *kit.Workspace) {
	names := strings.Fields(mustRun(t, "docker", "compose", "ps", "--services"))
	if len(names) < 13 {
		t.Fatalf("running services = %v, want at least 13", names)
	}
	for _, name := range names {
		id := strings.TrimSpace(mustRun(t, "docker", "compose", "ps", "-q", name))
		inspect := func() (pid, restarts int, healthy bool) {
			const format = "{{.State.Pid}} {{.RestartCount}} {{if .State.Health}}{{.State.Health.Status}}{{else}}healthy{{end}}"
			fields := strings.Fields(mustRun(t, "docker", "inspect", "-f", format, id))
			pid, _ = strconv.Atoi(fields[0])
			restarts, _ = strconv.Atoi(fields[1])
			return pid, restarts, fields[2] == "healthy"
		}
		pid, before, _ := inspect()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %s: %v", name, err)
		}
		await(t, name+" is healthy again", func() (bool, error) {
			_, restarts, healthy := inspect()
			return restarts > before && healthy, nil
		})
	}
	await(t, "the gateway is ready", func() (bool, error) {
		status, _, err := kit.NewClient(baseURL, "").Do(t.Context(), http.MethodGet, "/readyz", nil)
		return err == nil && status == http.StatusOK, nil
	})
	placeCall(t, w)
}
