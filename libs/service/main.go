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

// Commands are the commands of a service: serve (the default), migrate, replay [topic] and the
// commands in Further.
type Commands[C any] struct {
	Serve func(ctx context.Context, cfg C) error
	// Migrate applies the migrations of the service's schema.
	Migrate func(ctx context.Context, cfg C) error
	// Replay applies the parked records of a topic again. If the topic is empty, Replay lists all
	// parked records. Replay is nil if the service has no consumer.
	Replay func(ctx context.Context, cfg C, topic string) error
	// Further are the commands that only this service has.
	Further []Command[C]
}

// Command is a command of one service.
type Command[C any] struct {
	// Name is one word. Help describes the command in --help.
	Name, Help string
	// Flags defines the flags of the command. If Flags is nil, the command has no flags.
	Flags func(*flag.FlagSet)
	// JSON adds the flag --json to the command. The flag sets Scripted.
	JSON bool
	Run  func(ctx context.Context, cfg C) error
}

// flagSet returns the flag set of the command. A parse error is returned and does not exit the
// process.
func (c Command[C]) flagSet() *flag.FlagSet {
	set := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	if c.Flags != nil {
		c.Flags(set)
	}
	if c.JSON {
		set.Bool(jsonFlag, false, "print JSON, for scripts")
	}
	return set
}

// Main is the main function of a service. It reads the environment into C, and runs the command
// with a context that SIGTERM and SIGINT cancel. If settings are invalid, Main lists all faults and
// exits with status 2. If the command fails, the exit status is 1.
func Main[C any](name string, commands Commands[C]) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	// after the first signal, stop restores the default handling: a second signal kills the process
	context.AfterFunc(ctx, stop)
	os.Exit(runCommand(ctx, name, commands, os.Args[1:], os.Stdout, os.Stderr))
}

// gcPercent is used if GOGC is not set. With Go's default of 100, garbage collection uses a tenth
// of the CPU time while the service handles POST /v1/calls. With 400 a service uses about 20 MB
// more memory. GOMEMLIMIT still limits the memory.
const gcPercent = 400

// runCommand does what Main does, but returns the exit status.
func runCommand[C any](
	ctx context.Context, name string, commands Commands[C], args []string, out, faults io.Writer,
) int {
	// the command `healthy` reads only PRIVATE_ADDR and needs no other variable
	if len(args) == 1 && args[0] == "healthy" {
		if err := Healthy(ctx, os.Getenv("PRIVATE_ADDR"), "/readyz"); err != nil {
			fmt.Fprintf(faults, "%s: %v\n", name, err)
			return 1
		}
		return 0
	}
	run, err := chooseCommand(name, commands, args, out)
	if err != nil {
		fmt.Fprintf(faults, "%s: %v\n%s --help lists the commands and variables.\n", name, err, name)
		return 2
	}
	if run == nil {
		return 0
	}
	own, ownFault := env.ParseAs[processConfig]()
	cfg, err := env.ParseAs[C]()
	if err = errors.Join(ownFault, err); err != nil {
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
	case !serves:
		fmt.Fprintf(faults, "%s %s: %v\n", name, strings.Join(args, " "), err)
		return 1
	}
	slog.ErrorContext(ctx, "service failed", "service", name, "error", err)
	return 1
}

type logKey struct{}

// Log returns the destination of the log. A service logs to standard output. A command prints its
// result to standard output, so it logs to standard error.
func Log(ctx context.Context) io.Writer {
	if faults, ok := ctx.Value(logKey{}).(io.Writer); ok {
		return faults
	}
	return os.Stdout
}

const jsonFlag = "json"

type scriptKey struct{}

// Scripted reports whether the command must print one JSON value instead of text.
func Scripted(ctx context.Context) bool {
	is, _ := ctx.Value(scriptKey{}).(bool)
	return is
}

// ForScript returns a context in which Scripted is true.
func ForScript(ctx context.Context) context.Context { return context.WithValue(ctx, scriptKey{}, true) }

func scripted[C any](run func(context.Context, C) error) func(context.Context, C) error {
	return func(ctx context.Context, cfg C) error { return run(ForScript(ctx), cfg) }
}

// chooseCommand returns the command that the arguments name. It returns nil without an error if it
// has printed the help or the version.
func chooseCommand[C any](
	name string, commands Commands[C], args []string, out io.Writer,
) (func(context.Context, C) error, error) {
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
		return nil, errors.New("replay takes one topic, or none to list the parked records")
	}
	run := func(ctx context.Context, cfg C) error { return replay(ctx, cfg, strings.Join(topics, "")) }
	if len(topics) < len(args) {
		return scripted(run), nil
	}
	return run, nil
}

func (c Command[C]) choose(args []string) (func(context.Context, C) error, error) {
	flags := c.flagSet()
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
