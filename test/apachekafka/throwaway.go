package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// startTimeout is long, because Java starts slowly on a busy machine.
const startTimeout = 2 * time.Minute

// throwaway is a broker whose folder is deleted when the broker stops.
type throwaway struct {
	address string
	dir     string
	cmd     *exec.Cmd
	done    chan struct{}
}

// start returns when the broker responds. Port 0 means a free port.
func start(ctx context.Context, kept downloads, jvm string, port int) (t *throwaway, err error) {
	if port == 0 {
		if port, err = freePort(); err != nil {
			return nil, err
		}
	}
	t = &throwaway{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), done: make(chan struct{})}
	if t.dir, err = os.MkdirTemp("", "ringfence-kafka-"); err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() {
		if err != nil {
			t.stop()
		}
	}()
	// The broker is not restarted after a kill, so its session timeout can be long. On a busy
	// machine the broker's heartbeats can be seconds late.
	b := broker{downloads: kept, jvm: jvm, dir: t.dir, port: port, properties: []string{"broker.session.timeout.ms=60000"}}
	java, args, err := b.prepare(ctx)
	if err != nil {
		return t, err
	}
	cmd := exec.Command(java)
	cmd.Args, cmd.Stdout, cmd.Stderr = args, os.Stderr, os.Stderr
	// Ctrl-C must not reach the broker, because the clients of the broker stop first.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return t, fmt.Errorf("start java: %w", err)
	}
	t.cmd = cmd
	go func() { _ = cmd.Wait(); close(t.done) }()
	return t, t.ready(ctx)
}

var errEnded = errors.New("the broker ended; its output is above")

func (t *throwaway) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(t.address))
	if err != nil {
		return fmt.Errorf("make a kafka client: %w", err)
	}
	defer client.Close()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		if brokers, err := kadm.NewClient(client).ListBrokers(ctx); err == nil && len(brokers) > 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-t.done:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("the broker at %s did not answer within %s: %w", t.address, startTimeout, ctx.Err())
		}
	}
}

// awaitEnd waits until ctx ends. If the broker ends first, awaitEnd returns an error.
func (t *throwaway) awaitEnd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-t.done:
		return errEnded
	}
}

// runCommand runs a command while the broker runs. The first signal is forwarded to the command.
func (t *throwaway) runCommand(ctx context.Context, command []string) error {
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return errors.New("no command to run: give one after --")
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "KAFKA_BROKERS="+t.address)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	return cmd.Run()
}

// stop kills the broker and deletes its folder.
func (t *throwaway) stop() {
	if t.cmd != nil {
		_ = t.cmd.Process.Kill()
		<-t.done
	}
	_ = os.RemoveAll(t.dir)
}
