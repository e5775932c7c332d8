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

// drainTimeout is how long open requests can continue after the listener was closed.
const drainTimeout = 15 * time.Second

// Server serves a handler with timeouts (header 10 s, request 30 s, response 75 s, idle 2 min)
// until its context ends.
type Server struct {
	Addr    string
	Handler http.Handler
	// Variable is the name of the environment variable that contains Addr. If the port is in use,
	// the error contains that name. If Variable is empty, the error contains HTTP_ADDR.
	Variable string
	// Header is added to the error responses to invalid HTTP requests. For such requests no handler
	// is called.
	Header http.Header
	// Certificate is the certificate for HTTPS and HTTP/2. If it is nil, the server serves HTTP.
	Certificate *Certificate
}

// Run serves until ctx ends. It then closes the listener and waits up to 15 s for open requests.
// Between SIGTERM and the end of ctx (DRAIN_DELAY), each response has the header "Connection:
// close", so that clients connect to other replicas.
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
	server.Handler = closeWhenLeaving(s.Handler)
	closing := make(chan struct{})
	server.BaseContext = func(net.Listener) context.Context {
		return context.WithValue(context.WithoutCancel(ctx), closingKey{}, closing)
	}
	server.RegisterOnShutdown(func() { close(closing) })
	slog.InfoContext(ctx, "HTTP server listening",
		"addr", listener.Addr().String(), "setting", variable, "tls", s.Certificate != nil)
	ended := make(chan error, 1)
	go func() { ended <- serveWire(server, listener, s.Certificate, s.Header) }()
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

type closingKey struct{}

// Closing returns a channel that is closed when the server of the request shuts down. A handler
// with an endless response must then return. Outside a request of a Server, Closing returns nil.
func Closing(ctx context.Context) <-chan struct{} {
	closing, _ := ctx.Value(closingKey{}).(chan struct{})
	return closing
}

func closeWhenLeaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &leavingWriter{ResponseWriter: w, ctx: r.Context()}
		next.ServeHTTP(p, r)
		p.setClose() // the handler returned without writing, so the response begins now
	})
}

// leavingWriter sets "Connection: close" if the process is stopping when the response begins.
type leavingWriter struct {
	http.ResponseWriter
	ctx context.Context //nolint:containedctx // the context of the HTTP request
}

func (p *leavingWriter) setClose() {
	if service.IsLeaving(p.ctx) {
		p.Header().Set("Connection", "close")
	}
}

func (p *leavingWriter) WriteHeader(status int) {
	p.setClose()
	p.ResponseWriter.WriteHeader(status)
}

func (p *leavingWriter) Write(body []byte) (int, error) {
	p.setClose()
	return p.ResponseWriter.Write(body) //nolint:wrapcheck // callers compare this error, so return it unwrapped
}

// Flush implements http.Flusher. A flush can begin the response, so Flush sets the header first.
func (p *leavingWriter) Flush() {
	p.setClose()
	_ = http.NewResponseController(p.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController use the original writer.
func (p *leavingWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (s *Server) settings() *http.Server {
	return &http.Server{
		Handler:           s.Handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      75 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		// OPTIONS * must pass the same checks as other requests.
		DisableGeneralOptionsHandler: true,
	}
}
