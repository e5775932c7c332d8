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

// ServiceHeader is the header that contains the token of the calling service. Gateways remove it
// from requests of clients.
const ServiceHeader = "X-Ringfence-Service"

// ClientInterceptor returns the interceptor for a client that calls the service aud. It adds a
// token to each request. A token is used until half of its validity is over.
func (k *Keys) ClientInterceptor(aud string) connect.Interceptor {
	return clientAuth{&tokenCache{keys: k, aud: aud}}
}

// AllowServices returns the option for a Connect handler that only the services in callers may
// call. Other callers get CodeUnauthenticated or CodePermissionDenied. The option also limits a
// request to httpserver.MaxBody bytes, because Connect decodes a message before it calls an
// interceptor.
func (k *Keys) AllowServices(callers ...string) connect.HandlerOption {
	return connect.WithHandlerOptions(connect.WithInterceptors(serverAuth{k, callers}), connect.WithReadMaxBytes(httpserver.MaxBody))
}

// connectTimeout is the timeout for connecting to a service. net/http continues to connect after
// the request has ended. Without a timeout, each request to an unreachable machine leaves a socket
// open for two minutes.
const connectTimeout = 2 * time.Second

// IdleFor is how long an unused connection between services is kept. It is shorter than the
// DRAIN_DELAY of the charts. A process that is stopping closes its unused connections within the
// delay, so no POST uses a closing connection.
const IdleFor = 2 * time.Second

// Client returns the HTTP client for requests to other services. It uses no proxy and keeps
// connections open. The deadline of a request is the deadline of its context.
func Client() *http.Client {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}
	return &http.Client{Transport: &http.Transport{
		Proxy: nil, DialContext: dialer.DialContext, TLSHandshakeTimeout: connectTimeout,
		MaxIdleConns: 512, MaxIdleConnsPerHost: 128, IdleConnTimeout: IdleFor,
	}}
}

type clientAuth struct{ token *tokenCache }

// tokenCache contains a token of this service for one other service. The token is used for many
// requests until half of its validity is over. Signing takes longer than handling most requests.
type tokenCache struct {
	keys *Keys
	aud  string

	mu     sync.Mutex
	token  string
	signed time.Time
}

func (s *tokenCache) at(now time.Time) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.signed); s.token != "" && age >= 0 && age < tokenLife/2 {
		return s.token, nil
	}
	token, err := s.keys.sign(s.aud, claims{Use: forService}, now)
	if err != nil {
		return "", err
	}
	s.token, s.signed = token, now
	return token, nil
}

func (a clientAuth) addToken(header http.Header) error {
	token, err := a.token.at(time.Now())
	if err != nil {
		return connect.NewError(connect.CodeInternal, err)
	}
	header.Set(ServiceHeader, token)
	return nil
}

func (a clientAuth) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if err := a.addToken(request.Header()); err != nil {
			return nil, err
		}
		return next(ctx, request)
	}
}

func (a clientAuth) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		stream := next(ctx, spec)
		_ = a.addToken(stream.RequestHeader()) // if there is no token, the server rejects the stream
		return stream
	}
}

func (a clientAuth) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

type serverAuth struct {
	keys    *Keys
	callers []string
}

func (a serverAuth) check(header http.Header) error {
	token, err := a.keys.verifyService(header.Get(ServiceHeader), time.Now())
	if err != nil {
		return connect.NewError(connect.CodeUnauthenticated, errors.New("no valid service token"))
	}
	if !slices.Contains(a.callers, token.Issuer) {
		return connect.NewError(connect.CodePermissionDenied,
			fmt.Errorf("%s is not allowed to call this service", token.Issuer))
	}
	return nil
}

func (a serverAuth) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		if err := a.check(request.Header()); err != nil {
			return nil, err
		}
		return next(ctx, request)
	}
}

func (a serverAuth) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (a serverAuth) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, stream connect.StreamingHandlerConn) error {
		if err := a.check(stream.RequestHeader()); err != nil {
			return err
		}
		return next(ctx, stream)
	}
}
