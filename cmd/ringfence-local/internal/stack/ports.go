package stack

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The default ports of the public API, of the operator API and of the console. The stack chooses
// all other ports at the first start and uses the same ports at later starts. If the port of the
// console is in use at the first start, the stack chooses another one.
const (
	usualBase    = 8080
	usualAdmin   = 8081
	usualConsole = 8082
)

func basePort() int  { return given("RINGFENCE_PORT", usualBase) }
func adminPort() int { return given("RINGFENCE_ADMIN_PORT", usualAdmin) }

func given(variable string, usual int) int {
	if p, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return p
	}
	return usual
}

// clientAddress returns the address that a client must use for a server. Tests can set a proxy:
// RINGFENCE_DETOURS=dialer>postgres=127.0.0.1:7001. Otherwise the result is ownAddress.
func clientAddress(client, server, ownAddress string) string {
	for line := range strings.SplitSeq(os.Getenv("RINGFENCE_DETOURS"), ",") {
		if address, ok := strings.CutPrefix(line, client+">"+server+"="); ok {
			return address
		}
	}
	return ownAddress
}

// allClients is the name in RINGFENCE_DETOURS that means all clients of Kafka. All clients use the
// same address, because the broker advertises only one.
const allClients = "everybody"

// httpPort returns the name under which the state file stores the port of one replica behind a
// balancer.
func httpPort(listener string, replica int) string {
	return fmt.Sprintf("%s http %d", listener, replica)
}

func privatePort(name string, replica int) string { return fmt.Sprintf("%s private %d", name, replica) }

// reservePort reserves a port that an earlier run used, so that other stacks do not choose it.
func (s *stack) reservePort(p int) bool {
	if slices.Contains(s.claimed, p) {
		return true
	}
	if !Reserve(p) {
		return false
	}
	s.claimed = append(s.claimed, p)
	return true
}

// settlePorts checks that every port is free before any process starts. If a port of demo.json is
// in use, it returns an error with the remedy. For an internal port that is in use, it chooses
// another port.
func (s *stack) settlePorts(ctx context.Context) error {
	for _, variable := range []string{"RINGFENCE_PORT", "RINGFENCE_ADMIN_PORT", "RINGFENCE_SIM_PORT"} {
		if text := os.Getenv(variable); text != "" {
			if p, err := strconv.Atoi(text); err != nil || p < 1 || p > 65535 {
				return fmt.Errorf("%s is %q: set it to a port from 1 to 65535", variable, text)
			}
		}
	}
	if basePort() == adminPort() {
		return fmt.Errorf("RINGFENCE_PORT and RINGFENCE_ADMIN_PORT are both %d: set one to another port", basePort())
	}
	used := []int{basePort(), adminPort()}
	for _, p := range s.state.Ports {
		used = append(used, p)
	}
	settle := func(name string) error {
		p := s.state.Ports[name]
		if p != 0 && s.reservePort(p) && IsFree(p) {
			return nil
		}
		p, err := Free(used...)
		if err != nil {
			return err
		}
		s.state.Ports[name] = p
		used, s.claimed = append(used, p), append(s.claimed, p)
		return nil
	}
	if sim := given("RINGFENCE_SIM_PORT", s.state.Ports[carrierName]); sim != 0 {
		s.state.Ports[carrierName] = sim
	} else if err := settle(carrierName); err != nil {
		return err
	}
	for _, listener := range []struct {
		port           int
		what, variable string
	}{
		{basePort(), "the public API", "RINGFENCE_PORT"},
		{adminPort(), "the operator API", "RINGFENCE_ADMIN_PORT"},
		{s.state.Ports[carrierName], "the simulated carrier", "RINGFENCE_SIM_PORT"},
	} {
		if !AwaitFree(ctx, listener.port) {
			return fmt.Errorf("port %d, for %s, is used by %s: stop it, or set %s to another port", listener.port, listener.what,
				Holder(listener.port), listener.variable)
		}
	}
	s.preferConsolePort()
	names := []string{"postgres", "kafka", consoleListener}
	for _, name := range append(serviceNames(), consoleService) {
		names = append(names, name)
		for replica := range s.replicas {
			names = append(names, privatePort(name, replica+1))
		}
	}
	for listener := range listeners() {
		for replica := range s.replicas {
			if s.replicas > 1 {
				names = append(names, httpPort(listener, replica+1))
			}
		}
	}
	// The port of the gateway is the base port, which is already chosen.
	names = slices.DeleteFunc(names, func(name string) bool { return name == gateway })
	for _, name := range names {
		if err := settle(name); err != nil {
			return err
		}
	}
	return nil
}

// preferConsolePort reserves the usual port for the console at the first start, unless
// RINGFENCE_PORT is set.
func (s *stack) preferConsolePort() {
	isFirst := s.state.Ports[consoleService] == 0 && os.Getenv("RINGFENCE_PORT") == ""
	if isFirst && IsFree(usualConsole) && s.reservePort(usualConsole) {
		s.state.Ports[consoleService] = usualConsole
	}
}
