package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"ringfence.dev/libs/port"
	"ringfence.dev/libs/service"
)

const (
	// drain is how long open requests get to end once the server is told to stop.
	drain = 15 * time.Second
	// shutting is how long those may take to be let in who stand at the door when it is shut.
	shutting = time.Second
)

// Server serves a handler with timeouts (header 10 s, whole request 30 s, answer 75 s, idle 2 min) until its context ends, then drains.
type Server struct {
	Addr    string
	Handler http.Handler
	// ReusePort lets replicas share Addr (SO_REUSEPORT).
	ReusePort bool
	// Variable names the setting Addr came from, for the message when the port is taken; HTTP_ADDR when empty.
	Variable string
	// Header is added to the answers to what cannot be read as a request, which no handler sees.
	Header http.Header
}

// Run serves until ctx ends, then waits up to 15 s for open requests. While the process is leaving, and from then on, each answer asks the client to
// close the connection. Nobody who has connected by then is failed, with one exception that HTTP/1.1 has: a request on a connection that was idle for all
// of the process's delay, sent in the moment in which it is closed.
func (s *Server) Run(ctx context.Context) error {
	variable := s.Variable
	if variable == "" {
		variable = "HTTP_ADDR"
	}
	listener, err := port.Open(ctx, s.Addr, variable, s.ReusePort)
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
	if listener.Shut() {
		select {
		case err := <-ended:
			if !errors.Is(err, net.ErrClosed) {
				slog.WarnContext(ctx, "those who stood at the door were not all let in", "addr", s.Addr, "error", err)
			}
		case <-time.After(shutting):
		}
	}
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if err := server.Shutdown(rest); err != nil {
		_ = server.Close()
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("drain %s: requests were still open after %s", s.Addr, drain)
		}
		return fmt.Errorf("drain %s: %w", s.Addr, err)
	}
	return nil
}

// parting lets clients that keep connections leave by themselves while the process does: every answer that is begun then says so, also to a request that came before.
func parting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &parter{ResponseWriter: w, ctx: r.Context()}
		next.ServeHTTP(p, r)
		p.part() // an answer without a word is begun behind us
	})
}

// parter asks the client to close when the process is leaving at the moment in which the answer begins; later it changes nothing.
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
