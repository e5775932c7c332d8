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
)

// Command runs a command of a service's binary (replay, verify, reconcile, …) with the environment
// that the service has in the running stack. It returns the error of that command.
func Command(ctx context.Context, opts Options, name string, args ...string) error {
	if !slices.Contains(serviceNames(), name) {
		return fmt.Errorf("there is no service %q: use one of %s", name, strings.Join(serviceNames(), ", "))
	}
	s := &stack{Options: opts, replicas: 1}
	if _, err := os.Stat(s.Home.Path("state.json")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no stack was started in %s yet: start one with `make run`, or set RINGFENCE_HOME", s.Home.Dir)
	}
	var err error
	if s.state, err = Load(s.Home.Dir); err != nil {
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

// findRunning finds the Postgres and the Kafka broker of the running stack.
func (s *stack) findRunning(ctx context.Context) error {
	server := Server{Port: s.state.Ports["postgres"], Password: s.state.PostgresPassword}
	s.postgresURL, s.brokers = server.URL(databaseName), loopback(s.state.Ports["kafka"])
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
			return fmt.Errorf("no server responds at %s: start the stack with `make run` in another terminal; if "+
				"POSTGRES_URL or KAFKA_BROKERS is set there, set it here too",
				strings.Join(addresses, ","))
		}
	}
	return nil
}
