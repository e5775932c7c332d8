package stack

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// testURL is the name of the environment variable from which tests read the URL of the server.
const testURL = "RINGFENCE_TEST_POSTGRES"

// WithPostgres runs a command with a temporary Postgres server, or with the server that the
// environment names. If durable is true, the server is always temporary and its data is on disk.
func WithPostgres(ctx, hurry context.Context, command []string, durable bool) error {
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return fmt.Errorf("with-postgres takes a command: ringfence-local with-postgres -- go test ./...")
	}
	if os.Getenv(testURL) != "" && !durable {
		return runCommand(ctx, hurry, command, os.Getenv(testURL))
	}
	deleteLeftovers()
	dir, err := os.MkdirTemp(dataParent(durable), fmt.Sprintf("%s%d-", lentPrefix, os.Getpid()))
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	// The account that runs Postgres must be able to read the directory.
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("open a directory: %w", err)
	}
	console := Plain(os.Stderr)
	home, err := MakeHome()
	if err != nil {
		return err
	}
	server, err := newPostgres(ctx, home, dir, console.Say)
	if err != nil {
		return err
	}
	fresh, err := Load(dir)
	if err != nil {
		return err
	}
	if server.Port, err = Free(); err != nil {
		return err
	}
	server.Password, server.Durable, server.Connections = fresh.PostgresPassword, durable, 400
	starter := NewStarter()
	defer starter.Close()
	if err := server.Init(ctx, starter); err != nil {
		return err
	}
	child, err := NewSupervisor(starter, console, filepath.Join(dir, childrenFile)).Keep(ctx, server.Spec())
	if err != nil {
		return err
	}
	defer func() {
		stopCtx, cancel := context.WithTimeout(hurry, 10*time.Second)
		defer cancel()
		child.Stop(stopCtx)
	}()
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := server.Await(ready, databaseName); err != nil {
		return err
	}
	return runCommand(ctx, hurry, command, server.URL(databaseName))
}

// runCommand runs the command with the input and output of this process. The command is in the
// process group of this process, so a Ctrl-C at the terminal reaches both processes. runCommand
// forwards signals that were sent only to this process.
func runCommand(ctx, hurry context.Context, command []string, url string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), testURL+"="+url)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run %s: %w", command[0], err)
	}
	over := make(chan struct{})
	defer close(over)
	go func() {
		for _, step := range []struct {
			when <-chan struct{}
			send syscall.Signal
		}{{ctx.Done(), syscall.SIGTERM}, {hurry.Done(), syscall.SIGKILL}} {
			select {
			case <-step.when:
				_ = cmd.Process.Signal(step.send)
			case <-over:
				return
			}
		}
	}()
	return cmd.Wait()
}

const (
	lentPrefix = "ringfence-lent-"
	// sharedMemory is a file system in memory on Linux.
	sharedMemory = "/dev/shm"
	// minSharedMemory is the free space, in bytes, that sharedMemory must have for a data directory.
	// `make test` uses less than a tenth of this space.
	minSharedMemory = 4 << 30
)

// dataParent returns the directory in which the data directory is created. It prefers a directory
// in memory: tests clone a database of 8 MB each, and a clone takes several times as long on a
// disk.
func dataParent(durable bool) string {
	if !durable && FreeSpace(sharedMemory) >= minSharedMemory {
		return sharedMemory
	}
	return os.TempDir()
}

// deleteLeftovers deletes the data directories of killed runs. The name of each directory contains
// the process id of its run.
func deleteLeftovers() {
	var left []string
	for _, parent := range []string{os.TempDir(), sharedMemory} {
		found, _ := filepath.Glob(filepath.Join(parent, lentPrefix+"*"))
		left = append(left, found...)
	}
	for _, dir := range left {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), lentPrefix), "-")
		pid, err := strconv.Atoi(number)
		if _, alive := Identify("", pid); err != nil || alive {
			continue
		}
		for _, orphan := range Orphans(filepath.Join(dir, childrenFile)) {
			_ = End(orphan, syscall.SIGINT, 5*time.Second)
		}
		_ = os.RemoveAll(dir)
	}
}
