package stack

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// consoleListener is the name of the gateway's listener for the console.
	consoleListener = "console"
	// console is the service that renders the pages. consoleService is the name of its port.
	console        = "console"
	consoleService = "console pages"
)

// consoleAPI is the URL of the gateway's listener for the console. consoleURL is the address for
// the browser. It contains the name localhost, because browsers accept passkeys for this name and
// not for an address.
func (s *stack) consoleAPI() string { return "http://" + loopback(s.listenerPort(consoleListener)) }
func (s *stack) consoleURL() string {
	return fmt.Sprintf("http://localhost:%d", s.listenerPort(consoleService))
}

// consoles returns the replicas of the console. The console has no database and no keys.
func (s *stack) consoles() (specs []Spec) {
	for replica := 1; replica <= s.replicas; replica++ {
		name := console
		if replica > 1 {
			name = fmt.Sprintf("console-%d", replica)
		}
		specs = append(specs, Spec{
			Name: name, Path: filepath.Join(s.Bin, console), Dir: s.Home.Dir, Mute: routineLines(console),
			Env: s.environment(map[string]string{
				"HTTP_ADDR":           s.replicaAddr(consoleService, replica),
				"PRIVATE_ADDR":        loopback(s.state.Ports[privatePort(consoleService, replica)]),
				"GATEWAY_CONSOLE_URL": s.consoleAPI(),
				"CONSOLE_URL":         s.consoleURL(),
				"ALLOWED_HOSTS":       loopback(s.listenerPort(consoleService)),
			}),
		})
	}
	return specs
}

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
