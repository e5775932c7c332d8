package service

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// waitingPart returns a part that records its name when it is stopped.
func waitingPart(name string, stopped *[]string, mu *sync.Mutex) Part {
	return Part{name, func(ctx context.Context) error {
		<-ctx.Done()
		mu.Lock()
		defer mu.Unlock()
		*stopped = append(*stopped, name)
		return ctx.Err()
	}}
}

func TestRun_StopsThePartsInReverseOrder(t *testing.T) {
	var mu sync.Mutex
	var stopped []string
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	err := Run(ctx, waitingPart("relay", &stopped, &mu),
		waitingPart("consumer", &stopped, &mu), waitingPart("http", &stopped, &mu))
	if err != nil {
		t.Errorf("Run = %v, want no fault: a part that ends with its context has none", err)
	}
	if want := []string{"http", "consumer", "relay"}; !slices.Equal(stopped, want) {
		t.Errorf("stopped = %v, want %v", stopped, want)
	}
}

func TestRun_ErrorOfOnePartStopsAllParts(t *testing.T) {
	var mu sync.Mutex
	var stopped []string
	broken := errors.New("broken")
	err := Run(t.Context(), waitingPart("relay", &stopped, &mu),
		Part{"http", func(context.Context) error { return broken }})
	if !errors.Is(err, broken) {
		t.Errorf("Run = %v, want %v", err, broken)
	} else if !strings.HasPrefix(err.Error(), "http: ") {
		t.Errorf(`Run: err = %q, want it to begin with "http: "`, err.Error())
	}
	if len(stopped) != 1 {
		t.Errorf("stopped = %v, want the relay too", stopped)
	}
}

func TestRun_PartThatReturnsNilDoesNotStopOthers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	once := Part{"once", func(context.Context) error { return nil }}
	after := Part{"after", func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return nil
	}}
	if err := Run(ctx, once, after); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}

func TestRun_SIGTERMStopsTheParts(t *testing.T) {
	var mu sync.Mutex
	var stopped []string
	kill := Part{"kill", func(context.Context) error { return syscall.Kill(syscall.Getpid(), syscall.SIGTERM) }}
	if err := Run(t.Context(), waitingPart("http", &stopped, &mu), kill); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if len(stopped) != 1 {
		t.Errorf("stopped = %v, want http", stopped)
	}
}

func TestRun_ErrorNamesPartsThatDoNotStop(t *testing.T) {
	// The part "deaf" never stops. The part "relay" stops in the last 0.2 s of the 2 s.
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		hold := make(chan struct{})
		defer close(hold)
		var mu sync.Mutex
		var stopped []string
		err := run(ctx, 2*time.Second, []Part{
			waitingPart("relay", &stopped, &mu),
			{"deaf", func(context.Context) error { <-hold; return nil }},
		})
		if err == nil {
			t.Fatalf("run: err = nil, want an error")
		}
		if !strings.Contains(err.Error(), "deaf") {
			t.Errorf("run: err.Error() = %q, want it to contain %q", err.Error(), "deaf")
		}
		if strings.Contains(err.Error(), "relay") {
			t.Errorf("run: err.Error() = %q, want it not to contain %q", err.Error(), "relay")
		}
	})
}

type nested struct {
	Depth int `env:"DEPTH" envDefault:"3" help:"how deep"`
}

type config struct {
	Name string `env:"TEST_NAME,required" help:"what it is called"`
	nested
	Other nested `envPrefix:"OTHER_"`
	Embed
}

// Embed represents the configuration of a library that is embedded in the configuration of a
// service.
type Embed struct {
	Wait time.Duration `env:"TEST_WAIT" envDefault:"1s"`
}

func TestStart_ErrorListsAllInvalidVariables(t *testing.T) {
	t.Setenv("OTHER_DEPTH", "deep")
	t.Setenv("TEST_WAIT", "long")
	var faults bytes.Buffer
	status := runCommand(t.Context(), "calls",
		Commands[config]{Serve: func(context.Context, config) error { t.Error("served"); return nil }}, nil, nil, &faults)
	if status != 2 {
		t.Errorf("status = %d, want 2", status)
	}
	for _, want := range []string{"TEST_NAME is not set", "Depth", "Wait"} {
		if !strings.Contains(faults.String(), want) {
			t.Errorf("faults lack %q:\n%s", want, faults.String())
		}
	}
}

