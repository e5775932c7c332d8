package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/deploy/e2e/rig"
	"ringfence.dev/libs/loopback"
)

// options are those of a stack in a home of its own.
func options(t *testing.T, env ...string) rig.Options {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the whole stack is not started")
	}
	bin := os.Getenv("RINGFENCE_BIN")
	if bin == "" {
		t.Fatal("RINGFENCE_BIN is not set: run `make test`, which builds the programs and sets it")
	}
	home, err := os.MkdirTemp("", "ringfence-local-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	if err := os.Chmod(home, 0o755); err != nil { // an unprivileged Postgres must reach it
		t.Fatal(err)
	}
	for _, variable := range []string{"RINGFENCE_PORT", "RINGFENCE_ADMIN_PORT"} {
		port, err := loopback.Port()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, fmt.Sprintf("%s=%d", variable, port))
	}
	return rig.Options{Bin: bin, Home: home, Env: append(env, "SIMULATOR_TIME_SCALE=0.02")}
}

func start(t *testing.T, opts rig.Options) *rig.Stack {
	t.Helper()
	s, err := rig.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func stop(t *testing.T, s *rig.Stack) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// completes places a call in the demo workspace and waits until it has ended well.
func completes(t *testing.T, s *rig.Stack) {
	t.Helper()
	w := &rig.Workspace{ID: s.Demo.WorkspaceID, AgentID: s.Demo.AgentID, API: rig.NewClient(s.Demo.BaseURL, s.Demo.WriteKey)}
	var req rig.Request
	err := rig.Until(t.Context(), time.Minute, "a call is accepted", func() (bool, error) {
		var err error
		req, err = w.Place(t.Context(), map[string]any{"to": "+14155550101"})
		return err == nil, nil //nolint:nilerr // a process may be between two lives: asked again
	})
	if err != nil {
		t.Fatal(err)
	}
	err = rig.Until(t.Context(), 2*time.Minute, "the call completes", func() (bool, error) {
		got, err := w.Request(t.Context(), req.ID)
		return err == nil && got.Status == "completed", nil
	})
	if err != nil {
		t.Fatalf("%v; the end of the log:\n%s", err, s.Tail(40))
	}
}

func TestUp_ContinuesWhereAKilledTreeWas(t *testing.T) {
	opts := options(t)
	home, s := opts.Home, start(t, opts)
	completes(t, s)
	first := s.Demo
	for kill := range 3 {
		s.Kill()
		// What a kill in the middle of a write may leave.
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
		next, err := s.Again(t.Context())
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
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v, want mode 0600", name, info, err)
		}
	}
	if _, err := os.Stat(filepath.Join(home, "children.json")); err == nil {
		t.Error("a clean stop left a record of living children")
	}
}

func TestUp_AnyChildMayDieAlone(t *testing.T) {
	s := start(t, options(t))
	defer stop(t, s)
	for _, name := range []string{"postgres", "broker", "simcarrier", "gateway", "calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher"} {
		before := s.Processes()[name]
		if len(before) != 1 || !s.KillOne(name, 0) {
			t.Fatalf("%s runs as %v, want one process", name, before)
		}
		err := rig.Until(t.Context(), time.Minute, name+" is back", func() (bool, error) {
			now := s.Processes()[name]
			return len(now) == 1 && now[0] != before[0], nil
		})
		if err != nil {
			t.Fatalf("%v; the end of the log:\n%s", err, s.Tail(40))
		}
		if err := s.AwaitReady(t.Context(), 2*time.Minute); err != nil {
			t.Fatalf("after %s died: %v; the end of the log:\n%s", name, err, s.Tail(40))
		}
	}
	completes(t, s)
	if log := s.Tail(100_000); !strings.Contains(log, "broker ended by itself (signal: killed); starting it again") {
		t.Error("the death of a child was not said")
	}
}

func TestUp_TwoOfEveryService(t *testing.T) {
	s := start(t, options(t, "RINGFENCE_REPLICAS=2"))
	defer stop(t, s)
	for _, name := range []string{"gateway", "calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher"} {
		if pids := s.Processes()[name]; len(pids) != 2 {
			t.Errorf("%s runs as %v, want two", name, pids)
		}
	}
	completes(t, s)
	for _, name := range []string{"gateway", "calls", "dialer"} {
		if !s.KillOne(name, 1) {
			t.Errorf("no second %s to kill", name)
		}
	}
	completes(t, s)
}

func TestUp_ASecondStartIsRefusedInOneLine(t *testing.T) {
	opts := options(t)
	s := start(t, opts)
	defer stop(t, s)
	port := strings.TrimPrefix(s.Demo.BaseURL, "http://127.0.0.1:")
	for _, test := range []struct {
		name string
		env  []string
		want []string
	}{
		{"on the same home", nil, []string{"runs on", "pid", "RINGFENCE_HOME"}},
		{"on the same port", []string{"RINGFENCE_HOME=" + filepath.Join(opts.Home, "other")}, []string{"port " + port, "gateway (pid", "RINGFENCE_PORT"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command(filepath.Join(opts.Bin, "ringfence-local"), "up")
			cmd.Env = append(append(append(os.Environ(), "RINGFENCE_HOME="+opts.Home), opts.Env...), test.env...)
			out, err := cmd.CombinedOutput()
			if err == nil || strings.Count(string(out), "\n") != 1 {
				t.Fatalf("a second start = %v, said %q; want one line and a failure", err, out)
			}
			for _, want := range test.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("said %q, want %q in it", out, want)
				}
			}
		})
	}
	if status, _, err := rig.NewClient(s.Demo.BaseURL, "").Do(t.Context(), http.MethodGet, "/readyz", nil); err != nil || status != http.StatusOK {
		t.Errorf("the first stack answers %d %v after that", status, err)
	}
}

