package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/libs/testkit"
)

func fresh(t *testing.T) *stack {
	t.Helper()
	t.Setenv("RINGFENCE_HOME", filepath.Join(t.TempDir(), "home"))
	for _, variable := range []string{"RINGFENCE_PORT", "RINGFENCE_ADMIN_PORT"} {
		t.Setenv(variable, strconv.Itoa(freePort(t)))
	}
	home, err := OpenHome()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = home.Close() })
	known, err := Load(home.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return &stack{Options: Options{Home: home, Console: Plain(io.Discard)}, state: known, replicas: 1}
}

func freePort(t *testing.T) int {
	t.Helper()
	free, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	return free
}

func occupy(t *testing.T, port int) {
	t.Helper()
	ln, err := net.Listen("tcp", loopback(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
}

func TestSettlePorts_RestartKeepsPorts(t *testing.T) {
	s := fresh(t)
	if err := s.settlePorts(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := maps.Clone(s.state.Ports)
	if err := s.settlePorts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(first, s.state.Ports) {
		t.Errorf("ports moved from %v to %v", first, s.state.Ports)
	}
	ports := slices.Sorted(maps.Values(first))
	if len(slices.Compact(slices.Clone(ports))) != len(ports) {
		t.Errorf("one port was given twice: %v", first)
	}
}

func TestSettlePorts_PublicPortInUseIsAnErrorWithRemedy(t *testing.T) {
	for _, listener := range []struct {
		variable string
		port     func(*stack) int
	}{
		{"RINGFENCE_PORT", func(*stack) int { return basePort() }},
		{"RINGFENCE_ADMIN_PORT", func(*stack) int { return adminPort() }},
		{"RINGFENCE_SIM_PORT", func(s *stack) int { return s.state.Ports[carrierName] }},
	} {
		t.Run(listener.variable, func(t *testing.T) {
			s := fresh(t)
			if err := s.settlePorts(t.Context()); err != nil {
				t.Fatal(err)
			}
			port := listener.port(s)
			occupy(t, port)
			message := settleError(t, s)
			for _, want := range []string{strconv.Itoa(port), "stop it", "set " + listener.variable} {
				if !strings.Contains(message, want) {
					t.Errorf("message = %q, want it to contain %q", message, want)
				}
			}
			if strings.Contains(message, "\n") {
				t.Errorf("more than one line: %q", message)
			}
		})
	}
}

// settleError calls settlePorts, which must fail. It runs with the clock of synctest, so
// settlePorts does not really wait for a port to become free.
func settleError(t *testing.T, s *stack) (message string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		err := s.settlePorts(t.Context())
		if err == nil {
			t.Fatal("settlePorts accepted a port that is taken")
		}
		message = err.Error()
	})
	return message
}

func TestSettlePorts_InternalPortInUseIsReplaced(t *testing.T) {
	s := fresh(t)
	if err := s.settlePorts(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(s.state.Ports)
	occupy(t, before["kafka"])
	if err := s.settlePorts(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, port := range s.state.Ports {
		if moved := port != before[name]; moved != (name == "kafka") {
			t.Errorf("%s: %d, then %d", name, before[name], port)
		}
	}
}

func TestSpec_ServiceGetsOnlyItsRolesAndTheKeysOfItsClients(t *testing.T) {
	t.Setenv("POSTGRES_URL", "postgres://super:secret@127.0.0.1:5432/ringfence?sslmode=disable")
	t.Setenv("SSL_CERT_FILE", "/inherited")
	s := fresh(t)
	s.postgresURL, s.replicas = os.Getenv("POSTGRES_URL"), 2
	if err := s.settlePorts(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, svc := range services() {
		for replica := range 2 {
			spec, err := s.spec(svc, replica+1)
			if err != nil {
				t.Fatal(err)
			}
			env := map[string]string{}
			for _, pair := range spec.Env {
				name, value, _ := strings.Cut(pair, "=")
				if _, twice := env[name]; twice {
					t.Errorf("%s: %s occurs twice", spec.Name, name)
				}
				env[name] = value
			}
			if strings.Contains(strings.Join(spec.Env, "\n"), "super:secret") {
				t.Errorf("%s was given the superuser's URL", spec.Name)
			}
			if want := schema(svc.name) + "_app:"; !strings.Contains(env["POSTGRES_URL"], want) {
				t.Errorf("%s: POSTGRES_URL is not %s…", spec.Name, want)
			}
			var trusted []string
			for entry := range strings.SplitSeq(env["TRUSTED_KEYS"], ",") {
				name, _, _ := strings.Cut(entry, "=")
				trusted = append(trusted, name)
			}
			if want := append([]string{gateway}, svc.callers...); !slices.Equal(trusted, want) {
				t.Errorf("%s trusts %v, want %v", spec.Name, trusted, want)
			}
			wanted := map[string]string{"SSL_CERT_FILE": "/inherited", "LOG_FORMAT": "text"}
			for variable, want := range wanted {
				if got := env[variable]; got != want {
					t.Errorf("%s: %s = %q, want %q", spec.Name, variable, got, want)
				}
			}
		}
	}
	if s.state.Ports[privatePort("calls", 1)] == s.state.Ports[privatePort("calls", 2)] {
		t.Error("two replicas share a private port")
	}
	if s.replicaAddr("calls", 1) == s.replicaAddr("calls", 2) {
		t.Error("two replicas share an HTTP port")
	}
}

// adminAPI implements the part of the admin API that the demo workspace needs.
type adminAPI struct {
	mu      sync.Mutex
	items   map[string][]map[string]any
	changes int
	failAt  int // the number of the change that fails, or 0
}

func (a *adminAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Method == http.MethodGet {
		if id, member := strings.CutPrefix(r.URL.Path, "/admin/v1/workspaces/"); member && !strings.Contains(id, "/") {
			if !slices.ContainsFunc(a.items["/admin/v1/workspaces"], func(item map[string]any) bool { return item["id"] == id }) {
				w.WriteHeader(http.StatusNotFound)
			}
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"data": append([]map[string]any{}, a.items[r.URL.Path]...), "has_more": false})
		return
	}
	a.changes++
	if a.changes == a.failAt {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	item := map[string]any{}
	if err := json.NewDecoder(r.Body).Decode(&item); err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		return
	}
	for _, seen := range a.items[r.URL.Path] {
		if item["reference"] != nil && seen["reference"] == item["reference"] {
			return
		}
	}
	item["id"] = fmt.Sprintf("id-%d", a.changes)
	if strings.HasSuffix(r.URL.Path, "/api-keys") {
		item["key"] = fmt.Sprintf("key-%d", a.changes)
	}
	a.items[r.URL.Path] = append(a.items[r.URL.Path], item)
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(item)
}

func TestDemoWorkspace_RestartCreatesOnlyTheMissingParts(t *testing.T) {
	for failAt := 1; failAt <= 6; failAt++ {
		t.Run(fmt.Sprintf("the change %d fails", failAt), func(t *testing.T) {
			api := &adminAPI{items: map[string][]map[string]any{}, failAt: failAt}
			server := httptest.NewServer(api)
			defer server.Close()
			s := fresh(t)
			t.Setenv("RINGFENCE_ADMIN_PORT", strconv.Itoa(server.Listener.Addr().(*net.TCPAddr).Port))
			if _, err := s.demoWorkspace(t.Context()); err == nil {
				t.Fatal("the fault was swallowed")
			}
			again := nextRun(t, s)
			made, err := again.demoWorkspace(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			third, err := nextRun(t, s).demoWorkspace(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if third != made {
				t.Errorf("demo workspace of the third start = %+v, want %+v", third, made)
			}
			for field, value := range map[string]string{
				"workspace id": made.WorkspaceID, "agent id": made.AgentID, "write key": made.WriteKey, "read key": made.ReadKey,
			} {
				if value == "" {
					t.Errorf("the %s is empty", field)
				}
			}
			if made.ReadKey == made.WriteKey {
				t.Errorf("read key and write key are the same: %s", made.ReadKey)
			}
			for path, items := range api.items {
				if want := map[bool]int{true: 2, false: 1}[strings.HasSuffix(path, "/api-keys")]; len(items) != want {
					t.Errorf("%s holds %d items, want %d", path, len(items), want)
				}
			}
		})
	}
}

func nextRun(t *testing.T, s *stack) *stack {
	t.Helper()
	known, err := Load(s.Home.Dir)
	if err != nil {
		t.Fatal(err)
	}
	return &stack{Options: s.Options, state: known, replicas: 1}
}

func TestUp_MissingBinaryIsAnErrorWithRemedy(t *testing.T) {
	s := fresh(t)
	s.Bin = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := Up(ctx, ctx, ctx, s.Options)
	if err == nil {
		t.Fatal("Up succeeded, want an error")
	}
	if want := "make build"; !strings.Contains(err.Error(), want) {
		t.Errorf("Up = %v, want it to contain %q", err, want)
	}
}

func TestConsole_HidesLogLinesOfReadsAndInternalRequests(t *testing.T) {
	for _, line := range []struct {
		name, service, text string
		shown               bool
	}{
		{"log line of the gateway about a change", gateway, "22:21:38.550 INFO  request method=POST route=/v1/calls status=202 ms=18.6", true},
		{"log line of the service about the same change", "calls",
			"22:21:38.549 INFO  request method=POST route=/v1/calls status=202 ms=15.4", false},
		{"a request between two services", "billing-wallet",
			"22:21:38.546 INFO  request method=POST route=/ringfence.billing.v1.HoldService/Hold status=200 ms=3.5", false},
		{"a read", gateway, "22:21:38.603 INFO  request method=GET route=/v1/calls status=200 ms=2.6", false},
		{"a read that was refused", gateway, "22:21:38.603 INFO  request method=GET route=/v1/calls status=401 ms=2.6", true},
		{"an error response of a service behind the gateway", "calls",
			"22:21:38.603 INFO  request method=GET route=/v1/calls status=503 ms=2.6", true},
		{"a webhook", "webhook-dispatcher", "22:21:48.393 INFO  webhook attempt outcome=delivered code=200", true},
		{"the address of the private port", "calls", "22:21:38.100 INFO  private port opened addr=127.0.0.1:9091", true},
		{"a warning that quotes a request", "calls", `22:21:48.393 WARN  a peer did not answer error=" INFO request method=GET status=200"`, true},
	} {
		t.Run(line.name, func(t *testing.T) {
			t.Setenv("LOG_LEVEL", "")
			if shown := !routineLines(line.service).MatchString(line.text); shown != line.shown {
				t.Errorf("shown = %v: %s", shown, line.text)
			}
			t.Setenv("LOG_LEVEL", "info")
			if routineLines(line.service) != nil {
				t.Error("a person who set LOG_LEVEL does not get every line")
			}
		})
	}
}
