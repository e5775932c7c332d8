package operator

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
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
}

// run does a command of a service's binary. Its status is ours.
func (r *Reach) run(ctx context.Context, service string, args ...string) error {
	words := make([]string, 0, len(r.Via)+len(args))
	for _, word := range r.Via {
		words = append(words, strings.ReplaceAll(word, "{service}", service))
	}
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], args...)...)
	cmd.Stdout, cmd.Stderr = r.Out, r.Asides
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", service, strings.Join(args, " "), err)
	}
	return nil
}

type servicesParked struct {
	Service string `arg:"" help:"calls, contacts-compliance, dialer, billing-wallet or webhook-dispatcher."`
}

func (c servicesParked) Run(ctx context.Context, r *Reach) error {
	return r.run(ctx, c.Service, "replay")
}

type servicesReplay struct {
	Service string `arg:"" help:"The service that parked them."`
	Topic   string `arg:"" help:"The topic that they came on."`
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