func TestUp_TellsEverythingInDemoJSON(t *testing.T) {
	opts := options(t)
	s := start(t, opts)
	defer stop(t, s)
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
			t.Errorf("demo.json has no %s", name)
		}
	}
	for _, url := range []string{s.Demo.BaseURL, s.Demo.AdminURL, s.Demo.SimURL} {
		conn, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"), 5*time.Second)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		_ = conn.Close()
	}
	reader := rig.NewClient(s.Demo.BaseURL, s.Demo.ReadKey)
	if status, answer, err := reader.Do(t.Context(), http.MethodPost, "/v1/calls", map[string]any{"agent_id": s.Demo.AgentID, "to": "+14155550101"}); err != nil || status != http.StatusForbidden {
		t.Errorf("POST with the read key = %d %s %v, want 403", status, answer, err)
	}
	admin := rig.NewClient(s.Demo.AdminURL, s.Demo.AdminToken)
	if status, answer, err := admin.Do(t.Context(), http.MethodGet, "/admin/v1/workspaces/"+s.Demo.WorkspaceID, nil); err != nil || status != http.StatusOK {
		t.Errorf("GET workspace as operator = %d %s %v", status, answer, err)
	}
}

// TestReplay_SaysHowManyStayParked parks a record that nobody can decode at both of its readers and puts it back at one.
func TestReplay_SaysHowManyStayParked(t *testing.T) {
	opts := options(t)
	s := start(t, opts)
	defer stop(t, s)
	bus := embedded(t, opts.Home)
	if err := bus.ProduceSync(t.Context(), &kgo.Record{Topic: "dial-events.v1", Key: []byte("garbage"), Value: []byte{0xff}}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for _, reader := range []string{"calls", "billing-wallet"} {
		err := rig.Until(t.Context(), time.Minute, reader+" parks it", func() (bool, error) {
			parked := int64(0)
			ends, err := kadm.NewClient(bus).ListEndOffsets(t.Context(), "dial-events.v1."+reader+".dlq")
			ends.Each(func(o kadm.ListedOffset) { parked += o.Offset })
			return parked == 1, err
		})
		if err != nil {
			t.Fatalf("%v; the end of the log:\n%s", err, s.Tail(40))
		}
	}
	if said, err := serviceCommand(t, opts, "calls", "replay", "--json"); err != nil || !strings.Contains(said, `"key":"garbage","error":"`) {
		t.Errorf("a script is told %s, %v, want the record", said, err)
	}
	for range 2 { // it stays parked, however often it is put back
		if said, err := serviceCommand(t, opts, "calls", "replay", "dial-events.v1"); err != nil || !strings.Contains(said, "0 records applied, 1 still parked") {
			t.Errorf("replay = %v, said %q, want one that stays parked", err, said)
		}
	}
	if said, err := serviceCommand(t, opts, "calls", "replay", "wallet-events.v1"); err != nil || !strings.Contains(said, "0 records applied, 0 still parked") {
		t.Errorf("replay of a topic without parked records = %v, said %q", err, said)
	}
	completes(t, s)
}

func TestService_RefusesInOneLine(t *testing.T) {
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
			said, err := serviceCommand(t, opts, test.args...)
			if err == nil {
				t.Error("replay succeeded, want a refusal")
			}
			wantOneLine(t, said, test.want)
		})
	}
}

func TestUp_ANonsenseSettingIsOneLine(t *testing.T) {
	for setting, want := range map[string]string{
		"SIMULATOR_TIME_SCALE=soon": "simcarrier does not stay up",
		"PG_BINDIR=/nowhere":        "PG_BINDIR is /nowhere",
		"POSTGRES_URL=nonsense":     "POSTGRES_URL is no URL",
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

// wantOneLine checks that a message is one line that contains want.
func wantOneLine(t *testing.T, message, want string) {
	t.Helper()
	if !strings.Contains(message, want) {
		t.Errorf("message = %q, want it to contain %q", message, want)
	}
	if got := strings.Count(message, "\n"); got != 1 {
		t.Errorf("message = %q, which has %d lines, want 1", message, got)
	}
}

func serviceCommand(t *testing.T, opts rig.Options, args ...string) (said string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(opts.Bin, "ringfence-local"), append([]string{"service"}, args...)...)
	cmd.Env = append(append(os.Environ(), "RINGFENCE_HOME="+opts.Home, "KAFKA_BROKERS="), opts.Env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// embedded is a client of the stack's embedded Kafka.
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
