// Package proxy forwards requests to the service that owns the route (the owner). A signed caller
// token replaces the client's credential.
package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
)

// ownerTimeout is the maximum time from a request to the response of the service that owns the
// route.
const ownerTimeout = 30 * time.Second

// fetchTimeout is the maximum duration of the download of a file.
const fetchTimeout = time.Hour

// bodyTimeout limits the time that a client has to send the body of an accepted request.
const bodyTimeout = 30 * time.Second

// Upstreams contains the HTTP clients for the services that own routes.
type Upstreams struct {
	keys      *serviceauth.Keys
	bases     map[string]*url.URL
	transport *http.Transport
	proxy     *httputil.ReverseProxy
	settings  settingClients
}

// New returns the clients. urls maps the name of each service to its address.
func New(keys *serviceauth.Keys, urls map[string]string) (*Upstreams, error) {
	p := &Upstreams{keys: keys, bases: map[string]*url.URL{}, transport: &http.Transport{
		Proxy:                 nil, // no HTTP proxy: the services are in the private network
		DialContext:           (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   2 * time.Second,
		MaxIdleConns:          2048,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       serviceauth.IdleFor,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
	}}
	var errs []error
	for name, address := range urls {
		base, err := url.Parse(address)
		if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") || strings.Trim(base.Path, "/") != "" {
			errs = append(errs, fmt.Errorf("the address of %s must be like http://127.0.0.1:8090, not %q", name, address))
			continue
		}
		p.bases[name] = base
	}
	p.proxy = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: p.transport, ModifyResponse: relayResponse, ErrorHandler: handleError,
		BufferPool: &buffers{},
		ErrorLog:   slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
	p.settings = newSettingClients(keys, urls)
	return p, errors.Join(errs...)
}

// buffers is a pool of 32 KiB buffers for copying responses.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if used, ok := b.pool.Get().(*[]byte); ok {
		return *used
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(used []byte) { b.pool.Put(&used) }

// Close closes the idle connections.
func (p *Upstreams) Close() { p.transport.CloseIdleConnections() }

// destination is the address to which a request is forwarded.
type destination struct {
	base    *url.URL
	path    *url.URL
	token   string
	owner   string
	observe Observe
}

// Observe is called once for each forwarded request. It can replace the body of the response. If
// Observe returns an error, the client receives this error instead of the response.
//
// If the service sent no response, response is nil and err is the error.
type Observe func(response *http.Response, err error) error

type targetKey struct{}

// Forward sends the request to the service that owns the route, and streams the response to the
// client. It reads the whole request body first. So a body that is too large (413) never reaches
// the service, and the service does not wait for a slow client. observe can be nil.
func (p *Upstreams) Forward(
	w http.ResponseWriter, r *http.Request, owner string, path *url.URL, caller serviceauth.Caller, observe Observe,
) error {
	to, err := p.target(owner, path, caller)
	if err != nil {
		return err
	}
	to.observe = observe
	return p.forward(w, r, to, ownerTimeout)
}

// Fetch forwards the download of a file. Unlike Forward, it allows one hour for the download.
func (p *Upstreams) Fetch(w http.ResponseWriter, r *http.Request, owner string, path *url.URL, caller serviceauth.Caller) error {
	// The error is ignored, because every writer with a network connection supports deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(fetchTimeout))
	to, err := p.target(owner, path, caller)
	if err != nil {
		return err
	}
	return p.forward(w, r, to, fetchTimeout)
}

func (p *Upstreams) forward(w http.ResponseWriter, r *http.Request, to destination, within time.Duration) error {
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	out := r.WithContext(context.WithValue(ctx, targetKey{}, to))
	out.Header = r.Header.Clone()
	removeClientHeaders(out.Header)
	if to.path.Path != idempotentPath {
		out.Header.Del("Idempotency-Key")
	}
	if err := BufferBody(w, out); err != nil {
		return err
	}
	p.proxy.ServeHTTP(w, out)
	return nil
}

func (p *Upstreams) target(owner string, path *url.URL, caller serviceauth.Caller) (destination, error) {
	base := p.bases[owner]
	if base == nil {
		return destination{}, fmt.Errorf("there is no address of %s", owner)
	}
	token, err := p.keys.SignCaller(owner, caller)
	if err != nil {
		return destination{}, fmt.Errorf("sign caller: %w", err)
	}
	return destination{base: base, path: path, token: token, owner: owner}, nil
}

// idempotentPath is the only path that uses the header Idempotency-Key. On other paths the gateway
// removes this header. With the header, net/http would repeat a POST when the connection to the
// service breaks, and the change could be made twice.
const idempotentPath = "/v1/calls"

