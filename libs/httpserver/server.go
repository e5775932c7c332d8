package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"ringfence.dev/libs/service"
)

// drainTimeout is how long open requests get to end after the listener was closed.
const drainTimeout = 15 * time.Second

// Server serves a handler with timeouts (header 10 s, request 30 s, response 75 s, idle 2 min)
// until its context ends.
type Server struct {
	Addr    string
	Handler http.Handler
	// Variable names the setting Addr came from, for the message when the port is taken; HTTP_ADDR
	// when empty.
	Variable string
	// Header is added to the answers to what cannot be read as a request, which no handler sees.
	Header http.Header
}

// Run serves until ctx ends. It then closes the listener and waits up to 15 s for open requests.
//
// ctx of a part of service.Run ends DRAIN_DELAY after the process received SIGTERM. In between,
// /readyz fails, so that balancers send new connections elsewhere, and each response asks the
// client to close its connection. A client can still meet the close of a connection that it has
// kept unused during the whole delay.
func (s *Server) Run(ctx context.Context) error {
	variable := s.Variable
	if variable == "" {
		variable = "HTTP_ADDR"
	}
	listener, err := service.Listen(ctx, s.Addr, variable)
	if err != nil {
		return err
	}
	server := s.settings()
	server.Handler = parting(s.Handler)
	server.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	slog.InfoContext(ctx, "listening", "addr", listener.Addr().String(), "setting", variable)
	ended := make(chan error, 1)
	go func() { ended <- serveWire(server, listener, s.Header) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve %s: %w", s.Addr, err)
	case <-ctx.Done():
	}
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := server.Shutdown(rest); err != nil {
		_ = server.Close()
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("drain %s: requests were still open after %s", s.Addr, drainTimeout)
		}
		return fmt.Errorf("drain %s: %w", s.Addr, err)
	}
	return nil
}

// parting lets clients that keep connections leave by themselves while the process does: every
// answer that is begun then says so, also to a request that came before.
func parting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &parter{ResponseWriter: w, ctx: r.Context()}
		next.ServeHTTP(p, r)
		p.part() // an answer without a word is begun behind us
	})
}

// parter asks the client to close when the process is leaving at the moment in which the answer
// begins; later it changes nothing.
type parter struct {
	http.ResponseWriter
	ctx context.Context //nolint:containedctx // the request's, for as long as its answer
}

func (p *parter) part() {
	if service.IsLeaving(p.ctx) {
		p.Header().Set("Connection", "close")
	}
}

func (p *parter) WriteHeader(status int) {
	p.part()
	p.ResponseWriter.WriteHeader(status)
}

func (p *parter) Write(body []byte) (int, error) {
	p.part()
	return p.ResponseWriter.Write(body) //nolint:wrapcheck // as the server says it
}

// Flush is for handlers that look for it; http.ResponseController finds its own way by Unwrap.
func (p *parter) Flush() {
	p.part()
	_ = http.NewResponseController(p.ResponseWriter).Flush()
}

// Unwrap is http.ResponseController's.
func (p *parter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// settings are the timeouts and bounds of every listener.
func (s *Server) settings() *http.Server {
	return &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      75 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		// OPTIONS * must meet the same checks as anything else.
		DisableGeneralOptionsHandler: true,
	}
}
