package serviceauth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"ringfence.dev/libs/httpserver"
)

// ServiceHeader carries the token of the asking service; gateways strip it from outside requests.
const ServiceHeader = "X-Ringfence-Service"

// Ask is the client interceptor of questions 2 to 5: it adds a token for the service aud, the same one for half of a token's life.
func (k *Keys) Ask(aud string) connect.Interceptor { return asking{&shown{keys: k, aud: aud}} }

// Answer is the server's side: only the named services may call (CodeUnauthenticated, CodePermissionDenied), and a question is at
// most httpserver.MaxBody long. Connect unpacks and decodes before any interceptor, so without the bound a few packed
// kilobytes from a stranger would fill the memory.
func (k *Keys) Answer(askers ...string) connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithInterceptors(answering{k, askers}), connect.WithReadMaxBytes(httpserver.MaxBody))
}

// reach bounds the connecting to a peer. net/http goes on with it after the question has ended, so that without a bound of its
// own each question to a machine that is cut off would leave a socket behind for two minutes.
const reach = 2 * time.Second

// IdleFor is how long a connection inside the house is kept without use. It is less than the DRAIN_DELAY that the charts set: whoever leaves has by then
// asked every client that still speaks to close, and no POST meets a connection that is being closed.
const IdleFor = 2 * time.Second

// Client is the HTTP client to ask peers with: no proxy, connections kept, each made within 2 s. Deadlines are the questions'.
func Client() *http.Client {
	dialer := &net.Dialer{Timeout: reach, KeepAlive: 15 * time.Second}
	return &http.Client{Transport: &http.Transport{
		Proxy: nil, DialContext: dialer.DialContext, TLSHandshakeTimeout: reach,
		MaxIdleConns: 512, MaxIdleConnsPerHost: 128, IdleConnTimeout: IdleFor,
	}}
}

type asking struct{ shown *shown }

// shown is the token that one service shows another. It names nobody but the two, so it serves every question until half its life
// is over; a signature a question would cost more than most questions.
type shown struct {
	keys *Keys
	aud  string

	mu     sync.Mutex
	token  string
	signed time.Time
}

func (s *shown) at(now time.Time) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.signed); s.token != "" && age >= 0 && age < life/2 {
		return s.token, nil
	}
	token, err := s.keys.sign(s.aud, claims{Use: forService}, now)
	if err != nil {
		return "", err
	}
	s.token, s.signed = token, now
	return token, nil
}

func (a asking) show(header http.Header) error {
	token, err := a.shown.at(time.Now())
	if err != nil {
		return connect.NewError(connect.CodeInternal, err)
	}
	header.Set(ServiceHeader, token)
	return nil
}

func (a asking) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if err := a.show(request.Header()); err != nil {
			return nil, err
		}
		return next(ctx, request)
	}
}

func (a asking) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		stream := next(ctx, spec)
		_ = a.show(stream.RequestHeader()) // without a token the other side refuses
		return stream
	}
}

func (a asking) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

type answering struct {
	keys   *Keys
	askers []string
}

func (a answering) check(header http.Header) error {
	shown, err := a.keys.recognise(header.Get(ServiceHeader), time.Now())
	if err != nil {
		return connect.NewError(connect.CodeUnauthenticated, errors.New("no valid service token"))
	}
	if !slices.Contains(a.askers, shown.Issuer) {
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s may not ask this", shown.Issuer))
	}
	return nil
}

func (a answering) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if err := a.check(request.Header()); err != nil {
			return nil, err
		}
		return next(ctx, request)
	}
}

func (a answering) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (a answering) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, stream connect.StreamingHandlerConn) error {
		if err := a.check(stream.RequestHeader()); err != nil {
			return err
		}
		return next(ctx, stream)
	}
}