// removeClientHeaders removes headers that a client must not set: credentials, internal headers,
// hop-by-hop headers, and headers that request an upgrade to another protocol.
func removeClientHeaders(header http.Header) {
	for name := range header {
		if strings.HasPrefix(name, "X-Ringfence-") || strings.HasPrefix(name, "X-Forwarded-") {
			header.Del(name)
		}
	}
	for _, named := range header.Values("Connection") {
		for name := range strings.SplitSeq(named, ",") {
			header.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range []string{"Authorization", "Proxy-Authorization", "Cookie", "Forwarded", "X-Real-Ip", "Connection", "Upgrade", "Te", "Trailer",
		"Keep-Alive", "X-Idempotency-Key", "Proxy-Connection", "Transfer-Encoding", "Expect", "Traceparent", "Tracestate", "Baggage"} {
		header.Del(name)
	}
}

// BufferBody reads the whole body, up to MaxBody bytes. Afterwards, r.Body and r.GetBody return the
// body that was read.
func BufferBody(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength > httpserver.MaxBody {
		return httpserver.TooLarge()
	}
	httpserver.Hurry(w, r, bodyTimeout)
	httpserver.BoundBody(w, r)
	body, err := httpserver.ReadBody(r)
	if err != nil {
		return err
	}
	r.ContentLength, r.TransferEncoding, r.Trailer = int64(len(body)), nil, nil
	r.Body, r.GetBody = http.NoBody, nil
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return nil
}

func rewrite(pr *httputil.ProxyRequest) {
	to, _ := pr.In.Context().Value(targetKey{}).(destination)
	pr.Out.URL.Scheme, pr.Out.URL.Host = to.base.Scheme, to.base.Host
	pr.Out.URL.Path, pr.Out.URL.RawPath = to.path.Path, to.path.RawPath
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	pr.Out.Host = to.base.Host
	sign(pr.Out, to)
}

func sign(out *http.Request, to destination) {
	out.Header.Set(serviceauth.CallerHeader, to.token)
	otel.GetTextMapPropagator().Inject(out.Context(), propagation.HeaderCarrier(out.Header))
}

// ErrUnreached means that the gateway could not connect to the service that owns the route. So the
// service has changed nothing.
var ErrUnreached = errors.New("the owner was not reached")

var errSignatureRejected = errors.New("the owner does not accept our signature")

// checkResponse returns an error if the service rejected the gateway's signature. Otherwise it
// removes the headers that the gateway sets itself.
func checkResponse(response *http.Response) error {
	if response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusSwitchingProtocols {
		// the client was authenticated, so the signing keys of the gateway or of the service are
		// misconfigured
		return errSignatureRejected
	}
	for name := range response.Header {
		if strings.HasPrefix(name, "X-Ringfence-") || strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Ratelimit") {
			response.Header.Del(name)
		}
	}
	for _, name := range []string{"Service-Version", "X-Content-Type-Options", "X-Request-Id", "Server", "Set-Cookie"} {
		response.Header.Del(name)
	}
	return nil
}

// maxErrorBody limits the size of an error body from which the gateway reads the error code. The
// error bodies of the services are smaller than 1 KiB.
const maxErrorBody = 8 << 10

// relayError relays an error response and adds its error code to the log line of the request.
func relayError(response *http.Response) error {
	if err := checkResponse(response); err != nil {
		return err
	}
	if response.StatusCode < http.StatusBadRequest || response.ContentLength <= 0 ||
		response.ContentLength > maxErrorBody {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // the body was read completely
	if err != nil {
		return fmt.Errorf("read error body: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	annotateCode(response.Request.Context(), body)
	return nil
}

// observedError is an error that an Observe function returned.
type observedError struct{ error }

// relayResponse calls relayError and then the Observe function of the request. If one of them
// returns an error, the client receives this error instead of the response.
func relayResponse(response *http.Response) error {
	if err := relayError(response); err != nil {
		return err
	}
	to, _ := response.Request.Context().Value(targetKey{}).(destination)
	if to.observe == nil {
		return nil
	}
	if err := to.observe(response, nil); err != nil {
		return observedError{err}
	}
	return nil
}

func handleError(w http.ResponseWriter, r *http.Request, err error) {
	if observed, ok := errors.AsType[observedError](err); ok {
		httpserver.WriteError(w, r, observed.error)
		return
	}
	to, _ := r.Context().Value(targetKey{}).(destination)
	if to.observe != nil {
		// the result is ignored, because the client gets the error of the request
		_ = to.observe(nil, requestError(r.Context(), r.Method, to.owner, err))
	}
	httpserver.WriteError(w, r, requestError(r.Context(), r.Method, to.owner, err))
}

// requestError returns the error for a request that got no response. If the service was not
// reached, the client can repeat the request. Otherwise the service could have made the change, and
// the client must check the result first.
func requestError(ctx context.Context, method, owner string, err error) error {
	if errors.Is(err, errSignatureRejected) {
		return fmt.Errorf("request to %s: %w", owner, err)
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("request to %s: %w", owner, context.Canceled)
	}
	slog.WarnContext(ctx, "HTTP request to the service that owns the route failed", "owner", owner, "error", err)
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("%w: %w", ErrUnreached, apierr.Unavailable("This part of the service"))
	}
	if method == http.MethodGet || method == http.MethodHead {
		return apierr.Unavailable("This part of the service") // a GET or HEAD changes nothing
	}
	return apierr.Unanswered("This part of the service")
}
