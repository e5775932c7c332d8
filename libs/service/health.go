package service

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

const healthTimeout = 5 * time.Second

// Healthy sends a request for path to the process that listens at addr, for health checks inside
// the container. An address without a host (":9090", "0.0.0.0:9090") means this machine. Any status
// except 200 is an error.
func Healthy(ctx context.Context, addr, path string) error {
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "" || port == "0" {
		return fmt.Errorf("%q has no port", addr)
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return fmt.Errorf("request to %s: %w", addr, err)
	}
	here := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	resp, err := here.RoundTrip(req)
	if err != nil {
		return fmt.Errorf("readiness check of %s: %w", addr, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", resp.Status)
	}
	return nil
}
