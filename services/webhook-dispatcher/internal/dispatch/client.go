// Package sending owns one POST to a customer's endpoint: where it may go, how long it may take, how much of the answer
// is read, and what went wrong. dispatch decides when to send and what follows.

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
	"time"
	"unicode"
	"unicode/utf8"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

// ClientConfig is the sending part of the environment.
type ClientConfig struct {
	// AllowNetworks are private networks that webhooks may reach all the same ("127.0.0.0/8"); the local stack needs it.
	AllowNetworks []netip.Prefix `env:"WEBHOOK_ALLOW_NETWORKS" help:"private networks webhooks may reach all the same, as CIDR, separated by commas"`
	// ExtraCAFile is a PEM file of authorities trusted besides the system's.
	ExtraCAFile string `env:"WEBHOOK_EXTRA_CA_FILE" help:"PEM file of authorities trusted besides the system's"`
	// Timeout bounds one attempt from the look-up of the name to the end of the answer.
	Timeout time.Duration `env:"WEBHOOK_TIMEOUT" envDefault:"10s" help:"bound of one attempt, answer included"`
	// MaxPerHost bounds the requests open at once to one host and port, whosever they are; zero is 128. As many connections are kept.
	MaxPerHost int `env:"WEBHOOK_MAX_PER_HOST" envDefault:"128" help:"requests open at once to one host and port, over all subscriptions"`
}

const (
	maxRead    = 64 << 10
	maxExcerpt = 1 << 10
	maxHeader  = 16 << 10
	maxPerHost = 128
)

// Client sends attempts. It keeps connections open between them.
type Client struct {
	http    *http.Client
	timeout time.Duration
	perHost int
}

// NewClient makes a client behind the guard.
func NewClient(cfg ClientConfig, g *ssrf.Guard) (*Client, error) {
	return newClient(cfg, &net.Dialer{Timeout: cfg.Timeout, Control: g.Control})
}

// newClient makes a client that connects as the dialer does.
func newClient(cfg ClientConfig, dialer *net.Dialer) (*Client, error) {
	roots, err := rootCAs(cfg.ExtraCAFile)
	if err != nil {
		return nil, err
	}
	if cfg.MaxPerHost == 0 {
		cfg.MaxPerHost = maxPerHost
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // an HTTP/2 connection would be shared by the tenants of one host
	transport := &http.Transport{
		Proxy:                  nil, // the guard would judge the proxy's address instead of the endpoint's
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    cfg.Timeout, // a dial outlives its request: without this an endpoint that stays silent keeps the connection
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

// PerHost is how many requests may be open at once to one host and port.
func (c *Client) PerHost() int { return c.perHost }

func rootCAs(extra string) (*x509.CertPool, error) {
	if extra == "" {
		return nil, nil // the system's
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
		return nil, fmt.Errorf("WEBHOOK_EXTRA_CA_FILE %s holds no certificate", extra)
	}
	return roots, nil
}

// Send makes one attempt: signed now, same bytes as ever. Any 2xx within the time is success, everything else is not.
func (c *Client) Send(ctx context.Context, w deliveries.Work) (answer deliveries.Response) {
	start := time.Now()
	answer.At = start
	defer func() { answer.Duration = time.Since(start) }()
	if w.Secret == "" || len(w.Body) == 0 {
		answer.Failure = deliveries.NotSendable
		return answer
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		answer.Connected, answer.Reused = true, info.Reused
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(w.Body))
	if err != nil {
		answer.Failure = deliveries.NotSendable
		return answer
	}
	req.Header = deliveries.Header(w, start)
	resp, err := c.http.Do(req)
	if err != nil {
		answer.Failure = classify(err)
		return answer
	}
	defer func() { _ = resp.Body.Close() }()
	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) { // what answers while we hang up answers nobody: the handler may have given up for it
		answer.Failure = classify(err)
		return answer
	}
	answer.Code = resp.StatusCode
	if resp.StatusCode == http.StatusSwitchingProtocols { // its body is the bare connection now, and ctx ends no read from that
		_ = resp.Body.Close()
	}
	// The status decides; a body that breaks off or never ends takes nothing back. One that is read to its end leaves the connection to the next.
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxExcerpt))
	answer.Excerpt = excerpt(body)
	_, _ = io.CopyN(io.Discard, resp.Body, maxRead-maxExcerpt)
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		answer.Failure = deliveries.BadStatus
		answer.RetryAfter = deliveries.RetryAfter(resp.StatusCode, resp.Header.Get("Retry-After"), start)
	}
	return answer
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

// excerpt is the printable beginning of an answer.
func excerpt(body []byte) string {
	body = body[:min(len(body), maxExcerpt)]
	text := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, string(body))
	return strings.TrimSpace(text)
}
