// Command ringfence is what a person does with a running stack from a terminal: place a call and watch it (demo), or
// receive webhooks and verify them (listen). It knows the public API only, as any customer's program would.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

type commands struct {
	Demo   demoCommand   `cmd:"" help:"Place one call against the running local stack, show its states as they happen, receive and verify its webhooks, print the summary."`
	Listen listenCommand `cmd:"" help:"Receive the demo workspace's webhooks on a local HTTPS endpoint, verify and print them until Ctrl-C."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run parses and does one command; the exit status is 0, 1 for a failure and 2 for a command that is not understood.
func run(ctx context.Context, args []string, out, faults io.Writer) int {
	var cli commands
	exited := -1
	parser, err := kong.New(&cli, kong.Name("ringfence"), kong.Description("Ringfence from a terminal."),
		kong.Writers(out, faults), kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.BindTo(out, (*io.Writer)(nil)))
	if err != nil {
		fmt.Fprintln(faults, "ringfence:", err)
		return 2
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		fmt.Fprintf(faults, "ringfence: %v. `ringfence --help` lists the commands.\n", err)
		return 2
	}
	if err := command.Run(); err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			err = errors.New("stopped")
		}
		fmt.Fprintln(faults, "ringfence:", err)
		return 1
	}
	return 0
}
