package service

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// healthLimit is how long a process may take to say that it is ready.
const healthLimit = 5 * time.Second

// Healthy asks the process that listens at addr, in the same container, for path: where nothing else is that could ask. It asks at the address itself, which with a
// node's own network is not the loopback; one that names no host (":9090", "0.0.0.0:9090") is this machine. Anything but 200 is an error.
func Healthy(ctx context.Context, addr, path string) error {
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "" || port == "0" {
		return fmt.Errorf("%q names no port that could be asked", addr)
	}
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return fmt.Errorf("ask %s: %w", addr, err)
	}
	here := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	resp, err := here.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("ask %s whether it is ready: %w", addr, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it is not ready: %s", resp.Status)
	}
	return nil
}
