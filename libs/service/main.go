package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/caarlos0/env/v11"
)

// Commands are what every service binary can do: serve (the default), migrate, replay [topic].
type Commands[C any] struct {
	Serve func(ctx context.Context, cfg C) error
	// Migrate brings the schema up to date and ends.
	Migrate func(ctx context.Context, cfg C) error
	// Replay puts the parked records of one topic back, or lists all when the topic is empty; nil when the service consumes nothing.
	Replay func(ctx context.Context, cfg C, topic string) error
	// Further are what this service alone can do.
	Further []Command[C]
}

// Command is one more thing that a service does and ends.
type Command[C any] struct {
	// Name is one word; Help is its line in --help.
	Name, Help string
	// Flags says what may follow the name; nil: nothing may.
	Flags func(*flag.FlagSet)
	// JSON: it takes --json and then answers as Scripted says.
	JSON bool
	Run  func(ctx context.Context, cfg C) error
}

// flags are the command's own; what they may not hold is an error, not an exit.
func (c Command[C]) flags() *flag.FlagSet {
	set := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	if c.Flags != nil {
		c.Flags(set)
	}
	if c.JSON {
		set.Bool(jsonFlag, false, "answers in JSON, for scripts")
	}
	return set
}

// Main is the frame of every main.go: it parses the environment into C (all faults listed together, exit 2), answers --version, and --help with
// the commands and a table of the variables (their meaning is the struct tag `help`), and runs the command with a
// context ended by SIGTERM or SIGINT. A service that fails logs it, any other command says so on standard error, and the exit status is 1.
func Main[C any](name string, commands Commands[C]) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal kills
	os.Exit(start(ctx, name, commands, os.Args[1:], os.Stdout, os.Stderr))
}

// gcPercent stands in for Go's own 100 where GOGC is not set. A service keeps a few MB alive and makes garbage with every request: at 100
// a tenth of its CPU goes into collecting (measured under POST /v1/calls), at 400 it holds some 20 MB more. GOMEMLIMIT still bounds it.
const gcPercent = 400

// start is Main without the process: it returns the exit status.
func start[C any](ctx context.Context, name string, commands Commands[C], args []string, out, faults io.Writer) int {
	if len(args) == 1 && args[0] == "healthy" { // it needs no environment but the address
		if err := Healthy(ctx, os.Getenv("PRIVATE_ADDR"), "/readyz"); err != nil {
			fmt.Fprintf(faults, "%s: %v\n", name, err)
			return 1
		}
		return 0
	}
	run, err := choose(name, commands, args, out)
	if err != nil {
		fmt.Fprintf(faults, "%s: %v\n%s --help lists the commands and variables.\n", name, err, name)
		return 2
	}
	if run == nil {
		return 0
	}
	own, frameFault := env.ParseAs[frame]()
	cfg, err := env.ParseAs[C]()
	if err = errors.Join(frameFault, err); err != nil {
		fmt.Fprintf(faults, "%s: the environment is not complete:\n", name)
		for _, fault := range configFaults(err) {
			fmt.Fprintf(faults, "  - %s\n", fault)
		}
		fmt.Fprintf(faults, "%s --help lists the variables.\n", name)
		return 2
	}
	serves := len(args) == 0 || args[0] == "serve"
	if !serves {
		ctx = context.WithValue(ctx, logKey{}, faults)
	}
	switch err = run(context.WithValue(ctx, delayKey{}, own.DrainDelay), cfg); {
	case err == nil, serves && ctx.Err() != nil && errors.Is(err, context.Canceled):
		return 0
	case !serves: // somebody waits for it
		fmt.Fprintf(faults, "%s %s: %v\n", name, strings.Join(args, " "), err)
		return 1
	}
	slog.ErrorContext(ctx, "the service ended with a fault", "service", name, "error", err)
	return 1
}

type logKey struct{}

// Log is where a process logs: standard output, but standard error for a command, which prints its answer on the other.
func Log(ctx context.Context) io.Writer {
	if faults, ok := ctx.Value(logKey{}).(io.Writer); ok {
		return faults
	}
	return os.Stdout
}

const jsonFlag = "json"

type scriptKey struct{}

// Scripted says whether a command answers a script: with one JSON value on standard output, in the place of its text.
func Scripted(ctx context.Context) bool {
	is, _ := ctx.Value(scriptKey{}).(bool)
	return is
}

// ForScript is the context of a command that does.
func ForScript(ctx context.Context) context.Context { return context.WithValue(ctx, scriptKey{}, true) }

func scripted[C any](run func(context.Context, C) error) func(context.Context, C) error {
	return func(ctx context.Context, cfg C) error { return run(ForScript(ctx), cfg) }
}

// choose finds the command; nil without an error means that help was the answer.
func choose[C any](name string, commands Commands[C], args []string, out io.Writer) (func(context.Context, C) error, error) {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	switch {
	case args[0] == "--help" || args[0] == "-h" || args[0] == "help":
		help(out, name, commands)
		return nil, nil
	case args[0] == "--version" || args[0] == "version":
		fmt.Fprintf(out, "%s %s %s\n", name, Version(), runtime.Version())
		return nil, nil
	case args[0] == "serve" && len(args) == 1:
		return commands.Serve, nil
	case args[0] == "migrate" && len(args) == 1 && commands.Migrate != nil:
		return commands.Migrate, nil
	case args[0] == "replay" && commands.Replay != nil:
		return chooseReplay(commands.Replay, args[1:])
	}
	for _, further := range commands.Further {
		if args[0] == further.Name {
			return further.choose(args[1:])
		}
	}
	return nil, fmt.Errorf("there is no command %q", strings.Join(args, " "))
}

func chooseReplay[C any](replay func(context.Context, C, string) error, args []string) (func(context.Context, C) error, error) {
	topics := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == "--"+jsonFlag })
	if len(args)-len(topics) > 1 || len(topics) > 1 || slices.Contains(topics, "") {
		return nil, errors.New("replay takes one topic, or none to list what is parked")
	}
	run := func(ctx context.Context, cfg C) error { return replay(ctx, cfg, strings.Join(topics, "")) }
	if len(topics) < len(args) {
		return scripted(run), nil
	}
	return run, nil
}

func (c Command[C]) choose(args []string) (func(context.Context, C) error, error) {
	flags := c.flags()
	switch err := flags.Parse(args); {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	case flags.NArg() > 0:
		return nil, fmt.Errorf("%s does not take %q", c.Name, flags.Arg(0))
	case c.JSON && flags.Lookup(jsonFlag).Value.String() == "true":
		return scripted(c.Run), nil
	}
	return c.Run, nil
}

// configFaults are the single faults of the parses that err joins.
func configFaults(err error) (faults []string) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			faults = append(faults, parseFaults(one)...)
		}
	}
	return faults
}

func parseFaults(err error) []string {
	var aggregate env.AggregateError
	if !errors.As(err, &aggregate) {
		return []string{err.Error()}
	}
	faults := make([]string, 0, len(aggregate.Errors))
	for _, fault := range aggregate.Errors {
		var unset env.VarIsNotSetError
		if errors.As(fault, &unset) {
			faults = append(faults, unset.Key+" is not set")
			continue
		}
		faults = append(faults, fault.Error())
	}
	return faults
}
