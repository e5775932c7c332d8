package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ringfence.dev/libs/money"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
)

func services() []string {
	return []string{"gateway", "calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher"}
}

const (
	postgres    = "postgres"
	kafka       = "kafka"
	broker      = "broker"
	carrier     = "simcarrier"
	receiver    = "receiver"
	allServices = "everybody"
)

// links returns the connections that can fail, as "client>server".
func links() (all []string) {
	for _, name := range services() {
		all = append(all, name+">"+postgres)
	}
	return append(all, allServices+">"+kafka, "gateway>calls",
		"calls>contacts-compliance", "calls>billing-wallet", "calls>dialer",
		"dialer>contacts-compliance", "dialer>"+carrier, "webhook-dispatcher>"+receiver)
}

// Every call has the same price. Each hold is the price of half a minute at the default rate. The
// workspace with little credit has credit for twelve holds.
const (
	longestCall = 30 // seconds
	perMinute   = 50_000 * money.Micro(1)
	plenty      = "1000"
	little      = "0.3"
)

// testStack is a stack with a proxy in each of its connections. It has three workspaces: a steady
// workspace, one that pauses its webhooks, and one with little credit.
type testStack struct {
	settings
	home    string
	ports   map[string]int
	links   map[string]*kit.Proxy
	hooks   *kit.Receiver
	tenants []*tenant
	farms   []*kit.Sipp // the far ends of the trunks, ordered by the trunk's priority

	mu    sync.Mutex
	stack *kit.Stack
}

type tenant struct {
	*kit.Workspace
	name, subscription string
	// hasLittleCredit is true if requests can be refused because credit is missing. pausesWebhooks
	// is true if the subscription is paused from time to time.
	hasLittleCredit, pausesWebhooks bool

	mu     sync.Mutex
	credit money.Micro
}

func (t *tenant) paidIn(amount money.Micro) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.credit += amount
}

// startTestStack starts the stack and its peers. shutDown stops what startTestStack has started,
// also after an error.
func startTestStack(ctx context.Context, set settings) (w *testStack, err error) {
	w = &testStack{settings: set, ports: map[string]int{}, links: map[string]*kit.Proxy{}}
	if w.home, err = os.MkdirTemp("", "ringfence-chaos-"); err != nil {
		return w, err
	}
	if err := os.Chmod(w.home, 0o755); err != nil { // an unprivileged Postgres must be able to read the folder
		return w, err
	}
	if w.hooks, err = kit.NewReceiver(w.home); err != nil {
		return w, err
	}
	if err := w.choosePorts(); err != nil {
		return w, err
	}
	if err := w.startFarEnds(ctx); err != nil {
		return w, err
	}
	if w.stack, err = kit.Start(ctx, kit.Options{Bin: set.bin, Home: w.home, Env: w.environment(), Ready: 3 * time.Minute, OwnProcessGroup: true}); err != nil {
		return w, err
	}
	for _, t := range []*tenant{{name: "steady"}, {name: "resting", pausesWebhooks: true},
		{name: "poor", hasLittleCredit: true}} {
		if err := w.settleIn(ctx, t); err != nil {
			return w, fmt.Errorf("make workspace %s: %w", t.name, err)
		}
		w.tenants = append(w.tenants, t)
	}
	return w, w.trunks(ctx)
}

// startFarEnds starts the far ends of two trunks. The far end of the first trunk refuses some
// calls.
func (w *testStack) startFarEnds(ctx context.Context) error {
	if !w.sip {
		return nil
	}
	for i, elsewhere := range []string{kit.OverflowScript(), kit.SecondTrunkScript()} {
		dir := filepath.Join(w.home, fmt.Sprintf("farm-%d", i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		one, err := kit.StartSipp(ctx, dir, kit.MixedScript(elsewhere))
		if err != nil {
			return err
		}
		w.farms = append(w.farms, one)
	}
	port, err := testkit.Port()
	w.env = append(w.env, "CARRIER=sip", fmt.Sprintf("SIP_UDP_ADDR=127.0.0.1:%d", port), "RING_LIMIT=6s")
	return err
}

func (w *testStack) trunks(ctx context.Context) error {
	for i, one := range w.farms {
		body := map[string]any{
			"name": fmt.Sprintf("farm %d", i), "host": "127.0.0.1", "port": one.Port, "priority": i + 1,
			"channels": 500, "calls_per_second": 100, "caller_ids": []string{"+14155550100"},
		}
		if err := w.tenants[0].Admin.Into(ctx, "POST", "/admin/v1/trunks", body, 201, nil); err != nil {
			return fmt.Errorf("set up a trunk: %w", err)
		}
	}
	return nil
}

// choosePorts chooses every port before the stack starts, so that a proxy can be in front of the
// port. It writes the ports into the state file of the stack.
func (w *testStack) choosePorts() error {
	names := append([]string{postgres, kafka, carrier}, services()...)
	for _, name := range append(names, "base", "admin") {
		port, err := testkit.Port()
		if err != nil {
			return err
		}
		// The listener occupies each port until the proxies have chosen their own ports.
		held, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return err
		}
		defer held.Close()
		w.ports[name] = port
	}
	for _, line := range links() {
		_, peer, _ := strings.Cut(line, ">")
		target := fmt.Sprintf("127.0.0.1:%d", w.ports[peer])
		if peer == receiver {
			target = strings.TrimPrefix(w.hooks.URL, "https://")
		}
		proxy, err := kit.NewProxy(target)
		if err != nil {
			return err
		}
		w.links[line] = proxy
	}
	w.hooks.URL = "https://" + w.links["webhook-dispatcher>"+receiver].Addr
	known, err := json.Marshal(map[string]any{"layout": 2, "ports": w.ports})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.home, "state.json"), known, 0o600)
}

