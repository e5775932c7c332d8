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

// comeUp bounds the wait for a broker: a Java machine needs seconds, many on a busy machine.
const comeUp = 2 * time.Minute

// throwaway is a broker whose folder goes with it.
type throwaway struct {
	address string
	dir     string
	cmd     *exec.Cmd
	done    chan struct{}
}

// start returns once the broker answers; port 0 is a free one.
func start(ctx context.Context, kept files, jvm string, port int) (t *throwaway, err error) {
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
	// It is never killed to come again, and a busy machine may keep its own heartbeats for seconds.
	b := broker{files: kept, jvm: jvm, dir: t.dir, port: port, properties: []string{"broker.session.timeout.ms=60000"}}
	java, args, err := b.prepare(ctx)
	if err != nil {
		return t, err
	}
	cmd := exec.Command(java)
	cmd.Args, cmd.Stdout, cmd.Stderr = args, os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours: whoever uses the broker ends first
	if err := cmd.Start(); err != nil {
		return t, fmt.Errorf("start java: %w", err)
	}
	t.cmd = cmd
	go func() { _ = cmd.Wait(); close(t.done) }()
	return t, t.ready(ctx)
}

var errEnded = errors.New("the broker ended; what it said stands above")

// ready waits until the broker tells of itself.
func (t *throwaway) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, comeUp)
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
			return fmt.Errorf("the broker at %s did not answer within %s: %w", t.address, comeUp, ctx.Err())
		}
	}
}

// await ends with ctx, or with an error when the broker ends first.
func (t *throwaway) await(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-t.done:
		return errEnded
	}
}

// with runs a command beside the broker; its exit is ours. The first signal is handed to it.
func (t *throwaway) with(ctx context.Context, command []string) error {
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

// stop ends the broker and removes its folder.
func (t *throwaway) stop() {
	if t.cmd != nil {
		_ = t.cmd.Process.Kill() // nothing of it is kept
		<-t.done
	}
	_ = os.RemoveAll(t.dir)
}
