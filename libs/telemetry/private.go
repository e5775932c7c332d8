package telemetry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"ringfence.dev/libs/service"
)

const checkTimeout = 2 * time.Second

type check struct {
	name string
	ask  func(context.Context) error
}

// Ready adds a readiness check. If a check fails or takes more than 2 s, /readyz responds 503 with
// the name of the check.
func (t *Telemetry) Ready(name string, ask func(context.Context) error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checks = append(t.checks, check{name, ask})
}

// Private serves the private port until ctx ends; it is the Run function of a service.Part. While
// the process is stopping, /readyz fails.
func (t *Telemetry) Private(ctx context.Context) error {
	listener, err := service.Listen(ctx, t.addr, "PRIVATE_ADDR")
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: t.privateHandler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	t.Log.InfoContext(ctx, "private port opened", "addr", listener.Addr().String())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve the private port: %w", err)
	case <-ctx.Done():
	}
	if err := server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("close the private port: %w", err)
	}
	return nil
}

func (t *Telemetry) privateHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(t.Metrics, promhttp.HandlerOpts{EnableOpenMetrics: true, Registry: t.Metrics}))
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, newProbe("ok", nil))
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		if service.IsLeaving(r.Context()) {
			answer(w, http.StatusServiceUnavailable, newProbe("leaving", nil))
			return
		}
		failing := t.failing(r.Context())
		if len(failing) > 0 {
			answer(w, http.StatusServiceUnavailable, newProbe("unready", failing))
			return
		}
		answer(w, http.StatusOK, newProbe("ok", nil))
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

func (t *Telemetry) failing(ctx context.Context) []string {
	t.mu.Lock()
	checks := slices.Clone(t.checks)
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var mu sync.Mutex
	failing := []string{}
	var all sync.WaitGroup
	for _, c := range checks {
		all.Go(func() {
			result := make(chan error, 1)
			go func() { result <- c.ask(ctx) }()
			var err error
			select {
			case err = <-result:
			case <-ctx.Done(): // a check that ignores the end of its context does not delay the response
				err = ctx.Err()
			}
			if err != nil {
				slog.DebugContext(ctx, "readiness check failed", "check", c.name, "error", err)
				mu.Lock()
				defer mu.Unlock()
				failing = append(failing, c.name)
			}
		})
	}
	all.Wait()
	slices.Sort(failing)
	return failing
}

type probe struct {
	Status  string   `json:"status"`
	Failing []string `json:"failing"`
	Version string   `json:"version"`
}

func newProbe(status string, failing []string) probe {
	return probe{Status: status, Failing: append([]string{}, failing...), Version: service.Version()}
}

func answer(w http.ResponseWriter, status int, body probe) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // Encode fails only if the client has disconnected
}
