package stack

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// consoleListener is the name of the gateway's listener for the console.
const consoleListener = "console"

func (s *stack) consoleURL() string { return "http://" + loopback(s.listenerPort(consoleListener)) }

// signInCode creates a one-time code with which the operator of the stack signs in to the console.
func (s *stack) signInCode(ctx context.Context) (string, error) {
	for _, svc := range services() {
		if svc.name != gateway {
			continue
		}
		spec, err := s.spec(svc, 1)
		if err != nil {
			return "", err
		}
		command := exec.CommandContext(ctx, spec.Path, "sign-in-code")
		command.Env, command.Dir = spec.Env, spec.Dir
		printed, err := command.Output()
		if err != nil {
			return "", fmt.Errorf("create a sign-in code: %w", err)
		}
		return strings.TrimSpace(string(printed)), nil
	}
	return "", nil
}

// printSignIn prints the address of the console listener and a sign-in code.
func (s *stack) printSignIn(ctx context.Context) error {
	code, err := s.signInCode(ctx)
	if err != nil {
		return err
	}
	s.Console.Say("The console listener is at %s. Sign in with the code %s, which works once, for 10 minutes.\n",
		s.consoleURL(), code)
	return nil
}
