// Package loopback chooses ports of 127.0.0.1 for programs that open them later: no two of them are given the same, whichever processes ask. It opens none
// itself.

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

// The ports lie below those that Linux gives to outgoing connections (from 32768), so that a program which was killed finds its own free when it is back,
// and below those that local stacks choose for themselves (from 20000).
const (
	lowest, highest = 10_000, 19_999
	// together is how many are given away at once.
	together = 4
)

// Port is the first, an even one, of four in a row that nobody has, neither for TCP nor for UDP. All four are the caller's until its process ends.
func Port() (int, error) {
	for range 1000 {
		first := lowest + together*rand.IntN((highest-lowest+1)/together) //nolint:gosec // hides nothing
		if Claim(first) && vacant(first) {
			return first, nil
		}
	}
	return 0, errors.New("no four free ports in a row between 10000 and 19999 on 127.0.0.1")
}

// vacant says that nobody has any of those that are given away together.
func vacant(first int) bool {
	for port := first; port < first+together; port++ {
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

// Open reports whether a program has a port open: "tcp" and "tcp6" (it listens there), "udp" and "udp6". On Linux it
// reads proc(5), because a socket that it opened to find out could be in the way of the program that is about to start.
func Open(network string, port int) bool {
	table, err := os.ReadFile("/proc/net/" + network)
	if err != nil {
		return !bindable(network, port)
	}
	state := map[string]string{"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"}[network]
	nobody := strings.Repeat("0", 8)
	if strings.HasSuffix(network, "6") {
		nobody = strings.Repeat("0", 32)
	}
	return strings.Contains(string(table), fmt.Sprintf(":%04X %s:0000 %s", port, nobody, state))
}
