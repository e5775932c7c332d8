// Command ringfence is the command line of Ringfence. `demo` places a call on the local stack and
// prints each step. `listen` receives and verifies webhooks. All other commands are for operators:
// they send requests to /admin/v1 or run a service's binary.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"

	"ringfence.dev/cmd/ringfence/internal/operator"
	"ringfence.dev/libs/service"
)

type commands struct {
	operator.Commands

	Demo   demoCommand   `cmd:"" group:"local" help:"Place one call on the running local stack: show each state, receive and verify its webhooks, print the summary."`
	Listen listenCommand `cmd:"" group:"local" help:"Receive the demo workspace's webhooks on a local HTTPS endpoint, verify and print them until Ctrl-C."`

	Completion completionCommand `cmd:"" group:"local" help:"Print a script with which a shell completes these commands: source <(ringfence completion bash)."`

	Output    operator.Output  `short:"o" default:"table" enum:"table,wide,json" group:"global" help:"Format: ${enum}."`
	Workspace string           `env:"RINGFENCE_WORKSPACE" short:"w" placeholder:"ID" help:"Id of the workspace for operator commands. Default with the local stack: the demo workspace." group:"global"`
	AdminURL  string           `env:"RINGFENCE_ADMIN_URL" placeholder:"URL" help:"URL of the gateway's operator API. Default: the local stack. Its token is read only from the environment variable RINGFENCE_ADMIN_TOKEN." group:"global"`
	Version   kong.VersionFlag `group:"global" help:"Print the version."`

	Via string `env:"RINGFENCE_VIA" placeholder:"COMMAND" help:"Command that runs a service's binary, for the commands under services: \"kubectl exec svc/{service} -- /service\", \"docker compose exec -T {service} /service\". Default: the local stack." group:"global"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C kills the process
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

const about = "Command line of Ringfence. The exit status is 0 after success, 1 after an error or a refusal, 2 if " +
	"the command line is invalid, and 130 after Ctrl-C. " +
	"Responses are printed to standard output, everything else to standard error. Tables have short ids, which all " +
	"commands accept, and local times; -o wide prints whole ids and UTC. With -o json all output is JSON. An error " +
	"is then {\"error\":{\"code\",\"message\"}}, with \"status\" and \"request_id\" if the gateway returned it."

const (
	done = iota
	failed
	misunderstood
	stopped = 130
)

// run parses and runs one command, and returns its exit status.
func run(ctx context.Context, args []string, out, faults io.Writer) int {
	var cli commands
	exited := -1
	parser, err := cli.parser(out, faults, func(code int) { exited = code })
	if err != nil {
		fmt.Fprintln(faults, "ringfence:", err)
		return misunderstood
	}
	kongcompletion.Register(parser) // a shell sets COMP_LINE to request completions
	if exited >= 0 {
		return exited
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if exited >= 0 { // --help or --version was handled
		return exited
	}
	if err != nil {
		message := usageMessage(err.Error()) + " `ringfence --help` lists the commands."
		fault{Code: "not_understood", Message: message}.print(faults, wantsJSON(args))
		return misunderstood
	}
	command.BindTo(ctx, (*context.Context)(nil))
	err = command.Run()
	switch {
	case err == nil:
		return done
	case ctx.Err() != nil:
		if errors.Is(err, context.Canceled) {
			err = errors.New("stopped")
		}
		fault{Code: "stopped", Message: err.Error()}.print(faults, cli.Output == "json")
		return stopped
	}
	faultOf(err).print(faults, cli.Output == "json")
	return failed
}

// parser returns a parser for every command. It calls exit after --help and --version.
func (c *commands) parser(out, faults io.Writer, exit func(code int)) (*kong.Kong, error) {
	return kong.New(c, kong.Name("ringfence"), kong.Description(about), kong.Vars{"version": "ringfence " + service.Version()},
		kong.Groups{"operator": "For operators:", "local": "On this machine:", "global": "Flags of all commands:"},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true}),
		kong.Writers(out, faults), kong.Exit(exit),
		kong.BindTo(out, (*io.Writer)(nil)),
		kong.BindToProvider(func() (*operator.Client, error) {
			opened, _, err := c.client(out, faults)
			return opened, err
		}),
		kong.BindToProvider(func() (*operator.WorkspaceClient, error) { return c.workspaceClient(out, faults) }),
		kong.BindToProvider(func() (operator.WorkspaceOpener, error) {
			return func() (*operator.WorkspaceClient, error) { return c.workspaceClient(out, faults) }, nil
		}),
		kong.BindToProvider(func() (operator.Named, error) { return operator.Named(c.Workspace), nil }),
		kong.BindToProvider(func() (*operator.ServiceCommand, error) { return c.serviceCommand(out, faults) }))
}

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh or fish."`
}

func (c *completionCommand) Run(command *kong.Context) error {
	script := kongcompletion.Completion{Shell: c.Shell, Code: true}
	return script.Run(command)
}

const tokenVariable = "RINGFENCE_ADMIN_TOKEN"

// client returns a client for the address in the flags, or by default for the local stack.
// demoWorkspace is the id of the local stack's demo workspace, or empty for another deployment.
func (c *commands) client(out, faults io.Writer) (opened *operator.Client, demoWorkspace string, err error) {
	config := operator.ClientConfig{URL: c.AdminURL, Token: os.Getenv(tokenVariable)}
	if config.URL == "" {
		local, err := readStack()
		if err != nil {
			return nil, "", fmt.Errorf("%w; for another deployment set RINGFENCE_ADMIN_URL and %s", err, tokenVariable)
		}
		config, demoWorkspace = operator.ClientConfig{URL: local.AdminURL, Token: local.AdminToken}, local.WorkspaceID
	}
	if config.Token == "" {
		return nil, "", fmt.Errorf("%s is not set: it is one of the gateway's OPERATOR_TOKENS", tokenVariable)
	}
	return operator.New(config, out, faults, c.Output), demoWorkspace, nil
}

func (c *commands) workspaceClient(out, faults io.Writer) (*operator.WorkspaceClient, error) {
	opened, demoWorkspace, err := c.client(out, faults)
	if err != nil {
		return nil, err
	}
	return operator.NewWorkspaceClient(opened, cmp.Or(c.Workspace, demoWorkspace))
}

// serviceCommand returns the command that runs a service's binary. If the flags name no command, it
// uses ringfence-local from the folder of this program.
func (c *commands) serviceCommand(out, faults io.Writer) (*operator.ServiceCommand, error) {
	reach := &operator.ServiceCommand{
		Via: strings.Fields(c.Via), Out: out, Asides: faults, Workspace: c.Workspace, JSON: c.Output == operator.JSON,
	}
	if len(reach.Via) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find this program: %w", err)
		}
		reach.Via = []string{filepath.Join(filepath.Dir(self), "ringfence-local"), "service", "{service}"}
	}
	return reach, nil
}
