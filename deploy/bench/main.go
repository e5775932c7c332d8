// Command bench measures the whole of Ringfence on this machine and prints each figure beside a
// limit taken in the same run: nothing here fails a test, and no figure means anything without its limit.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"ringfence.dev/deploy/e2e/rig"
)

// settings are the bench's flags.
type settings struct {
	bin     string
	each    time.Duration
	clients int
}

func main() {
	var set settings
	flag.StringVar(&set.bin, "bin", os.Getenv("RINGFENCE_BIN"), "folder of the built programs")
	flag.DurationVar(&set.each, "each", 10*time.Second, "how long each measurement runs")
	flag.IntVar(&set.clients, "clients", 32, "concurrent clients of POST /v1/calls")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, set); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, set settings) error {
	home, err := os.MkdirTemp("", "ringfence-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	if err := os.Chmod(home, 0o755); err != nil { // an unprivileged Postgres must reach it
		return err
	}
	db, err := rig.StartPostgres(set.bin, "--durable")
	if err != nil {
		return err
	}
	defer func() { _ = db.Stop() }()
	hooks, err := rig.NewReceiver(home)
	if err != nil {
		return err
	}
	defer hooks.Close()
	stack, err := startStack(ctx, set, home, db, hooks)
	if err != nil {
		return err
	}
	defer func() { _ = stack.Stop() }()
	fmt.Printf("ringfence bench: %s a measurement, %d clients, one machine for everything\n\n", set.each, set.clients)
	if err := posts(ctx, set, stack, db); err != nil {
		return err
	}
	return webhooks(ctx, set, stack, hooks)
}

func startStack(ctx context.Context, set settings, home string, db *rig.Postgres, hooks *rig.Receiver) (*rig.Stack, error) {
	port, err := rig.FreePort()
	if err != nil {
		return nil, err
	}
	admin, err := rig.FreePort()
	if err != nil {
		return nil, err
	}
	return rig.Start(ctx, rig.Options{Bin: set.bin, Home: home, Env: []string{
		fmt.Sprintf("RINGFENCE_PORT=%d", port), fmt.Sprintf("RINGFENCE_ADMIN_PORT=%d", admin),
		"POSTGRES_URL=" + db.URL, "SSL_CERT_FILE=" + hooks.CAFile, "SIMULATOR_TIME_SCALE=0", "LOG_LEVEL=warn",
	}})
}

// spread is the p50 and p99 of some durations.
func spread(took []time.Duration) string {
	if len(took) == 0 {
		return "no samples"
	}
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))] }
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms", ms(at(0.5)), ms(at(0.99)))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
