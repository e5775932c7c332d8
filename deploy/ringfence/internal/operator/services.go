package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"

	"ringfence.dev/deploy/ringfence/internal/desk"
)

type services struct {
	Parked    servicesParked    `cmd:"" help:"List the records that a service could not apply, and why."`
	Replay    servicesReplay    `cmd:"" help:"Put the records that a service parked of one topic back, after its repair."`
	Reconcile servicesReconcile `cmd:"" help:"Compare the books of every wallet (of the workspace of -w alone, when named) and print each difference."`
	Verify    servicesVerify    `cmd:"" help:"Walk over the consent ledger of every workspace and name each row that is not as it was written."`
	Reseal    servicesReseal    `cmd:"" help:"Bring the secrets of webhooks under the first of SEALING_KEYS (the dialer brings its own when it starts)."`
}

// Reach is how a service's own binary is run beside it: a command line in which {service} stands for its name, and behind which
// the binary's arguments come.
type Reach struct {
	Via []string
	Out io.Writer
	// Asides takes what the binary logs.
	Asides io.Writer
	// Workspace narrows what can be narrowed.
	Workspace string
	// JSON wraps what the binary says, which is text.
	JSON bool
}

// run does a command of a service's binary, and fails when it does.
func (r *Reach) run(ctx context.Context, service string, args ...string) error {
	if !r.JSON {
		return r.start(ctx, r.Out, service, args)
	}
	var said bytes.Buffer
	fault := r.start(ctx, &said, service, args)
	lines := strings.FieldsFunc(said.String(), func(r rune) bool { return r == '\n' })
	told, err := json.MarshalIndent(map[string]any{"service": service, "command": args, "lines": lines, "ok": fault == nil}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode what %s said: %w", service, err)
	}
	if _, err := fmt.Fprintln(r.Out, desk.Escaped(told)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return fault
}

func (r *Reach) start(ctx context.Context, out io.Writer, service string, args []string) error {
	words := make([]string, 0, len(r.Via)+len(args))
	for _, word := range r.Via {
		words = append(words, strings.ReplaceAll(word, "{service}", service))
	}
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], args...)...)
	cmd.Stdout, cmd.Stderr = out, r.Asides
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", service, strings.Join(args, " "), err)
	}
	return nil
}

type servicesParked struct{ service }

// service is the one whose binary is run.
type service struct {
	Service string `arg:"" enum:"calls,contacts-compliance,dialer,billing-wallet,webhook-dispatcher" help:"calls, contacts-compliance, dialer, billing-wallet or webhook-dispatcher."`
}

func (c servicesParked) Run(ctx context.Context, r *Reach) error {
	return r.run(ctx, c.Service, "replay")
}

type servicesReplay struct {
	service
	Topic string `arg:"" help:"The topic that they came on."`
}

func (c servicesReplay) Run(ctx context.Context, r *Reach) error {
	return r.run(ctx, c.Service, "replay", c.Topic)
}

type servicesReconcile struct{}

func (servicesReconcile) Run(ctx context.Context, r *Reach) error {
	if r.Workspace == "" {
		return r.run(ctx, "billing-wallet", "reconcile")
	}
	return r.run(ctx, "billing-wallet", "reconcile", "--workspace", r.Workspace)
}

type servicesVerify struct{}

func (servicesVerify) Run(ctx context.Context, r *Reach) error {
	return r.run(ctx, "contacts-compliance", "verify")
}

type servicesReseal struct{}

func (servicesReseal) Run(ctx context.Context, r *Reach) error {
	return r.run(ctx, "webhook-dispatcher", "reseal")
}
