package testkit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
)

// The range of the ports that Port returns. It is below the ephemeral ports of Linux (from 32768),
// so no outgoing connection takes the port of a program that restarts. It is also below the ports
// of local stacks (from 20000).
const (
	lowest, highest = 10_000, 19_999
	// portsPerGroup is the number of ports that Port returns as one group.
	portsPerGroup = 4
)

// Port returns the first of four consecutive ports of 127.0.0.1. The first port is even. No other
// process uses the four ports, for TCP or UDP. The ports are reserved until this process ends.
func Port() (int, error) {
	for range 1000 {
		// The random number is not a secret.
		first := lowest + portsPerGroup*rand.IntN((highest-lowest+1)/portsPerGroup) //nolint:gosec
		if Claim(first) && vacant(first) {
			return first, nil
		}
	}
	return 0, errors.New("no four free ports in a row between 10000 and 19999 on 127.0.0.1")
}

func vacant(first int) bool {
	for port := first; port < first+portsPerGroup; port++ {
		if !bindable("udp", port) || !bindable("tcp", port) {
			return false
		}
	}
	return true
}

func bindable(network string, port int) bool {
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if network == "udp" {
		conn, err := net.ListenPacket("udp4", at)
		return err == nil && conn.Close() == nil
	}
	listener, err := net.Listen("tcp4", at)
	return err == nil && listener.Close() == nil
}

// Open reports whether a program has opened a port. network is "tcp" or "tcp6" (the program
// listens), "udp" or "udp6". On Linux, Open reads proc(5), because opening a socket could take the
// port of a program that is about to start.
func Open(network string, port int) bool {
	table, err := os.ReadFile("/proc/net/" + network)
	if err != nil {
		return !bindable(network, port)
	}
	state := map[string]string{"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}[network]
	zeroAddr := strings.Repeat("0", 8)
	if strings.HasSuffix(network, "6") {
		zeroAddr = strings.Repeat("0", 32)
	}
	return strings.Contains(string(table), fmt.Sprintf(":%04X %s:0000 %s", port, zeroAddr, state))
}