// A command that a signal stops has failed. A service that a signal stops has not failed.
func TestStart_CommandStoppedByASignalFails(t *testing.T) {
	t.Setenv("TEST_NAME", "x")
	var stderr bytes.Buffer
	logs := map[string]io.Writer{}
	whole := func(name string) func(context.Context, config) error {
		return func(ctx context.Context, _ config) error {
			logs[name] = Log(ctx)
			return fmt.Errorf("%s: %w", name, ctx.Err())
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	commands := Commands[config]{Serve: whole("serve"), Migrate: whole("migrate"), Further: []Command[config]{{Name: "verify", Run: whole("verify")}}}
	for command, want := range map[string]int{"serve": 0, "migrate": 1, "verify": 1} {
		if got := runCommand(ctx, "calls", commands, []string{command}, io.Discard, &stderr); got != want {
			t.Errorf("%s that was stopped = %d, want %d", command, got, want)
		}
	}
	if logs["serve"] != os.Stdout {
		t.Errorf("serve = %v, want %v", logs["serve"], os.Stdout)
	}
	if logs["migrate"] != &stderr {
		t.Errorf("migrate = %v, want %v", logs["migrate"], &stderr)
	}
	if logs["verify"] != &stderr {
		t.Errorf("verify = %v, want %v", logs["verify"], &stderr)
	}
}

func TestStart_RunsTheNamedCommand(t *testing.T) {
	t.Setenv("TEST_NAME", "x")
	var ran []string
	var most int
	asked := func(ctx context.Context, what string) error {
		if Scripted(ctx) {
			what += " in JSON"
		}
		ran = append(ran, what)
		return nil
	}
	commands := Commands[config]{
		Serve:   func(context.Context, config) error { ran = append(ran, "serve"); return nil },
		Migrate: func(context.Context, config) error { ran = append(ran, "migrate"); return errors.New("no") },
		Replay:  func(ctx context.Context, _ config, topic string) error { return asked(ctx, "replay "+topic) },
		Further: []Command[config]{
			{Name: "count", Help: "counts all there is", Run: func(context.Context, config) error { ran = append(ran, "count"); return nil }},
			{Name: "list", Help: "lists all there is", JSON: true, Run: func(ctx context.Context, _ config) error { return asked(ctx, "list") }},
			{Name: "weigh", Help: "weighs all there is", Flags: func(f *flag.FlagSet) { f.IntVar(&most, "most", 7, "`n` at most") },
				Run: func(context.Context, config) error { ran = append(ran, fmt.Sprint("weigh ", most)); return nil }},
		},
	}
	var out bytes.Buffer
	for _, row := range []struct {
		name   string
		args   []string
		status int
	}{
		{"serve is the default", nil, 0},
		{"--version", []string{"--version"}, 0},
		{"a failed command exits with status 1", []string{"migrate"}, 1},
		{"replay with a topic", []string{"replay", "call-events.v1"}, 0},
		{"replay without a topic", []string{"replay"}, 0},
		{"replay --json without a topic", []string{"replay", "--json"}, 0},
		{"replay --json after a topic", []string{"replay", "call-events.v1", "--json"}, 0},
		{"replay --json before a topic", []string{"replay", "--json", "call-events.v1"}, 0},
		{"--json twice is refused", []string{"replay", "--json", "--json"}, 2},
		{"an empty topic is refused", []string{"replay", ""}, 2},
		{"a command with JSON output accepts --json", []string{"list", "--json"}, 0},
		{"a command with JSON output without --json", []string{"list"}, 0},
		{"a command without JSON output refuses --json", []string{"count", "--json"}, 2},
		{"replay with two topics is refused", []string{"replay", "a", "b"}, 2},
		{"an additional command of the service", []string{"count"}, 0},
		{"an argument for a command without arguments is refused", []string{"count", "twice"}, 2},
		{"a flag of a command", []string{"weigh", "--most", "3"}, 0},
		{"a command without its optional flag", []string{"weigh"}, 0},
		{"text for a numeric flag is refused", []string{"weigh", "--most", "three"}, 2},
		{"an unknown flag is refused", []string{"weigh", "--least", "3"}, 2},
		{"an argument after the flags is refused", []string{"weigh", "--most", "3", "4"}, 2},
		{"an unknown command is refused", []string{"dance"}, 2},
		{"help needs no environment", []string{"--help"}, 0},
	} {
		if got := runCommand(t.Context(), "calls", commands, row.args, &out, &out); got != row.status {
			t.Errorf("%s: status = %d, want %d", row.name, got, row.status)
		}
	}
	if want := []string{"serve", "migrate", "replay call-events.v1", "replay ", "replay  in JSON", "replay call-events.v1 in JSON", "replay call-events.v1 in JSON", "list in JSON", "list", "count", "weigh 3", "weigh 7"}; !slices.Equal(ran, want) {
		t.Errorf("ran = %v, want %v", ran, want)
	}
	for _, want := range []string{"TEST_NAME", "(required)", "what it is called", "OTHER_DEPTH", "TEST_WAIT", "1s", "replay [topic]", "--json  ", "counts all there is", "--most <n>", "n at most", "calls migrate: no\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("help lacks %q:\n%s", want, out.String())
		}
	}
}

func TestRun_WaitsForTheDrainDelayBeforeItStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), delayKey{}, 5*time.Second))
		var canceledAt time.Time
		var left, stopped time.Duration
		part := Part{"http", func(ctx context.Context) error {
			if IsLeaving(ctx) {
				t.Error("the process stops before the signal")
			}
			canceledAt = time.Now()
			cancel()
			<-Leaving(ctx)
			left = time.Since(canceledAt)
			<-ctx.Done()
			stopped = time.Since(canceledAt)
			return nil
		}}
		err := Run(ctx, part)
		if err != nil {
			t.Fatalf("Run: %v", err)
		}
		if left != 0 {
			t.Errorf("Run: left = %v, want 0", left)
		}
		if stopped != 5*time.Second {
			t.Errorf("Run: stopped = %v, want %v", stopped, 5*time.Second)
		}
	})
}

func TestRun_ErrorSkipsTheDrainDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), delayKey{}, time.Minute))
		cancel()
		began := time.Now()
		err := Run(ctx, Part{"relay", func(ctx context.Context) error { <-Leaving(ctx); return errors.New("broken") }})
		if err == nil {
			t.Error("Run = nil, want an error")
		} else if got := time.Since(began); got != 0 {
			t.Errorf("Run: time.Since(began) = %v, want 0", got)
		}
	})
}

func TestStart_EveryServiceReadsDrainDelay(t *testing.T) {
	t.Setenv("TEST_NAME", "x")
	t.Setenv("DRAIN_DELAY", "7s")
	var delay time.Duration
	var out bytes.Buffer
	serve := func(ctx context.Context, _ config) error {
		delay, _ = ctx.Value(delayKey{}).(time.Duration)
		return nil
	}
	if status := runCommand(t.Context(), "calls", Commands[config]{Serve: serve}, nil, &out, &out); status != 0 {
		t.Errorf("start: status = %v, want 0; out.String() = %s", status, out.String())
	} else if delay != 7*time.Second {
		t.Errorf("start: delay = %v, want %v; out.String() = %s", delay, 7*time.Second, out.String())
	}
	t.Setenv("DRAIN_DELAY", "soon")
	if status := runCommand(t.Context(), "calls", Commands[config]{Serve: serve}, nil, &out, &out); status != 2 {
		t.Errorf("start: status = %v, want 2", status)
	} else if !strings.Contains(out.String(), "DrainDelay") {
		t.Errorf(`start: out = %q, want it to contain "DrainDelay"`, out.String())
	}
}

func TestHealthy_ReturnsAnErrorUnlessReadyzIs200(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	ask := func(addr string) int {
		t.Setenv("PRIVATE_ADDR", addr)
		return runCommand(t.Context(), "test", Commands[config]{}, []string{"healthy"}, io.Discard, io.Discard)
	}
	if got := ask(":" + port); got != 0 {
		t.Errorf("ready: status %d, want 0", got)
	}
	status = http.StatusServiceUnavailable
	if got := ask(":" + port); got != 1 {
		t.Errorf("not ready: status %d, want 1", got)
	}
	if got := ask("127.0.0.1:0"); got != 1 {
		t.Errorf("no port to ask: status %d, want 1", got)
	}
}

// With host networking (helm/ringfence-lib) a service listens only at one address of the host, and
// not at the loopback address.
func TestHealthy_ConnectsToTheListenAddress(t *testing.T) {
	t.Parallel()
	for addr, host := range map[string]string{"127.0.0.2:0": "127.0.0.2", "[::1]:0": "::1"} {
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			t.Logf("this machine has no %s: %v", host, err)
			continue
		}
		server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}}
		server.Start()
		defer server.Close()
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		if err := Healthy(t.Context(), "["+host+"]:"+port, "/readyz"); err != nil {
			t.Error(err)
		}
	}
}

func TestHurried_ChannelIsClosedByTheSecondSignal(t *testing.T) {
	calls := Part{"calls", func(ctx context.Context) error {
		<-ctx.Done()
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-Hurried(ctx)
		return nil
	}}
	kill := Part{"kill", func(context.Context) error { return syscall.Kill(syscall.Getpid(), syscall.SIGTERM) }}
	if err := RunPatiently(t.Context(), time.Hour, calls, kill); err != nil {
		t.Errorf("RunPatiently = %v, want nil", err)
	}
}
