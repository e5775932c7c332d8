package containers_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

const (
	receiverHost = kit.ReceiverHost
	// sandboxAddr is the address of the sandbox in the network of the containers.
	sandboxAddr  = "172.17.0.1"
	receiverPort = "8443"
	// composeNet is the network of the containers. The dialer has a fixed address in it, for SIP.
	composeNet = "172.28.0.0/24"
	dialerAddr = "172.28.0.100"

	baseURL    = "http://localhost:18080"
	adminURL   = "http://localhost:18081"
	consoleURL = "http://localhost:18082"
	token      = "example-operator-token"
	// answeringNumber is answered by the simulated carrier (docs/test-numbers.md).
	answeringNumber = "+14155550101"
)

// TestCompose_CommandsOfThePageWork runs the commands of docs/deploy/compose.md in their order, and
// checks what the page promises.
func TestCompose_CommandsOfThePageWork(t *testing.T) {
	needSandbox(t)
	receiver := startReceiver(t)
	files := "docker-compose.yml:" + composeOverride(t, receiver.CAFile)
	t.Setenv("COMPOSE_FILE", files)
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
	checkQuietStart(t)
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
	checkConsole(t)
	checkTelemetry(t)
	t.Run("killed containers start again", func(t *testing.T) { checkKilledContainers(t, w) })
	var recorded string
	t.Run("a recording is in MinIO", func(t *testing.T) { recorded = checkRecording(t, w, files) })

	mustRun(t, "sh", "-euc", page.stop)
	mustRun(t, "sh", "-euc", page.start)
	if recorded != "" {
		readRecording(t, w, recorded)
	}
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

// Each row sets one variable to a wrong value. The service must then fail to start, and its log
// must contain the reason. The first row is the control: its value is valid, so the gateway and all
// services that it needs must start.
func TestCompose_WrongVariablesPreventTheStart(t *testing.T) {
	needSandbox(t)
	receiver := startReceiver(t)
	override := composeOverride(t, receiver.CAFile)
	const wrongPassword = "postgres://billing_wallet_app:wrong@postgres:5432/ringfence?sslmode=disable"
	for _, row := range []struct {
		name, service, variable, value string
		// want is a text in the log. Without a text, the service must start.
		want string
		// seconds limits the wait. A container is unhealthy after 75 s.
		seconds string
	}{
		{name: "control", service: "gateway", variable: "LOG_LEVEL", value: "debug", seconds: "240"},
		{
			// Other services are ready without Kafka, because they can store events until it is back.
			name: "wrong broker", service: "dialer", variable: "KAFKA_BROKERS", value: "kafka:9999",
			want: `kafka:9999`, seconds: "90",
		},
		{
			name: "wrong password", service: "billing-wallet", variable: "POSTGRES_URL", value: wrongPassword,
			want: "password authentication failed", seconds: "90",
		},
		{
			name: "misspelt key", service: "dialer", variable: "SEALING_KEYS", value: "example=wrong",
			want: "SEALING_KEYS: sealing key 1", seconds: "90",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			changed := composeFile(t, environment(row.service, map[string]string{row.variable: row.value}))
			t.Setenv("COMPOSE_FILE", "docker-compose.yml:"+override+":"+changed)
			t.Cleanup(func() {
				if _, err := run(context.Background(), "docker", "compose", "down", "--volumes", "--timeout", "1"); err != nil {
					t.Error(err)
				}
			})
			_, err := run(t.Context(), "docker", "compose", "up", "--wait", "--wait-timeout", row.seconds, row.service)
			if row.want == "" {
				if err != nil {
					t.Errorf("%s=%s: %v", row.variable, row.value, err)
				}
				return
			}
			if err == nil {
				t.Errorf("%s starts with %s=%s, want a failure", row.service, row.variable, row.value)
			}
			logs := ""
			_ = kit.Until(t.Context(), kit.HangTimeout, "the reason is in the log", func() (bool, error) {
				logs = mustRun(t, "docker", "compose", "logs", "--no-log-prefix", row.service)
				return strings.Contains(logs, row.want), nil
			})
			if !strings.Contains(logs, row.want) {
				t.Errorf("log of %s = %s\nwant %q", row.service, logs, row.want)
			}
		})
	}
}