// chosenPorts returns the ports that the stack has chosen, by name.
func (w *testStack) chosenPorts() (ports map[string]int, err error) {
	data, err := os.ReadFile(filepath.Join(w.home, "state.json"))
	if err != nil {
		return nil, err
	}
	var state struct{ Ports map[string]int }
	err = json.Unmarshal(data, &state)
	return state.Ports, err
}

// environment returns variables that shorten timeouts and delays, so that they end within a run of
// a few minutes. REPUBLISH_AFTER keeps its default, because a republished call request would hide
// that the first one was lost.
func (w *testStack) environment() []string {
	var detours []string
	for line, proxy := range w.links {
		detours = append(detours, line+"="+proxy.Addr)
	}
	return append([]string{
		fmt.Sprintf("RINGFENCE_PORT=%d", w.ports["base"]), fmt.Sprintf("RINGFENCE_ADMIN_PORT=%d", w.ports["admin"]),
		fmt.Sprintf("RINGFENCE_REPLICAS=%d", w.replicas), fmt.Sprintf("SIMULATOR_TIME_SCALE=%g", w.scale),
		"RINGFENCE_DETOURS=" + strings.Join(detours, ","), "SSL_CERT_FILE=" + w.hooks.CAFile, "POSTGRES_URL=", "KAFKA_BROKERS=",
		"RINGFENCE_BROKER=" + w.broker,
		"IDEMPOTENCY_LEASE=3s", "UNCONFIRMED_AFTER=5s", "CLAIM_LEASE=5s", "RING_LIMIT=30s", "WATCHDOG_GRACE=15s",
		"WEBHOOK_TIMEOUT=3s", "WEBHOOK_LEASE=5s", "RETRY_DELAYS=1s,2s,3s,5s,8s,13s",
	}, w.env...)
}

func (w *testStack) settleIn(ctx context.Context, t *tenant) (err error) {
	credit := plenty
	if t.hasLittleCredit {
		credit = little
	}
	if t.Workspace, err = w.stack.NewWorkspace(ctx, t.name, credit); err != nil {
		return err
	}
	if t.credit, err = money.Parse(credit); err != nil {
		return err
	}
	var made struct {
		ID string `json:"id"`
	}
	err = t.Admin.Into(ctx, "POST", "/admin/v1/workspaces/"+t.ID+"/agents", map[string]any{
		// Only calls over SIP use the script.
		"name": "Hasty", "max_call_seconds": longestCall, "script": map[string]any{"tone_hz": 440, "tone_millis": 500, "end_after_millis": 1500},
	}, 201, &made)
	if err != nil {
		return err
	}
	t.AgentID = made.ID
	t.subscription, err = t.Subscribe(ctx, w.hooks)
	return err
}

// currentStack returns the current stack. A blackout replaces the stack.
func (w *testStack) currentStack() *kit.Stack {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stack
}

// shutDown stops everything. If keep is true, it does not delete the folder.
func (w *testStack) shutDown(keep bool) error {
	var errs []error
	if w.stack != nil {
		w.resume()
		errs = append(errs, w.stack.Stop())
	}
	for _, one := range w.farms {
		one.Stop()
	}
	for _, proxy := range w.links {
		proxy.Disconnect()
	}
	if w.hooks != nil {
		w.hooks.Close()
	}
	if w.home != "" && !keep {
		errs = append(errs, os.RemoveAll(w.home))
	}
	return errors.Join(errs...)
}
