// Command simcarrier is the simulated carrier for development and tests. The last two digits of the
// number determine whether a phone rings, answers, talks or hangs up (docs/test-numbers.md). It
// serves HTTP, keeps an append-only journal, and places no real call.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/caarlos0/env/v11"

	"ringfence.dev/libs/service"
	"ringfence.dev/libs/telemetry"
)

// Config contains the settings from the environment.
type Config struct {
	Addr string `env:"SIMCARRIER_ADDR" envDefault:"127.0.0.1:8090" help:"address at which simcarrier listens"`
	// Dir is the folder that contains the journal.
	Dir string `env:"SIMCARRIER_DIR" envDefault:".ringfence/simcarrier" help:"folder of the log, which a restart keeps"`
	// Token is the access token of every route except /healthz.
	Token string `env:"SIMCARRIER_TOKEN" help:"bearer token of all routes except /healthz; required unless SIMCARRIER_ADDR is a loopback address"`
	// TimeScale multiplies every simulated duration. 0 means no delay.
	TimeScale float64 `env:"SIMULATOR_TIME_SCALE" envDefault:"1" help:"multiplies every simulated duration; 0 means no delay"`

	Telemetry telemetry.Config
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var cfg Config
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("simcarrier", service.Version(), runtime.Version())
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "healthy" {
		exitOnError(healthy(ctx))
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "call" {
		exitOnError(placeCall(ctx, os.Stdout))
		return
	}
	if len(os.Args) > 1 {
		help()
		if len(os.Args) > 2 || os.Args[1] != "--help" && os.Args[1] != "-h" && os.Args[1] != "help" {
			os.Exit(2)
		}
		return
	}
	err := env.Parse(&cfg)
	if err == nil {
		err = run(ctx, cfg)
	}
	exitOnError(err)
}

func exitOnError(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "simcarrier:", err)
		os.Exit(1)
	}
}

// healthy returns an error unless the carrier process on this machine responds. A container image
// without other programs uses it as the health check.
func healthy(ctx context.Context) error {
	cfg, err := env.ParseAs[Config]()
	if err != nil {
		return err
	}
	return service.Healthy(ctx, cfg.Addr, "/healthz")
}

// checkToken returns an error if other machines could use the routes without a token.
func (c Config) checkToken() error {
	if c.Token != "" {
		return nil
	}
	host, _, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return fmt.Errorf("read SIMCARRIER_ADDR: %w", err)
	}
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() {
		return nil
	}
	return fmt.Errorf("SIMCARRIER_TOKEN is missing: other machines reach the address %s. Set a random token, "+
		"and the same value as SIM_TOKEN of the dialer", c.Addr)
}

func help() {
	fmt.Print("simcarrier: the simulated telephone carrier. No real call is ever placed.\n\n" +
		"simcarrier healthy checks the process at SIMCARRIER_ADDR and exits with status 1 if it does not respond. " +
		"simcarrier call places a call through the API at RINGFENCE_URL and RINGFENCE_ADMIN_URL, with a token of " +
		"OPERATOR_TOKENS. --version prints the version.\n\nVariables:\n")
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, v := range service.Variables[Config]() {
		fmt.Fprintf(table, "  %s\t%s\t%s\n", v.Name, v.Default, v.Help)
	}
	_ = table.Flush()
	fmt.Print("\nThe last two digits of a number select the behavior, unless a fault was requested for the beginning " +
		"of the number:\n" +
		"  POST /faults {\"fault\":…, \"to\":\"+1415…\", \"times\":0, \"delay_ms\":0}   times 0 means every call, to " +
		"empty means every number\n" +
		"  GET /faults, DELETE /faults                                       show the faults and how often each was " +
		"applied; delete all faults\n\nFaults:\n" +
		FaultHelp())
}

func run(ctx context.Context, cfg Config) error {
	if cfg.TimeScale < 0 {
		return errors.New("SIMULATOR_TIME_SCALE must be zero or more")
	}
	if err := cfg.checkToken(); err != nil {
		return err
	}
	tel, err := telemetry.Start(ctx, cfg.Telemetry, "simcarrier")
	if err != nil {
		return err
	}
	defer tel.Close(ctx)
	network, err := New(cfg.Dir, cfg.TimeScale)
	if err != nil {
		return err
	}
	defer func() { _ = network.Journal().Close() }()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: requireToken(cfg.Token, network.Handler()), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	slog.Info("listening", "addr", listener.Addr().String(), "time_scale", cfg.TimeScale)
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		return server.Close() // calls need no drain: the next start records the end of every live call
	}
}
