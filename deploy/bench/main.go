// Command bench measures the whole of Ringfence on this machine and prints each figure beside a
// limit taken in the same run: nothing here fails a test, and no figure means anything without its limit.
// README.md says what each figure is, what the goals are and which were met.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"ringfence.dev/deploy/e2e/rig"
)

// settings are the bench's flags.
type settings struct {
	bin      string
	postgres string
	only     string
	clients  string
	each     time.Duration
}

// bench is what a measurement has at hand: one stack, idle when the measurement begins.
type bench struct {
	settings
	// home is the stack's folder.
	home string
	// db connects to the stack's database as superuser.
	db    string
	stack *rig.Stack
	hooks *rig.Receiver
	// postmaster is the id of the database's process where that can be told.
	postmaster string
}

// measurement is one part of the bench, run in the order of the list; -only picks some by name. An error ends the bench.
type measurement struct {
	name, says string
	run        func(context.Context, *bench) error
}

func measurements() []measurement {
	return []measurement{
		{"commits", "the transactions of one POST, and whether there are more than there were", commits},
		{"posts", "POST /v1/calls a day ahead, as a share of its own durable commits", posts},
		{"gateway", "the rate-limit check, and the gateway against asking the service directly", gateway},
		{"due", "POST /v1/calls with calls that are due, and how long the pipeline drains", due},
		{"webhooks", "from POST to the arrival of the webhook", webhooks},
		{"reads", "GET by id and every list with a million calls, against the same with a thousand", reads},
	}
}

func main() {
	var names []string
	for _, m := range measurements() {
		names = append(names, m.name)
	}
	var set settings
	flag.StringVar(&set.bin, "bin", os.Getenv("RINGFENCE_BIN"), "folder of the built programs")
	flag.StringVar(&set.postgres, "postgres", "", "URL of a superuser of the Postgres to use; empty: one of its own, with fsync")
	flag.StringVar(&set.only, "only", "", "measurements to run, by name: "+strings.Join(names, ","))
	flag.StringVar(&set.clients, "clients", "1,8,32,128", "numbers of concurrent clients of posts")
	flag.DurationVar(&set.each, "each", 10*time.Second, "how long each measurement runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, set); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// chosen are the measurements that -only names; all when it is empty.
func chosen(only string) ([]measurement, error) {
	all := measurements()
	if only == "" {
		return all, nil
	}
	var picked []measurement
	for name := range strings.SplitSeq(only, ",") {
		at := slices.IndexFunc(all, func(m measurement) bool { return m.name == strings.TrimSpace(name) })
		if at < 0 {
			return nil, fmt.Errorf("there is no measurement %q", name)
		}
		picked = append(picked, all[at])
	}
	return picked, nil
}

func run(ctx context.Context, set settings) error {
	list, err := chosen(set.only)
	if err != nil {
		return err
	}
	home, err := os.MkdirTemp("", "ringfence-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	if err := os.Chmod(home, 0o755); err != nil { // an unprivileged Postgres must reach it
		return err
	}
	b := &bench{settings: set, home: home, db: set.postgres}
	if b.db == "" {
		server, err := rig.StartPostgres(set.bin, "--durable")
		if err != nil {
			return err
		}
		defer func() { _ = server.Stop() }()
		b.db = server.URL
	}
	if err := b.findPostmaster(ctx); err != nil {
		return err
	}
	if b.hooks, err = rig.NewReceiver(home); err != nil {
		return err
	}
	defer b.hooks.Close()
	if err := b.start(ctx); err != nil {
		return err
	}
	defer func() { _ = b.stack.Stop() }()
	fmt.Printf("ringfence bench: %s a measurement, one machine for everything\n", set.each)
	for _, m := range list {
		fmt.Printf("\n%s: %s\n", m.name, m.says)
		if err := m.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

func (b *bench) start(ctx context.Context) error {
	port, err := rig.FreePort()
	if err != nil {
		return err
	}
	admin, err := rig.FreePort()
	if err != nil {
		return err
	}
	if port == admin {
		return errors.New("two free ports are one: try again")
	}
	b.stack, err = rig.Start(ctx, rig.Options{Bin: b.bin, Home: b.home, Env: []string{
		fmt.Sprintf("RINGFENCE_PORT=%d", port), fmt.Sprintf("RINGFENCE_ADMIN_PORT=%d", admin),
		"POSTGRES_URL=" + b.db, "SSL_CERT_FILE=" + b.hooks.CAFile, "SIMULATOR_TIME_SCALE=0", "LOG_LEVEL=warn",
	}})
	return err
}

// spread is the p50 and p99 of some durations.
func spread(took []time.Duration) string {
	if len(took) == 0 {
		return "no samples"
	}
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms", ms(quantile(took, 0.5)), ms(quantile(took, 0.99)))
}

// quantile sorts took; q is between 0 and 1.
func quantile(took []time.Duration, q float64) time.Duration {
	slices.Sort(took)
	return took[int(q*float64(len(took)-1))]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
