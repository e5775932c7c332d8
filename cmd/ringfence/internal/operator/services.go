package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
)

type services struct {
	Parked    servicesParked    `cmd:"" help:"List the records that a service could not apply, and why."`
	Replay    servicesReplay    `cmd:"" help:"Apply the parked records of one topic again, after the service was repaired."`
	Reconcile servicesReconcile `cmd:"" help:"Compare each wallet with its ledger entries and print the differences. With -w, only the wallet of that workspace."`
	Verify    servicesVerify    `cmd:"" help:"Check the consent log of every workspace and print each row that was changed after it was written."`
	Reseal    servicesReseal    `cmd:"" help:"Encrypt the secrets of webhooks again with the first key of SEALING_KEYS. The dialer does this at its start for its own secrets."`

	AcceptIntents servicesAcceptIntents `cmd:"" help:"Permit the dialer to dial although records of dial-intents.v1 are missing or cannot be decoded."`
}

// ServiceCommand runs the binary of a service. Its command line contains {service} in place of the
// name of the service. The arguments of the binary are appended.
type ServiceCommand struct {
	Via []string
	Out io.Writer
	// Asides receives the log of the binary.
	Asides io.Writer
	// Workspace limits the command to one workspace if the command supports that.
	Workspace string
	// JSON requests JSON output.
	JSON bool
}

// run runs a command of a service's binary and prints the command's output as text or, if
// requested, as JSON.
func (r *ServiceCommand) run(ctx context.Context, service string, args ...string) error {
	if !r.JSON {
		return r.print(ctx, service, args)
	}
	var output, answer bytes.Buffer
	fault := r.start(ctx, &output, service, append(args, "--json"))
	if fault != nil && output.Len() == 0 { // the binary has already printed the reason to Asides
		return fault
	}
	if err := json.Indent(&answer, bytes.TrimSpace(output.Bytes()), "", "  "); err != nil {
		return errors.Join(fault, fmt.Errorf("the output of %s is not JSON: %w", service, err))
	}
	if _, err := fmt.Fprintln(r.Out, Escaped(answer.Bytes())); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return fault
}

func (r *ServiceCommand) start(ctx context.Context, out io.Writer, service string, args []string) error {
	words := make([]string, 0, len(r.Via)+len(args))
	for _, word := range r.Via {
		words = append(words, strings.ReplaceAll(word, "{service}", service))
	}
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], args...)...)
	asked, why := service+" "+strings.Join(args, " "), ""
	asides := &lineWriter{say: func(line string) error {
		// Remove the prefixes that the service's binary and ringfence-local add to errors.
		for _, begun := range []string{asked + ": ", "ringfence-local: "} {
			if reason, is := strings.CutPrefix(line, begun); is {
				why = reason
				return nil
			}
		}
		return r.aside(line)
	}}
	cmd.Stdout, cmd.Stderr = out, asides
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	switch err := errors.Join(cmd.Run(), asides.flushLine()); {
	case err != nil && why != "":
		return fmt.Errorf("%s: %s", asked, why)
	case err != nil:
		return fmt.Errorf("%s: %w", asked, err)
	case why != "":
		return r.aside(why)
	}
	return nil
}

func (r *ServiceCommand) print(ctx context.Context, service string, args []string) error {
	out := &lineWriter{say: func(line string) error {
		_, err := fmt.Fprintln(r.Out, Printable(line))
		return err
	}}
	return errors.Join(r.start(ctx, out, service, args), out.flushLine())
}

func (r *ServiceCommand) aside(line string) error {
	if r.JSON && strings.HasPrefix(line, "{") && json.Valid([]byte(line)) {
		_, err := fmt.Fprintln(r.Asides, Escaped([]byte(line)))
		return err
	}
	Aside(r.Asides, r.JSON, "remark", line)
	return nil
}

// lineWriter receives the output of the binary and passes it on line by line.
type lineWriter struct {
	begun []byte
	say   func(line string) error
}

func (l *lineWriter) Write(text []byte) (int, error) {
	l.begun = append(l.begun, text...)
	for {
		line, rest, whole := bytes.Cut(l.begun, []byte("\n"))
		if !whole {
			return len(text), nil
		}
		if err := l.say(string(line)); err != nil {
			return 0, err
		}
		l.begun = rest
	}
}

// flushLine passes on an unfinished last line.
func (l *lineWriter) flushLine() error {
	if len(l.begun) == 0 {
		return nil
	}
	return l.say(string(l.begun))
}

type servicesParked struct{ service }

type service struct {
	Service string `arg:"" enum:"calls,contacts-compliance,dialer,billing-wallet,webhook-dispatcher" help:"calls, contacts-compliance, dialer, billing-wallet or webhook-dispatcher."`
}

func (c servicesParked) Run(ctx context.Context, r *ServiceCommand) error {
	return r.run(ctx, c.Service, "replay")
}

type servicesReplay struct {
	service
	Topic string `arg:"" help:"Topic of the records."`
}

// Validate refuses an empty topic, for example from an unset variable.
func (c servicesReplay) Validate() error {
	if c.Topic == "" {
		return errors.New("the name of the topic is empty: `ringfence services parked` lists the parked records")
	}
	return nil
}

func (c servicesReplay) Run(ctx context.Context, r *ServiceCommand) error {
	return r.run(ctx, c.Service, "replay", c.Topic)
}

type servicesReconcile struct{}

func (servicesReconcile) Run(ctx context.Context, r *ServiceCommand) error {
	if r.Workspace == "" {
		return r.run(ctx, "billing-wallet", "reconcile")
	}
	return r.run(ctx, "billing-wallet", "reconcile", "--workspace", r.Workspace)
}

type servicesVerify struct{}

func (servicesVerify) Run(ctx context.Context, r *ServiceCommand) error {
	return r.run(ctx, "contacts-compliance", "verify")
}

type servicesReseal struct{}

func (servicesReseal) Run(ctx context.Context, r *ServiceCommand) error {
	return r.run(ctx, "webhook-dispatcher", "reseal")
}

type servicesAcceptIntents struct{}

func (servicesAcceptIntents) Run(ctx context.Context, r *ServiceCommand) error {
	return r.run(ctx, "dialer", "accept-intents")
}
