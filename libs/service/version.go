package service

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"time"
)

// version is stamped by the linker: -ldflags '-X ringfence.dev/libs/service.version=1.2.3' (deploy/Dockerfile).
var version string

// Version is what this binary was stamped with; "devel" when it was not.
func Version() string {
	if version != "" {
		return version
	}
	if built, ok := debug.ReadBuildInfo(); ok && built.Main.Version != "" && built.Main.Version != "(devel)" {
		return built.Main.Version
	}
	return "devel"
}

// healthLimit is how long the own process may take to say that it is ready.
const healthLimit = 5 * time.Second

// healthy asks the service that runs beside it, in the same container, whether it is ready: where nothing else is that could ask.
func healthy(ctx context.Context) error {
	addr := os.Getenv("PRIVATE_ADDR")
	_, port, err := net.SplitHostPort(addr)
	if err != nil || port == "0" {
		return fmt.Errorf("PRIVATE_ADDR=%q names no port that could be asked", addr)
	}
	ctx, cancel := context.WithTimeout(ctx, healthLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", port)+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("ask port %s: %w", port, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask whether it is ready: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it is not ready: %s", resp.Status)
	}
	return nil
}
