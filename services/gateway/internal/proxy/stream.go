package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
)

const (
	// streamWriteTimeout is the maximum duration of one write to the client. A client that reads
	// more slowly is disconnected and can resume.
	streamWriteTimeout = 10 * time.Second
	// recheckInterval is the time between two calls of recheck. A stream must end within 5 s after
	// its key is revoked.
	recheckInterval = 3 * time.Second
)

// Stream forwards a response that has no end: it writes and flushes each piece when the piece
// arrives. The response ends when the client disconnects or reads too slowly, when the service ends
// it, when recheck returns an error, or when the server closes. recheck is called every 3 s.
//
// observe receives the response before the client does. It can be nil.
func (p *Upstreams) Stream(
	w http.ResponseWriter, r *http.Request, owner string, path *url.URL, caller serviceauth.Caller,
	recheck func(context.Context) error, observe Observe,
) error {
	if err := BufferBody(w, r); err != nil {
		return err
	}
	control := http.NewResponseController(w)
	// Without this call, net/http would cancel the request after ReadTimeout. The error is ignored,
	// because every writer with a network connection supports deadlines.
	_ = control.SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	// the service must send the response header within ownerTimeout
	header := time.AfterFunc(ownerTimeout, cancel)
	defer header.Stop()
	response, err := p.requestStream(ctx, r, owner, path, caller)
	if err != nil {
		return requestError(r.Context(), r.Method, owner, err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := relayError(response); err != nil {
		return requestError(r.Context(), r.Method, owner, err)
	}
	if observe != nil {
		if err := observe(response, nil); err != nil {
			return err
		}
	}
	for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "Retry-After", "X-Accel-Buffering"} {
		if value := response.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(response.StatusCode)
	if response.StatusCode != http.StatusOK || r.Method == http.MethodHead {
		_, _ = io.Copy(w, response.Body) // an error means that the client disconnected
		return nil
	}
	header.Stop()
	telemetry.Stream(ctx)
	go endStream(ctx, cancel, httpserver.Closing(ctx), recheck)
	copyStream(w, control, response.Body)
	return nil
}

func (p *Upstreams) requestStream(
	ctx context.Context, r *http.Request, owner string, path *url.URL, caller serviceauth.Caller,
) (*http.Response, error) {
	to, err := p.target(owner, path, caller)
	if err != nil {
		return nil, err
	}
	address := &url.URL{
		Scheme:   to.base.Scheme,
		Host:     to.base.Host,
		Path:     path.Path,
		RawPath:  path.RawPath,
		RawQuery: r.URL.RawQuery,
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, address.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("make request to %s: %w", owner, err)
	}
	for _, name := range []string{"Accept", "Last-Event-Id"} {
		if value := r.Header.Get(name); value != "" {
			request.Header.Set(name, value)
		}
	}
	sign(request, to)
	return p.transport.RoundTrip(request)
}

// endStream calls cancel when the server closes or when recheck returns an error. It returns when
// ctx ends.
func endStream(
	ctx context.Context,
	cancel context.CancelFunc,
	closing <-chan struct{},
	recheck func(context.Context) error,
) {
	ticker := time.NewTicker(recheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-closing:
			cancel()
			return
		case <-ticker.C:
			if recheck(ctx) != nil {
				cancel()
				return
			}
		}
	}
}

// copyStream copies the body until it ends or a write fails. A client resumes after the last
// complete message. So if a message was cut, it is sent again.
func copyStream(w io.Writer, control *http.ResponseController, body io.Reader) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			_ = control.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
			if _, err := w.Write(buffer[:n]); err != nil {
				return
			}
			if control.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
