package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
)

func options(t *testing.T, env ...string) kit.Options {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the whole stack is not started")
	}
	bin := os.Getenv("RINGFENCE_BIN")
	if bin == "" {
		t.Fatal("RINGFENCE_BIN is not set: run `make test-e2e`, which builds the programs and sets it")
	}
	home, err := os.MkdirTemp("", "ringfence-local-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chmod(home, 0o755); err != nil { // an unprivileged Postgres must be able to read the home
		t.Fatal(err)
	}
	for _, variable := range []string{"RINGFENCE_PORT", "RINGFENCE_ADMIN_PORT"} {
		port, err := testkit.Port()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, fmt.Sprintf("%s=%d", variable, port))
	}
	// After a kill, another process takes over the work only when the leases of the killed process
	// have expired. The leases are short here, so the tests wait only a few seconds.
	env = append(env, "OUTBOX_LEASE=1s", "INSTANCE_LEASE=2s", "CLAIM_LEASE=3s", "RINGFENCE_RESTART_PAUSE=500ms")
	return kit.Options{Bin: bin, Home: home, Env: append(env, "SIMULATOR_TIME_SCALE=0.02")}
}

func start(t *testing.T, opts kit.Options) *kit.Stack {
	t.Helper()
	s, err := kit.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stop(t *testing.T, s *kit.Stack) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func completes(t *testing.T, s *kit.Stack) {
	t.Helper()
	w := &kit.Workspace{ID: s.Demo.WorkspaceID, AgentID: s.Demo.AgentID, API: kit.NewClient(s.Demo.BaseURL, s.Demo.WriteKey)}
	var req kit.Request
	err := kit.Until(t.Context(), kit.HangTimeout, "a call is accepted", func() (bool, error) {
		var err error
		req, err = w.Place(t.Context(), map[string]any{"to": "+14155550101"})
		return err == nil, nil //nolint:nilerr // the process can be restarting, so kit.Until tries again
	})
	if err != nil {
		t.Fatal(err)
	}
	err = kit.Until(t.Context(), kit.HangTimeout, "the call completes", func() (bool, error) {
		got, err := w.Request(t.Context(), req.ID)
		return err == nil && got.Status == "completed", nil
	})
	if err != nil {
		t.Fatalf("%v; the end of the log:\n%s", err, s.Tail(40))
	}
}

func TestUp_ContinuesAfterTheProcessTreeWasKilled(t *testing.T) {
	opts := options(t)
	home, s := opts.Home, start(t, opts)
	completes(t, s)
	first := s.Demo
	for kill := range 3 {
		s.Kill()
		// A kill during a write can leave such incomplete files.
		for _, name := range []string{"state.json.half", "demo.json.half", "children.json.half"} {
			if err := os.WriteFile(filepath.Join(home, name), []byte(`{"x":`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if kill == 1 {
			if err := os.WriteFile(filepath.Join(home, "state.json"), []byte(`{"ports":`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		next, err := s.Restart(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s = next; s.Demo != first {
			t.Errorf("demo.json changed from %+v to %+v", first, s.Demo)
		}
	}
	completes(t, s)
	stop(t, s)
	for _, name := range []string{"state.json", "state.json.old", "demo.json", "ca-key.pem"} {
		info, err := os.Stat(filepath.Join(home, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o600 {
			t.Errorf("mode of %s = %v, want 0600", name, got)
		}
	}
	if _, err := os.Stat(filepath.Join(home, "children.json")); err == nil {
		t.Error("a clean stop left a record of living children")
	}
}

func TestUp_RestartsEachKilledChild(t *testing.T) {
	s := start(t, options(t))
	defer stop(t, s)
	for _, name := range []string{"postgres", "broker", "simcarrier", "gateway", "calls", "contacts-compliance", "dialer",
		"billing-wallet", "webhook-dispatcher", "console"} {
		before := s.Processes()[name]
		if len(before) != 1 {
			t.Fatalf("processes of %s = %v, want one", name, before)
		}
		if !s.KillOne(name, 0) {
			t.Fatalf("%s was not killed", name)
		}
		err := kit.Until(t.Context(), kit.HangTimeout, name+" is back", func() (bool, error) {
			now := s.Processes()[name]
			return len(now) == 1 && now[0] != before[0], nil
		})
		if err != nil {
			t.Fatalf("%v; the end of the log:\n%s", err, s.Tail(40))
		}
		if err := s.AwaitReady(t.Context(), kit.HangTimeout); err != nil {
			t.Fatalf("after %s died: %v; the end of the log:\n%s", name, err, s.Tail(40))
		}
	}
	completes(t, s)
	if log := s.Tail(100_000); !strings.Contains(log, "broker ended unexpectedly (signal: killed); starting it again") {
		t.Error("the stack did not print that a child had ended")
	}
}

func TestUp_StackCompletesACallAndRefusesASecondStart(t *testing.T) {
	opts := options(t)
	s := start(t, opts)
	defer stop(t, s)
	t.Run("demo.json contains addresses and keys", func(t *testing.T) { checkDemoJSON(t, opts, s) })
	t.Run("a second start is refused", func(t *testing.T) { checkSecondStart(t, opts, s) })
	t.Run("replay reports records that are still parked", func(t *testing.T) { checkReplay(t, opts, s) })
	completes(t, s)
}

func checkDemoJSON(t *testing.T, opts kit.Options, s *kit.Stack) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(opts.Home, "demo.json"))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]string
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"base_url", "admin_url", "admin_token", "sim_url", "workspace_id", "agent_id", "write_key", "read_key"} {
		if fields[name] == "" {
			t.Errorf("%s is empty, want a value", name)
		}
	}
	for _, request := range []struct {
		name, url, key, method, path string
		body                         any
		want                         int
	}{
		{
			name: "simulated carrier", url: s.Demo.SimURL,
			method: http.MethodGet, path: "/healthz", want: http.StatusOK,
		},
		{
			name: "read key reads", url: s.Demo.BaseURL, key: s.Demo.ReadKey,
			method: http.MethodGet, path: "/v1/calls", want: http.StatusOK,
		},
		{
			name: "read key does not write", url: s.Demo.BaseURL, key: s.Demo.ReadKey,
			method: http.MethodPost, path: "/v1/calls",
			body: map[string]any{"agent_id": s.Demo.AgentID, "to": "+14155550101"}, want: http.StatusForbidden,
		},
		{
			name: "operator", url: s.Demo.AdminURL, key: s.Demo.AdminToken,
			method: http.MethodGet, path: "/admin/v1/workspaces/" + s.Demo.WorkspaceID, want: http.StatusOK,
		},
	} {
		client := kit.NewClient(request.url, request.key)
		status, body, err := client.Do(t.Context(), request.method, request.path, request.body)
		if err != nil {
			t.Errorf("%s: %v", request.name, err)
		}
		if status != request.want {
			t.Errorf("%s: status = %d, want %d; body: %s", request.name, status, request.want, body)
		}
	}
}

func checkSecondStart(t *testing.T, opts kit.Options, s *kit.Stack) {
	t.Helper()
	port := strings.TrimPrefix(s.Demo.BaseURL, "http://127.0.0.1:")
	for _, test := range []struct {
		name string
		env  []string
		want []string
	}{
		{name: "on the same home", want: []string{"is already running", "pid", "RINGFENCE_HOME"}},
		{
			name: "on the same port", env: []string{"RINGFENCE_HOME=" + filepath.Join(opts.Home, "other")},
			want: []string{"port " + port, "gateway (pid", "RINGFENCE_PORT"},
		},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(opts.Bin, "ringfence-local"), "up")
		cmd.Env = append(append(append(os.Environ(), "RINGFENCE_HOME="+opts.Home), opts.Env...), test.env...)
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("a second start %s succeeded, want a refusal", test.name)
		}
		for _, want := range test.want {
			wantOneLine(t, string(out), want)
		}
	}
	status, _, err := kit.NewClient(s.Demo.BaseURL, "").Do(t.Context(), http.MethodGet, "/readyz", nil)
	if err != nil {
		t.Errorf("GET /readyz of the first stack: %v", err)
	}
	if status != http.StatusOK {
		t.Errorf("GET /readyz of the first stack = %d, want 200", status)
	}
}

// checkReplay publishes a record that no service can decode. Two consumers write the record to
// their DLQ, and the test replays it for one of them.
func checkReplay(t *testing.T, opts kit.Options, s *kit.Stack) {
	t.Helper()
	bus := embedded(t, opts.Home)
	if err := bus.ProduceSync(t.Context(), &kgo.Record{Topic: "dial-events.v1", Key: []byte("garbage"), Value: []byte{0xff}}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for _, reader := range []string{"calls", "billing-wallet"} {
		err := kit.Until(t.Context(), kit.HangTimeout, reader+" parks the record", func() (bool, error) {
			parked := int64(0)
			ends, err := kadm.NewClient(bus).ListEndOffsets(t.Context(), "dial-events.v1."+reader+".dlq")
			ends.Each(func(o kadm.ListedOffset) { parked += o.Offset })
			return parked == 1, err
		})
		if err != nil {
			t.Fatalf("%v; the end of the log:\n%s", err, s.Tail(40))
		}
	}
	for _, test := range []struct {
		name, argument, want string
	}{
		{name: "list", argument: "--json", want: `"key":"garbage","error":"`},
		{name: "first replay", argument: "dial-events.v1", want: "0 records applied, 1 still parked"},
		{name: "second replay", argument: "dial-events.v1", want: "0 records applied, 1 still parked"},
		{name: "topic without parked records", argument: "wallet-events.v1", want: "0 records applied, 0 still parked"},
	} {
		out, err := serviceCommand(t, opts, "calls", "replay", test.argument)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if !strings.Contains(out, test.want) {
			t.Errorf("%s printed %q, want it to contain %q", test.name, out, test.want)
		}
	}
}

func TestService_PrintsErrorsInOneLine(t *testing.T) {
	opts := options(t)
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"there is no such service", []string{"phone", "replay"}, "calls, webhook-dispatcher, gateway"},
		{"no stack", []string{"calls", "replay", "dial-events.v1"}, "make run"},
	} {
		t.Run(test.name, func(t *testing.T) {
			output, err := serviceCommand(t, opts, test.args...)
			if err == nil {
				t.Error("replay succeeded, want a refusal")
			}
			wantOneLine(t, output, test.want)
		})
	}
}

func TestUp_RefusesTheFolderOfAnOldVersion(t *testing.T) {
	t.Parallel()
	opts := options(t)
	if err := os.WriteFile(filepath.Join(opts.Home, "state.json"), []byte(`{"ports":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(opts.Bin, "ringfence-local"), "up")
	command.Env = append(os.Environ(), "RINGFENCE_HOME="+opts.Home)
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("up: error = %v, want an exit status; output %s", err, output)
	}
	if got := exit.ExitCode(); got != 1 {
		t.Errorf("exit status = %d, want 1", got)
	}
	if want := "ringfence-local: " + opts.Home + " has data of a version before the first release"; !strings.HasPrefix(string(output), want) {
		t.Errorf("output = %q, want it to start with %q", output, want)
	}
	if _, err := os.Stat(filepath.Join(opts.Home, "postgres")); !os.IsNotExist(err) {
		t.Errorf("folder of the database: error = %v, want that it does not exist", err)
	}
}

func TestUp_InvalidSettingIsAnErrorInOneLine(t *testing.T) {
	for setting, want := range map[string]string{
		"SIMULATOR_TIME_SCALE=soon": "simcarrier ends again and again",
		"PG_BINDIR=/nowhere":        "PG_BINDIR is /nowhere",
		"POSTGRES_URL=nonsense":     "POSTGRES_URL is not a URL",
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			opts := options(t)
			cmd := exec.CommandContext(t.Context(), filepath.Join(opts.Bin, "ringfence-local"), "up")
			cmd.Env = append(append(os.Environ(), "RINGFENCE_HOME="+opts.Home), append(opts.Env, setting)...)
			var faults strings.Builder
			cmd.Stderr = &faults
			if err := cmd.Run(); err == nil {
				t.Error("up succeeded, want a refusal")
			}
			wantOneLine(t, faults.String(), want)
		})
	}
}

func wantOneLine(t *testing.T, message, want string) {
	t.Helper()
	if !strings.Contains(message, want) {
		t.Errorf("message = %q, want it to contain %q", message, want)
	}
	if got := strings.Count(message, "\n"); got != 1 {
		t.Errorf("message = %q, which has %d lines, want 1", message, got)
	}
}

func serviceCommand(t *testing.T, opts kit.Options, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(opts.Bin, "ringfence-local"), append([]string{"service"}, args...)...)
	cmd.Env = append(append(os.Environ(), "RINGFENCE_HOME="+opts.Home, "KAFKA_BROKERS="), opts.Env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func embedded(t *testing.T, home string) *kgo.Client {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(home, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	var known struct{ Ports map[string]int }
	if err := json.Unmarshal(data, &known); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", known.Ports["kafka"])))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
