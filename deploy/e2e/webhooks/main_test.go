package webhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/deploy/e2e/rig"
)

// The stack's settings, short enough for a test; the true ones have tests of their own.
const (
	attemptTimeout = 2 * time.Second
	lease          = 4 * time.Second
	// An endpoint is switched off after so many failures in a row, for so long, with so many deliveries exhausted.
	ruleFailures  = 12
	ruleFor       = 2 * time.Second
	ruleExhausted = 2
	replicas      = 2
)

// delays are the waits before the second and each later attempt; a Retry-After lengthens them up to the last.
func delays() []time.Duration {
	return []time.Duration{200 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second}
}

func settings() []string {
	text := ""
	for _, d := range delays() {
		text += "," + d.String()
	}
	return []string{
		"SIMULATOR_TIME_SCALE=0.02", "WEBHOOK_POLL=200ms", "RETRY_DELAYS=" + text[1:],
		"WEBHOOK_TIMEOUT=" + attemptTimeout.String(), "WEBHOOK_LEASE=" + lease.String(),
		fmt.Sprintf("WEBHOOK_FAILED_AFTER_FAILURES=%d", ruleFailures), "WEBHOOK_FAILED_AFTER=" + ruleFor.String(),
		fmt.Sprintf("WEBHOOK_FAILED_AFTER_EXHAUSTED=%d", ruleExhausted),
	}
}

// world is a stack, its Kafka and its database.
type world struct {
	*rig.Stack
	// hooks has the certificate that the stack trusts.
	hooks *rig.Receiver
	db    *pgxpool.Pool
	bus   *kgo.Client
	home  string
	env   []string
	ports map[string]int
	stop  func() error
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // they wait more than they work
		panic(err)
	}
	code := m.Run()
	if err := shared.end(code == 0); err != nil {
		fmt.Fprintln(os.Stderr, "end the stack:", err)
		code = 1
	}
	os.Exit(code)
}

// shared is begun by the first test that needs it.
var shared = &beginning{}

type beginning struct {
	once sync.Once
	w    *world
	err  error
}

// stack is the shared world.
func stack(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the whole stack is not started")
	}
	shared.once.Do(func() { shared.w, shared.err = begin(fmt.Sprintf("RINGFENCE_REPLICAS=%d", replicas)) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.w
}

func (b *beginning) end(well bool) error {
	if b.w == nil {
		return nil
	}
	err := b.w.stop()
	if well && err == nil {
		return os.RemoveAll(b.w.home)
	}
	fmt.Fprintf(os.Stderr, "kept %s; the end of the stack's log:\n%s\n", b.w.home, b.w.Tail(40))
	return err
}

// begin starts a stack of its own.
func begin(env ...string) (*world, error) {
	bin := os.Getenv("RINGFENCE_BIN")
	if bin == "" {
		return nil, errors.New("RINGFENCE_BIN is not set: run `make test`, which builds the programs and sets it")
	}
	home, err := os.MkdirTemp("", "ringfence-webhooks-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(home, 0o755); err != nil { // an unprivileged Postgres must reach it
		return nil, err
	}
	hooks, err := rig.NewReceiver(home)
	if err != nil {
		return nil, err
	}
	db, err := rig.StartPostgres(bin)
	if err != nil {
		return nil, err
	}
	w := &world{hooks: hooks, home: home}
	w.stop = func() error {
		hooks.Close()
		return db.Stop()
	}
	w.env = append(append(settings(), "POSTGRES_URL="+db.URL, "SSL_CERT_FILE="+hooks.CAFile), env...)
	for _, variable := range []string{"RINGFENCE_PORT", "RINGFENCE_ADMIN_PORT"} {
		port, err := rig.FreePort()
		if err != nil {
			return nil, errors.Join(err, w.stop())
		}
		w.env = append(w.env, fmt.Sprintf("%s=%d", variable, port))
	}
	if err := w.start(); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	if w.db, err = pgxpool.New(context.Background(), db.URL); err != nil {
		return nil, err
	}
	w.stop = func() error {
		defer hooks.Close()
		w.bus.Close()
		w.db.Close()
		return errors.Join(w.Stop(), db.Stop())
	}
	return w, nil
}

// start starts the stack in its home, again after a Stop and with more settings, and connects to its Kafka.
func (w *world) start(more ...string) (err error) {
	options := rig.Options{Bin: os.Getenv("RINGFENCE_BIN"), Home: w.home, Env: append(slices.Clone(w.env), more...)}
	if w.Stack, err = rig.Start(context.Background(), options); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(w.home, "state.json"))
	if err != nil {
		return err
	}
	var state struct {
		Ports map[string]int `json:"ports"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return err
	}
	w.ports = state.Ports
	if w.bus != nil {
		w.bus.Close()
	}
	w.bus, err = kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", w.ports["kafka"])))
	return err
}
