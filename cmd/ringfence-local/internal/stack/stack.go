// Package stack starts and stops Ringfence on one machine: Postgres and the broker, then the
// simulated carrier and the six services, then the demo workspace
// (cmd/ringfence-local/README.md).
package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Options are the options of Up.
type Options struct {
	Home *Home
	// Bin is the folder that contains the service binaries and simcarrier. Self is the path of
	// ringfence-local, which also runs the broker.
	Bin, Self string
	Console   *Console
	Starter   *Starter
}

const (
	// readyTimeout limits the wait until every service is ready.
	readyTimeout = 2 * time.Minute
	// stopTimeout limits the time in which the services must stop. The services themselves stop
	// within 20 s.
	stopTimeout = 25 * time.Second
	// defaultDrain is how long calls over trunks can continue after the dialer was stopped.
	defaultDrain = 30 * time.Second
)

type stack struct {
	Options
	state    *State
	replicas int
	procs    *Supervisor
	// ranks are groups of children in the order of their start. They are stopped in reverse order.
	ranks [][]*Child

	stopBalancers []context.CancelFunc

	claimed     []int // the ports that this run has reserved
	postgresURL string
	brokers     string
	caFile      string
}

// Up starts everything, prints how to place the first call, and stops all processes when ctx ends.
// When hurry ends, the dialer hangs up its calls and Up kills the other processes. When kill ends,
// Up kills the dialer.
func Up(ctx, hurry, kill context.Context, opts Options) error {
	s := &stack{Options: opts, replicas: 1, procs: NewSupervisor(opts.Starter, opts.Console, opts.Home.Path(childrenFile))}
	defer s.stopRanks(hurry, kill)
	err := s.up(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// childrenFile is the file that lists the running children. After ringfence-local was killed, the
// next start reads the file to find them.
const childrenFile = "children.json"

func (s *stack) up(ctx context.Context) error {
	began := time.Now()
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if err := s.startPostgres(ctx); err != nil {
		return err
	}
	if err := s.startBroker(ctx); err != nil {
		return err
	}
	if err := s.createSchemas(ctx); err != nil {
		return err
	}
	if os.Getenv("CARRIER") == "sip" {
		urls, err := s.schemaURLs(dialer)
		if err != nil {
			return err
		}
		if err := removeInventedNumber(ctx, urls["POSTGRES_MIGRATE_URL"]); err != nil {
			return err
		}
	}
	if err := s.startServices(ctx); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	demo, err := s.demoWorkspace(ctx)
	if err != nil {
		return err
	}
	code, err := s.signInCode(ctx)
	if err != nil {
		return err
	}
	// From here on the stack is ready, and the death of a child does not end it.
	if err := s.writeDemo(demo); err != nil {
		return err
	}
	s.printFirstCall(ctx, demo, time.Since(began))
	s.Console.Say("The console is at %s. Sign in with the code %s, which works once, for 10 minutes.\n",
		s.consoleURL(), code)
	return nil
}

// prepare ends orphaned processes, reads the state and checks every port.
func (s *stack) prepare(ctx context.Context) error {
	var err error
	if text := os.Getenv("RINGFENCE_REPLICAS"); text != "" {
		s.replicas, err = strconv.Atoi(text)
		if err != nil || s.replicas < 1 || s.replicas > 9 {
			return fmt.Errorf("RINGFENCE_REPLICAS is %q: set it to a number from 1 to 9", text)
		}
	}
	if text := os.Getenv("RINGFENCE_RESTART_PAUSE"); text != "" {
		if s.procs.Longest, err = time.ParseDuration(text); err != nil || s.procs.Longest <= 0 {
			return fmt.Errorf("RINGFENCE_RESTART_PAUSE is %q: set it to a duration, for example 500ms", text)
		}
	}
	if err := s.binariesThere(); err != nil {
		return err
	}
	for _, orphan := range Orphans(s.Home.Path(childrenFile)) {
		s.Console.Say("stopping %s (pid %d), which a killed run left behind", orphan.Name, orphan.PID)
		ask := syscall.SIGKILL
		if orphan.Name == "postgres" {
			ask = syscall.SIGINT
		}
		if err := End(orphan, ask, 10*time.Second); err != nil {
			return err
		}
	}
	// The file demo.json means that the stack is ready, so prepare removes the file of an earlier
	// run.
	if err := os.Remove(s.demoFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old demo.json: %w", err)
	}
	if s.state, err = Load(s.Home.Dir); err != nil {
		return err
	}
	if err := s.settlePorts(ctx); err != nil {
		return err
	}
	if s.caFile, err = EnsureAuthority(s.Home.Dir); err != nil {
		return err
	}
	return s.state.Save()
}

func (s *stack) binariesThere() error {
	for _, name := range append(serviceNames(), carrierName, console) {
		if _, err := os.Stat(filepath.Join(s.Bin, name)); err != nil {
			return fmt.Errorf("%s is not in %s: run `make build`", name, s.Bin)
		}
	}
	return nil
}

// startRank starts the children as one rank. Each child is restarted if it ends.
func (s *stack) startRank(ctx context.Context, specs ...Spec) error {
	rank := make([]*Child, 0, len(specs))
	defer func() { s.ranks = append(s.ranks, rank) }()
	for _, spec := range specs {
		child, err := s.procs.Keep(ctx, spec)
		if err != nil {
			return err
		}
		rank = append(rank, child)
	}
	return nil
}

// stopRanks stops the ranks (groups of processes) in reverse order: services, carrier, broker,
// Postgres.
func (s *stack) stopRanks(hurry, kill context.Context) {
	if len(s.ranks) == 0 {
		return
	}
	s.Console.Say("stopping; calls over trunks can continue for %s; press Ctrl-C again to hang up and kill", s.drainTime())
	defer func() { s.Console.Say("stopped; %s contains the data for the next start", s.Home.Dir) }()
	defer func() {
		for _, stop := range s.stopBalancers {
			stop()
		}
	}()
	for i := len(s.ranks) - 1; i >= 0; i-- {
		gone := make(chan struct{})
		for _, child := range s.ranks[i] {
			go func() {
				stopChild(hurry, kill, child)
				gone <- struct{}{}
			}()
		}
		for range s.ranks[i] {
			<-gone
		}
	}
}

// stopChild stops a child and kills it when hurryCtx ends. A child with a drain time receives a
// second signal when hurryCtx ends, and is killed when killCtx ends.
func stopChild(hurryCtx, killCtx context.Context, child *Child) {
	parent, limit := hurryCtx, stopTimeout
	if child.Drain() > 0 {
		defer context.AfterFunc(hurryCtx, child.Hurry)()
		parent, limit = killCtx, limit+child.Drain()
	}
	stopCtx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	child.Stop(stopCtx)
}

// drainTime returns how long calls can continue after the dialer was stopped. An invalid
// DRAIN_LIMIT is ignored here, because the dialer refuses it at its start.
func (s *stack) drainTime() time.Duration {
	if limit, err := time.ParseDuration(os.Getenv("DRAIN_LIMIT")); err == nil {
		return limit
	}
	return defaultDrain
}
