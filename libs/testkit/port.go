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

// The ports are below those of outgoing connections on Linux (from 32768), so that a restarted
// program finds its port free, and below those of local stacks (from 20000).
const (
	lowest, highest = 10_000, 19_999
	// together is the number of ports that are given together.
	together = 4
)

// Port returns the first of four consecutive ports of 127.0.0.1, an even one. No other process has
// them, for TCP or UDP. They are reserved until this process ends.
func Port() (int, error) {
	for range 1000 {
		first := lowest + together*rand.IntN((highest-lowest+1)/together) //nolint:gosec // no secret
		if Claim(first) && vacant(first) {
			return first, nil
		}
	}
	return 0, errors.New("no four free ports in a row between 10000 and 19999 on 127.0.0.1")
}

// vacant reports whether all ports that are given together are free.
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

// Open reports whether a program has a port open: "tcp" and "tcp6" (it listens), "udp" and "udp6".
// On Linux it reads proc(5), because a socket that it opens could collide with the program that is
// about to start.
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
