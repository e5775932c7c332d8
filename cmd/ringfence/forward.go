package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// forwarder sends verified webhooks to an HTTP address of the developer.
type forwarder struct {
	to   string
	http *http.Client
}

// newForwarder returns a forwarder for an http or https address.
func newForwarder(to string) (*forwarder, error) {
	address, err := url.Parse(to)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, fmt.Errorf("--forward %s is not an address such as http://localhost:3000/webhooks", to)
	}
	client := plainClient()
	// Redirects are not followed. The status of the redirect is the status of the delivery, as with a
	// real endpoint.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &forwarder{to: to, http: client}, nil
}

// send forwards a webhook with its headers and its body unchanged, so that the receiver can verify
// the signature. It returns the status of the response, or 502 if there is none, and a line that
// describes the result.
func (f *forwarder) send(r *http.Request, body []byte) (status int, result string) {
	request, err := http.NewRequestWithContext(r.Context(), r.Method, f.to, bytes.NewReader(body))
	if err != nil {
		return http.StatusBadGateway, fmt.Sprintf("not forwarded: %v", err)
	}
	request.Header = r.Header.Clone()
	request.Header.Del("Connection")
	start := time.Now()
	response, err := f.http.Do(request)
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	if err != nil {
		return http.StatusBadGateway, fmt.Sprintf("not forwarded: %v", err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxBody))
	return response.StatusCode,
		fmt.Sprintf("forwarded, answered %d in %d ms", response.StatusCode, time.Since(start).Milliseconds())
}
