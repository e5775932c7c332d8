package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"ringfence.dev/deploy/local/internal/postgres"
	"ringfence.dev/deploy/local/internal/state"
	"ringfence.dev/libs/kafka"
)

// Replay runs `<service> replay <topic>` with the environment that the service has in the stack that runs on the home, and
// returns the command's own end.
func Replay(ctx context.Context, opts Options, name, topic string) error {
	reads := readBy(name)
	if !slices.Contains(reads, topic) {
		return fmt.Errorf("replay takes a service and a topic that it reads: %s", readers())
	}
	return command(ctx, opts, name, "replay", topic)
}

// Reseal runs `webhook-dispatcher reseal` in the same way.
func Reseal(ctx context.Context, opts Options) error {
	return command(ctx, opts, dispatcher, "reseal")
}

// Ledger runs `contacts-compliance verify` in the same way.
func Ledger(ctx context.Context, opts Options) error {
	return command(ctx, opts, contacts, "verify")
}

// Reconcile runs `billing-wallet reconcile` in the same way, for one workspace when its id is given.
func Reconcile(ctx context.Context, opts Options, workspace string) error {
	if workspace == "" {
		return command(ctx, opts, "billing-wallet", "reconcile")
	}
	return command(ctx, opts, "billing-wallet", "reconcile", "--workspace", workspace)
}

// command runs a command of a service with the environment that the service has in the stack that runs on the home.
func command(ctx context.Context, opts Options, name string, args ...string) error {
	s := &stack{Options: opts, replicas: 1}
	if _, err := os.Stat(s.Home.Path("state.json")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no stack was ever started on %s: start one with `make run`, or set RINGFENCE_HOME", s.Home.Dir)
	}
	var err error
	if s.state, err = state.Load(s.Home.Dir); err != nil {
		return err
	}
	if err := s.findRunning(ctx); err != nil {
		return err
	}
	svc := services()[slices.IndexFunc(services(), func(svc service) bool { return svc.name == name })]
	spec, err := s.spec(svc, 1)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, spec.Path, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = spec.Env, spec.Dir, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd.Run()
}

// findRunning settles where the Postgres and the Kafka of the running stack are.
func (s *stack) findRunning(ctx context.Context) error {
	server := postgres.Server{Port: s.state.Ports["postgres"], Password: s.state.PostgresPassword}
	s.postgresURL, s.brokers = server.URL(database), loopback(s.state.Ports["kafka"])
	if given := os.Getenv("POSTGRES_URL"); given != "" {
		s.postgresURL = given
	}
	if given := os.Getenv("KAFKA_BROKERS"); given != "" {
		s.brokers = given
	}
	place, err := url.Parse(s.postgresURL)
	if err != nil || place.Host == "" {
		return errPostgresURL
	}
	for _, addresses := range [][]string{{place.Host}, strings.Split(s.brokers, ",")} {
		if !answers(ctx, addresses) {
			return fmt.Errorf("nothing answers at %s: start the stack with `make run` in another terminal; if POSTGRES_URL or KAFKA_BROKERS is set there, set it here too",
				strings.Join(addresses, ","))
		}
	}
	return nil
}

// readBy are the topics that a service reads.
func readBy(service string) (topics []string) {
	for _, topic := range kafka.Catalogue() {
		if slices.Contains(kafka.Readers(topic.Name), service) {
			topics = append(topics, topic.Name)
		}
	}
	return topics
}

// readers lists every service that reads anything, with its topics.
func readers() string {
	var all []string
	for _, name := range serviceNames() {
		if topics := readBy(name); len(topics) > 0 {
			all = append(all, name+" ("+strings.Join(topics, ", ")+")")
		}
	}
	return strings.Join(all, ", ")
}
