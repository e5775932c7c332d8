// Package proxy carries question 1: the customer's or operator's own request, handed to the service that
// owns its route, with a signed caller in place of the credential.
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

// limit is how long an owner may take for its answer.
const limit = 30 * time.Second

// fetching is how long a file may take to be fetched.
const fetching = time.Hour

// bodyLimit is how long a client may take to send the body of a request that was let in.
const bodyLimit = 30 * time.Second

// Upstreams are the owners of routes.
type Upstreams struct {
	keys      *serviceauth.Keys
	bases     map[string]*url.URL
	transport *http.Transport
	proxy     *httputil.ReverseProxy
	settings  settingClients
}

// New makes the peers; urls has each owner's address under its name.
func New(keys *serviceauth.Keys, urls map[string]string) (*Upstreams, error) {
	p := &Upstreams{keys: keys, bases: map[string]*url.URL{}, transport: &http.Transport{
		Proxy:                 nil, // the owners are in the house
		DialContext:           (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   2 * time.Second,
		MaxIdleConns:          2048,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       serviceauth.IdleFor,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
	}}
	var faults []error
	for name, address := range urls {
		base, err := url.Parse(address)
		if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") || strings.Trim(base.Path, "/") != "" {
			faults = append(faults, fmt.Errorf("the address of %s must be like http://127.0.0.1:8090, not %q", name, address))
			continue
		}
		p.bases[name] = base
	}
	p.proxy = &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: p.transport, ModifyResponse: relayRefusal, ErrorHandler: refuse, BufferPool: &buffers{},
		ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
	p.settings = newSettingClients(keys, urls)
	return p, errors.Join(faults...)
}

// buffers keeps what answers are copied through; the proxy would make 32 KiB for each.
type buffers struct{ pool sync.Pool }

// Get gives a buffer that nobody else uses.
func (b *buffers) Get() []byte {
	if used, ok := b.pool.Get().(*[]byte); ok {
		return *used
	}
	return make([]byte, 32<<10)
}

// Put takes it back.
func (b *buffers) Put(used []byte) { b.pool.Put(&used) }

// Close ends the idle connections.
func (p *Upstreams) Close() { p.transport.CloseIdleConnections() }

// target travels to rewrite with the request.
type target struct {
	base  *url.URL
	path  *url.URL
	token string
	owner string
}

type targetKey struct{}

// Forward hands the request to the owner of its route and streams the answer back. The body is read first: one that is too
// large never reaches the owner (413), and a slow client does not hold it up.
func (p *Upstreams) Forward(w http.ResponseWriter, r *http.Request, owner string, path *url.URL, caller serviceauth.Caller) error {
	return p.forward(w, r, owner, path, caller, limit)
}

// Fetch is Forward for a file, whose client may take an hour over it.
func (p *Upstreams) Fetch(w http.ResponseWriter, r *http.Request, owner string, path *url.URL, caller serviceauth.Caller) error {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(fetching)) // a writer that cannot has no connection
	return p.forward(w, r, owner, path, caller, fetching)
}

func (p *Upstreams) forward(w http.ResponseWriter, r *http.Request, owner string, path *url.URL, caller serviceauth.Caller, within time.Duration) error {
	to, err := p.target(owner, path, caller)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	out := r.WithContext(context.WithValue(ctx, targetKey{}, to))
	out.Header = r.Header.Clone()
	stripOutside(out.Header)
	if path.Path != keyed {
		out.Header.Del("Idempotency-Key")
	}
	if err := buffer(w, out); err != nil {
		return err
	}
	p.proxy.ServeHTTP(w, out)
	return nil
}

func (p *Upstreams) target(owner string, path *url.URL, caller serviceauth.Caller) (target, error) {
	base := p.bases[owner]
	if base == nil {
		return target{}, fmt.Errorf("there is no address of %s", owner)
	}
	token, err := p.keys.SignCaller(owner, caller)
	if err != nil {
		return target{}, fmt.Errorf("sign caller: %w", err)
	}
	return target{base: base, path: path, token: token, owner: owner}, nil
}

// keyed is the one path that knows Idempotency-Key. On any other the header would only make net/http repeat a POST by itself when
// the owner dies under it, and do twice what was asked once.
const keyed = "/v1/calls"

// stripOutside drops what a client may not say: credentials, our own headers, what belongs to one hop, and the wish to
// speak another protocol.
func stripOutside(header http.Header) {
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

// buffer reads the whole body, at most MaxBody.
func buffer(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength > httpserver.MaxBody {
		return httpserver.TooLarge()
	}
	httpserver.Hurry(w, r, bodyLimit)
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
	to, _ := pr.In.Context().Value(targetKey{}).(target)
	pr.Out.URL.Scheme, pr.Out.URL.Host = to.base.Scheme, to.base.Host
	pr.Out.URL.Path, pr.Out.URL.RawPath = to.path.Path, to.path.RawPath
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery
	pr.Out.Host = to.base.Host
	sign(pr.Out, to)
}

func sign(out *http.Request, to target) {
	out.Header.Set(serviceauth.CallerHeader, to.token)
	otel.GetTextMapPropagator().Inject(out.Context(), propagation.HeaderCarrier(out.Header))
}

// ErrUnreached: the owner was never asked, so nothing happened there.
var ErrUnreached = errors.New("the owner was not reached")

var errDistrusted = errors.New("the owner does not accept our signature")

// relay lets an answer through, without the headers that are ours to set.
func relay(answer *http.Response) error {
	if answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusSwitchingProtocols {
		return errDistrusted // the customer's key was good: the fault is in our keys
	}
	for name := range answer.Header {
		if strings.HasPrefix(name, "X-Ringfence-") || strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Ratelimit") {
			answer.Header.Del(name)
		}
	}
	for _, name := range []string{"Service-Version", "X-Content-Type-Options", "X-Request-Id", "Server", "Set-Cookie"} {
		answer.Header.Del(name)
	}
	return nil
}

// maxRefusal bounds an error body that is read for its code. The error bodies of the services are
// smaller than 1 KiB.
const maxRefusal = 8 << 10

// relayRefusal relays a response and adds its error code to the log line of the request.
func relayRefusal(answer *http.Response) error {
	if err := relay(answer); err != nil {
		return err
	}
	if answer.StatusCode < http.StatusBadRequest || answer.ContentLength <= 0 || answer.ContentLength > maxRefusal {
		return nil
	}
	body, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close() // it was read to its end
	if err != nil {
		return fmt.Errorf("read error body: %w", err)
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	annotateCode(answer.Request.Context(), body)
	return nil
}

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	to, _ := r.Context().Value(targetKey{}).(target)
	httpserver.WriteError(w, r, refusal(r.Context(), r.Method, to.owner, err))
}

// refusal tells apart an owner that was never reached from one whose answer was not seen: after the second the client must
// look before it repeats what may have changed something.
func refusal(ctx context.Context, method, owner string, err error) error {
	if errors.Is(err, errDistrusted) {
		return fmt.Errorf("ask %s: %w", owner, err)
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("ask %s: %w", owner, context.Canceled)
	}
	slog.WarnContext(ctx, "an owner did not answer", "owner", owner, "error", err)
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("%w: %w", ErrUnreached, apierr.Unavailable("This part of the service"))
	}
	if method == http.MethodGet || method == http.MethodHead {
		return apierr.Unavailable("This part of the service") // reading changes nothing, seen or not
	}
	return apierr.Unanswered("This part of the service")
}
