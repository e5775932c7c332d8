package dispatch

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

// ClientConfig is the configuration of Client.
type ClientConfig struct {
	// AllowNetworks are private networks that webhooks may be sent to, such as 127.0.0.0/8 in the
	// local stack.
	AllowNetworks []netip.Prefix `env:"WEBHOOK_ALLOW_NETWORKS" help:"Private networks (CIDR) to which webhooks may be sent. If empty, only public addresses are allowed."`
	// ExtraCAFile is a PEM file of certificate authorities that are trusted in addition to the
	// system's.
	ExtraCAFile string `env:"WEBHOOK_EXTRA_CA_FILE" help:"PEM file of certificate authorities that are trusted in addition to those of the system. If empty, none are added."`
	// Timeout is the maximum duration of one attempt, from the DNS lookup to the end of the
	// response.
	Timeout time.Duration `env:"WEBHOOK_TIMEOUT" envDefault:"10s" help:"Maximum duration of one attempt, from the DNS lookup to the end of the response. A longer attempt fails and is retried."`
	// MaxPerHost is the maximum number of requests in flight to one host and port, for all
	// subscriptions together. The client keeps the same number of idle connections per host. 0
	// means 128.
	MaxPerHost int `env:"WEBHOOK_MAX_PER_HOST" envDefault:"128" help:"Maximum number of requests in flight of one process to one host and port, for all subscriptions together."`
}

const (
	maxRead    = 64 << 10
	maxExcerpt = 4 << 10
	maxHeader  = 16 << 10
	maxPerHost = 128
)

// Client sends attempts. It keeps connections open for later attempts. It is safe for concurrent
// use.
type Client struct {
	http    *http.Client
	timeout time.Duration
	perHost int
}

// NewClient returns a client that connects only to addresses that the guard allows.
func NewClient(cfg ClientConfig, g *ssrf.Guard) (*Client, error) {
	return newClient(cfg, &net.Dialer{Timeout: cfg.Timeout, Control: g.Control})
}

func newClient(cfg ClientConfig, dialer *net.Dialer) (*Client, error) {
	roots, err := rootCAs(cfg.ExtraCAFile)
	if err != nil {
		return nil, err
	}
	if cfg.MaxPerHost == 0 {
		cfg.MaxPerHost = maxPerHost
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // no HTTP/2: workspaces with the same host would share one connection
	transport := &http.Transport{
		// no proxy, because the guard would check the proxy's address instead of the endpoint's
		Proxy:           nil,
		DialContext:     dialer.DialContext,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		// net/http can continue to connect after the request has ended, so the handshake needs this
		// timeout
		TLSHandshakeTimeout:    cfg.Timeout,
		Protocols:              protocols,
		DisableCompression:     true,
		MaxIdleConns:           1024,
		MaxIdleConnsPerHost:    cfg.MaxPerHost,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
	}
	follow := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{http: &http.Client{Transport: transport, CheckRedirect: follow}, timeout: cfg.Timeout, perHost: cfg.MaxPerHost}, nil
}

// PerHost returns the maximum number of requests in flight to one host and port.
func (c *Client) PerHost() int { return c.perHost }

func rootCAs(extra string) (*x509.CertPool, error) {
	if extra == "" {
		return nil, nil // the caller then uses the certificate authorities of the system
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's certificate authorities: %w", err)
	}
	pem, err := os.ReadFile(extra)
	if err != nil {
		return nil, fmt.Errorf("read WEBHOOK_EXTRA_CA_FILE: %w", err)
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("WEBHOOK_EXTRA_CA_FILE %s contains no certificate", extra)
	}
	return roots, nil
}

// Send signs and sends one attempt. The attempt succeeds if a response with a 2xx status arrives
// within the timeout. Redirects are not followed.
func (c *Client) Send(ctx context.Context, w deliveries.Work) (response deliveries.Response) {
	start := time.Now()
	response.At = start
	defer func() { response.Duration = time.Since(start) }()
	if w.Secret == "" || len(w.Body) == 0 {
		response.Failure = deliveries.NotSendable
		return response
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		response.Connected, response.Reused = true, info.Reused
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(w.Body))
	if err != nil {
		response.Failure = deliveries.NotSendable
		return response
	}
	req.Header = deliveries.Header(w, start)
	resp, err := c.http.Do(req)
	if err != nil {
		response.Failure, response.Detail = classify(err), c.detail(err, response.Connected)
		return response
	}
	defer func() { _ = resp.Body.Close() }()
	// a response that is read after the timeout may be an effect of the cancellation, so it does
	// not count
	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		response.Failure, response.Detail = classify(err), c.detail(err, response.Connected)
		return response
	}
	response.Code = resp.StatusCode
	// after status 101, the body is the connection itself, and reads from it do not return when ctx
	// ends
	if resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
	}
	// Only the status decides whether the attempt succeeded, so errors while the body is read are
	// ignored. The body is read to its end if it is short, because net/http can then reuse the
	// connection.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxExcerpt))
	response.Excerpt = bodyExcerpt(body)
	_, _ = io.CopyN(io.Discard, resp.Body, maxRead-maxExcerpt)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		response.Failure = deliveries.BadStatus
		response.RetryAfter = RetryAfter(resp.StatusCode, resp.Header.Get("Retry-After"), start)
	}
	return response
}

// Close ends the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func classify(err error) deliveries.Failure {
	var (
		dns     *net.DNSError
		op      *net.OpError
		cert    *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		timeout net.Error
	)
	switch {
	case ssrf.Refused(err):
		return deliveries.BlockedAddress
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout():
		return deliveries.Timeout
	case errors.As(err, &dns):
		return deliveries.NameNotResolved
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &cert), errors.As(err, &record), errors.As(err, &alert), strings.Contains(err.Error(), "tls:"):
		return deliveries.TLSFailed
	case errors.As(err, &op), errors.Is(err, io.EOF):
		return deliveries.ConnectionFailed
	default:
		return deliveries.BadResponse
	}
}

// detail describes the cause of an error. It returns "" for an unknown cause. It never returns the
// text of the error, because that text can contain addresses of the private network, and text that
// the endpoint chose.
func (c *Client) detail(err error, connected bool) string {
	var (
		dns     *net.DNSError
		host    x509.HostnameError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		timeout net.Error
	)
	switch {
	case ssrf.Refused(err):
		return ""
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout():
		if connected {
			return fmt.Sprintf("no response within %s", c.timeout)
		}
		return fmt.Sprintf("no connection within %s", c.timeout)
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	case errors.As(err, &dns):
		return "the name server returned no address"
	case errors.As(err, &unknown):
		return "certificate signed by unknown authority"
	case errors.As(err, &host):
		return "certificate is not valid for this host name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "certificate has expired or is not yet valid"
	case errors.As(err, &invalid):
		return "certificate is not valid"
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &record):
		return "the endpoint does not use TLS"
	case errors.As(err, &alert): // crypto/tls defines the text, not the endpoint
		return "the endpoint sent the alert " + strings.TrimPrefix(alert.Error(), "tls: ")
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF):
		return "the endpoint closed the connection without a response"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to the host"
	default:
		return ""
	}
}

// bodyExcerpt returns the beginning of a response body. It replaces unprintable characters with
// spaces.
func bodyExcerpt(body []byte) string {
	body = body[:min(len(body), maxExcerpt)]
	text := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, string(body))
	return strings.TrimSpace(text)
}
