// Package sharedstack provides the parts that end-to-end tests share: the built programs, a stack
// for all tests of a package, and assertions.
package sharedstack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
)

const (
	variable = "RINGFENCE_BIN"
	unbuilt  = variable + " is not set: run `make test-e2e`, which builds the programs and sets it"
)

var large = flag.Bool("large", false, "run the large number of trials, as make test-nightly does")

// Large reports whether the test binary was started with -large.
func Large() bool { return *large }

// Trials returns the number of trials of a test: short, or long if the flag -large is set.
func Trials(short, long int) int {
	if *large {
		return long
	}
	return short
}

// Binaries returns the folder of the programs that `make test-e2e` built. If the folder is missing,
// the test fails.
func Binaries(t testing.TB) string {
	t.Helper()
	dir := os.Getenv(variable)
	if dir == "" {
		t.Fatal(unbuilt)
	}
	return dir
}

// Complete adds links to the folder bin. Each link leads to a program in the folder `built` that is
// missing in bin.
func Complete(bin, built string) error {
	all, err := os.ReadDir(built)
	if err != nil {
		return err
	}
	for _, one := range all {
		if err := os.Symlink(filepath.Join(built, one.Name()), filepath.Join(bin, one.Name())); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// Seeded returns a random number generator. Generators with the same seed and different values of
// stream return different numbers. The test logs its seed. RINGFENCE_SEED sets the seed, so that a
// run can be repeated.
func Seeded(t testing.TB, stream uint64) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("RINGFENCE_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("RINGFENCE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, stream))
}

// TestStack is a stack with a webhook receiver and the other programs that a test needs.
type TestStack struct {
	*kit.Stack
	// Hooks receives webhooks. The stack trusts its certificate.
	Hooks *kit.Receiver
	Bin   string
	// Home is the folder of the stack. An unprivileged Postgres can read it.
	Home string
	// Env is the environment of the last start of the stack.
	Env []string

	addresses []string
	ends      []func() error
}

// New creates the folder and starts the receiver.
func New() (w *TestStack, err error) {
	w = &TestStack{Bin: os.Getenv(variable)}
	if w.Bin == "" {
		return nil, errors.New(unbuilt)
	}
	if w.Home, err = os.MkdirTemp("", "ringfence-e2e-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(w.Home, 0o755); err != nil {
		return nil, err
	}
	if w.Hooks, err = kit.NewReceiver(w.Home); err != nil {
		return nil, err
	}
	w.AtEnd(func() error { w.Hooks.Close(); return nil })
	return w, nil
}

// AtEnd registers a function that End calls. The last registered function is called first.
func (w *TestStack) AtEnd(do func() error) { w.ends = append(w.ends, do) }

// Postgres starts a Postgres server for the stack.
func (w *TestStack) Postgres() (*kit.Postgres, error) {
	db, err := kit.StartPostgres(w.Bin)
	if err == nil {
		w.AtEnd(db.Stop)
	}
	return db, err
}

// Model starts fake-speech-model, a fake of the OpenAI Realtime API, and returns its URL. The
// script is a list of objects with the fields of the flag -script. If the script is nil, the model
// ends the call after the first utterance of the person.
func (w *TestStack) Model(script []map[string]any) (url string, err error) {
	data, err := json.Marshal(script)
	if err != nil {
		return "", err
	}
	path := filepath.Join(w.Home, "script.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", err
	}
	cmd := exec.Command(filepath.Join(w.Bin, "fake-speech-model"), "-script", path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start the model, which `make build` builds: %w", err)
	}
	w.AtEnd(func() error { _ = cmd.Process.Kill(); _ = cmd.Wait(); return nil })
	line, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), err
}

// Start starts the stack. Start can also start the stack again after Stop. Simulated time is 50
// times faster unless env sets another scale.
func (w *TestStack) Start(env ...string) (err error) {
	if w.addresses == nil {
		for _, name := range []string{"RINGFENCE_PORT", "RINGFENCE_ADMIN_PORT"} {
			port, err := testkit.Port()
			if err != nil {
				return err
			}
			w.addresses = append(w.addresses, fmt.Sprintf("%s=%d", name, port))
		}
		w.AtEnd(func() error {
			if w.Stack == nil {
				return nil // the stack was never started
			}
			return w.Stop()
		})
	}
	w.Env = append(
		append([]string{"SIMULATOR_TIME_SCALE=0.02", "SSL_CERT_FILE=" + w.Hooks.CAFile}, w.addresses...),
		env...)
	w.Stack, err = kit.Start(context.Background(), kit.Options{Bin: w.Bin, Home: w.Home, Env: w.Env})
	return err
}

// End stops everything. If well is true, End deletes the folder. Otherwise End prints the path of
// the folder and the end of the stack's log.
func (w *TestStack) End(well bool) (err error) {
	for i := len(w.ends) - 1; i >= 0; i-- {
		err = errors.Join(err, w.ends[i]())
	}
	if well && err == nil {
		return os.RemoveAll(w.Home)
	}
	fmt.Fprintf(os.Stderr, "kept %s\n", w.Home)
	if w.Stack != nil {
		fmt.Fprintf(os.Stderr, "the end of the stack's log:\n%s\n", w.Tail(60))
	}
	return err
}