// environment returns a file for `docker compose` that sets variables of a service.
func environment(service string, variables map[string]string) map[string]any {
	return map[string]any{"services": map[string]any{service: map[string]any{"environment": variables}}}
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

// startWarnings are parts of the warnings that a first start can log. The clients repeat these
// requests.
var startWarnings = []string{
	// The dialer reads its topic before it has created the topic.
	`dial-intents.v1: the brokers have no such topic`,
	// The gateway and the console are on one host, but in different containers.
	"TRUSTED_PROXIES is empty",
	// A new broker has not chosen the coordinators of consumer groups.
	"COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
}

// checkQuietStart reads the logs of a first start. They must contain no warning or error except
// startWarnings.
func checkQuietStart(t *testing.T) {
	t.Helper()
	lines := 0
	args := append([]string{"compose", "logs", "--no-log-prefix"}, services...)
	for line := range strings.Lines(mustRun(t, "docker", args...)) {
		lines++
		serious := strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`)
		known := slices.ContainsFunc(startWarnings, func(part string) bool { return strings.Contains(line, part) })
		if serious && !known {
			t.Errorf("the first start logs %s", line)
		}
	}
	if lines < len(services) {
		t.Errorf("lines in the logs = %d, want at least %d", lines, len(services))
	}
}

// checkConsole signs in to the console with the code that the command of the page prints.
func checkConsole(t *testing.T) {
	t.Helper()
	match := regexp.MustCompile("`(docker compose exec [^`]*sign-in-code)`").
		FindStringSubmatch(readFile(t, "docs/deploy/compose.md"))
	if match == nil {
		t.Fatal("docs/deploy/compose.md has no command for a sign-in code")
	}
	code := strings.TrimSpace(mustRun(t, "sh", "-euc", match[1]))
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: time.Minute}
	signIn := func(code string) (path string, status int) {
		response, err := browser.PostForm(consoleURL+"/sign-in/code", url.Values{"code": {code}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		return response.Request.URL.Path, response.StatusCode
	}
	if _, status := signIn("AAAA-AAAA-AAAA"); status != http.StatusUnauthorized {
		t.Errorf("status with a wrong code = %d, want 401", status)
	}
	path, status := signIn(code)
	if path != "/workspaces" {
		t.Errorf("the code %q opens %s, want /workspaces", code, path)
	}
	if status != http.StatusOK {
		t.Errorf("status after the sign-in = %d, want 200", status)
	}
}

// checkTelemetry waits for a trace of all services in Jaeger, and for all targets and rules of
// Prometheus.
func checkTelemetry(t *testing.T) {
	t.Helper()
	own := services[:6]
	// missing is shown when the wait fails.
	missing := func(name string, wanted []string, found func() ([]string, error)) {
		t.Helper()
		var rest []string
		err := kit.Until(t.Context(), kit.HangTimeout, name, func() (bool, error) {
			have, err := found()
			rest = slices.DeleteFunc(slices.Clone(wanted), func(one string) bool { return slices.Contains(have, one) })
			return err == nil && len(rest) == 0, nil // the program may not be ready
		})
		if err != nil {
			t.Errorf("%v: missing %v", err, rest)
		}
	}
	missing("Jaeger has one trace of all services", own, func() (best []string, err error) {
		var found struct {
			Data []struct {
				Processes map[string]struct{ ServiceName string }
			}
		}
		err = readJSON(t, "http://localhost:16686/api/traces?service=gateway&limit=200", &found)
		for _, trace := range found.Data {
			var names []string
			for _, process := range trace.Processes {
				names = append(names, process.ServiceName)
			}
			if slices.Sort(names); len(slices.Compact(names)) > len(best) {
				best = names
			}
		}
		return best, err
	})
	jobs := append(slices.Clone(own), "console", "collector")
	missing("Prometheus reads all targets", jobs, func() (up []string, err error) {
		var targets struct {
			Data struct {
				Active []struct {
					Labels struct{ Job string }
					Health string
				} `json:"activeTargets"`
			}
		}
		err = readJSON(t, "http://localhost:9090/api/v1/targets", &targets)
		for _, target := range targets.Data.Active {
			if target.Health == "up" {
				up = append(up, target.Labels.Job)
			}
		}
		return up, err
	})
	var unhealthy []string
	err := kit.Until(t.Context(), kit.HangTimeout, "every rule of Prometheus is healthy", func() (bool, error) {
		var rules struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, LastError string }
				}
			}
		}
		err := readJSON(t, "http://localhost:9090/api/v1/rules", &rules)
		count := 0
		unhealthy = nil
		for _, group := range rules.Data.Groups {
			for _, rule := range group.Rules {
				if count++; rule.Health != "ok" {
					unhealthy = append(unhealthy, rule.Name+": "+rule.Health+" "+rule.LastError)
				}
			}
		}
		return err == nil && count > 0 && len(unhealthy) == 0, nil
	})
	if err != nil {
		t.Errorf("%v: %v", err, unhealthy)
	}
}

func readJSON(t *testing.T, address string, into any) error {
	t.Helper()
	status, body, err := kit.NewClient(address, "").Do(t.Context(), http.MethodGet, "", nil)
	if err == nil && status != http.StatusOK {
		err = errors.New(address + ": status " + strconv.Itoa(status))
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// checkRecording places a recorded call over a SIP trunk, because the simulated carrier has no
// audio. It returns the id of the call.
func checkRecording(t *testing.T, w *kit.Workspace, files string) (id string) {
	script := kit.Script(`([0-9]+)`, []string{"number"}, kit.Answer(), kit.ExpectBye(), kit.Over())
	phone, err := kit.StartSippAt(t.Context(), sandboxAddr, t.TempDir(), script)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(phone.Stop)
	settings := map[string]string{"CARRIER": "sip", "SIP_UDP_ADDR": dialerAddr + ":5060"}
	t.Setenv("COMPOSE_FILE", files+":"+composeFile(t, environment("dialer", settings)))
	mustRun(t, "docker", "compose", "up", "--wait", "--no-build", "dialer")
	for _, change := range []struct {
		method, path string
		body         map[string]any
		status       int
	}{
		{http.MethodPost, "trunks", map[string]any{
			"name": "sandbox", "host": sandboxAddr, "port": phone.Port, "channels": 10, "calls_per_second": 10,
			"caller_ids": []string{"+14155550100"},
		}, http.StatusCreated},
		{http.MethodPatch, "workspaces/" + w.ID, map[string]any{
			"features": map[string]any{"recordings": true},
		}, http.StatusOK},
		{http.MethodPatch, "workspaces/" + w.ID + "/agents/" + w.AgentID, map[string]any{"script": map[string]any{
			"tone_hz": 440, "tone_millis": 1000, "end_after_millis": 1500, "speaks": true,
		}}, http.StatusOK},
	} {
		err := w.Admin.Into(t.Context(), change.method, "/admin/v1/"+change.path, change.body, change.status, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	await(t, "a call has a recording", func() (bool, error) { // the dialer applies the setting within seconds
		request, err := w.Request(t.Context(), placeCall(t, w))
		if err != nil {
			return false, err
		}
		id = *request.CallID
		err = kit.Until(t.Context(), 5*time.Second, "a recording", func() (bool, error) {
			var call struct {
				RecordingURL string `json:"recording_url"`
			}
			err := w.API.Into(t.Context(), http.MethodGet, "/v1/calls/"+id, nil, http.StatusOK, &call)
			return call.RecordingURL != "", err
		})
		return err == nil, nil
	})
	readRecording(t, w, id)
	return id
}

// readRecording reads a recording from MinIO by its link.
func readRecording(t *testing.T, w *kit.Workspace, call string) {
	t.Helper()
	var link struct{ URL string }
	path := "/v1/calls/" + call + "/recording"
	if err := w.API.Into(t.Context(), http.MethodGet, path, nil, http.StatusOK, &link); err != nil {
		t.Fatal(err)
	}
	if want := "http://localhost:9000/recordings/"; !strings.HasPrefix(link.URL, want) {
		t.Errorf("link = %s, want an address below %s", link.URL, want)
	}
	status, file, err := kit.NewClient(link.URL, "").Do(t.Context(), http.MethodGet, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	const second = 2 * 8000 // bytes of both channels
	if status != http.StatusOK || len(file) < second || !strings.HasPrefix(string(file), "RIFF") {
		t.Errorf("GET recording = %d with %d bytes, want 200 and at least a second of audio", status, len(file))
	}
}

// checkKilledContainers sends SIGKILL to the process of each container and places a call after its
// restart.
func checkKilledContainers(t *testing.T, w *kit.Workspace) {
	names := strings.Fields(mustRun(t, "docker", "compose", "ps", "--services"))
	wanted := strings.Fields(mustRun(t, "docker", "compose", "config", "--services")) // without Grafana's profile
	slices.Sort(names)
	slices.Sort(wanted)
	if !slices.Equal(names, wanted) {
		t.Fatalf("running services = %v, want %v", names, wanted)
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
