package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// plainClient returns an HTTP client for servers on this machine. It uses no proxy.
func plainClient() *http.Client {
	return &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
}

// client is a client of the public API.
type client struct {
	stack stack
	http  *http.Client
}

func newClient(s stack) *client { return &client{stack: s, http: plainClient()} }

// refusal is the body of an error response.
type refusal struct {
	status  int
	Code    string `json:"code"`
	Message string `json:"message"`
	what    string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s returned %d %s: %s", r.what, r.status, r.Code, r.Message)
}

// send sends one request and decodes the response. A GET request uses the read key, any other
// request the write key.
func (c *client) send(ctx context.Context, method, path string, body, into any) error {
	payload := []byte(nil)
	if body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode %s %s: %w", method, path, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.stack.BaseURL+path, bytes.NewReader(payload))
	if err != nil {
		return fmt.Errorf("make %s %s: %w", method, path, err)
	}
	key := c.stack.WriteKey
	if method == http.MethodGet {
		key = c.stack.ReadKey
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s %s: the stack does not respond any more: see the output of `make run`", method, path)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return fmt.Errorf("read response of %s %s: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		wrapped := struct{ Error refusal }{refusal{status: resp.StatusCode, what: method + " " + path}}
		_ = json.Unmarshal(answer, &wrapped) // without a valid body, the status is the only information
		return &wrapped.Error
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("decode response of %s %s: %w", method, path, err)
	}
	return nil
}

const (
	subscriptions = "/v1/webhook-subscriptions"
	// ownName is the prefix of the name of every subscription that this command creates.
	ownName = "ringfence cli: "
)

type subscription struct {
	ID, Name, URL, Status string
}

// limitError reports that the workspace has reached its limit of subscriptions.
type limitError struct {
	refused *refusal
	// subscriptions are the subscriptions that use up the limit.
	subscriptions []subscription
}

func (e *limitError) Error() string { return e.refused.Message }

// subscribe creates a subscription for endpoint, which this process serves. It first deletes the
// subscriptions that killed runs of this command left behind. If the limit is still reached, it
// returns a *limitError.
func (c *client) subscribe(ctx context.Context, name, endpoint string, events []string) (id, secret string, err error) {
	all, err := c.deleteLeftovers(ctx, endpoint)
	if err != nil {
		return "", "", err
	}
	var made struct {
		ID            string `json:"id"`
		SigningSecret string `json:"signing_secret"`
	}
	err = c.send(ctx, http.MethodPost, subscriptions,
		map[string]any{"name": ownName + name, "url": endpoint, "events": events}, &made)
	var refused *refusal
	if errors.As(err, &refused) && refused.Code == "subscription_limit_reached" {
		taken := slices.DeleteFunc(slices.Clone(all), func(s subscription) bool { return s.Status != "active" })
		if len(taken) == 0 {
			taken = all
		}
		return "", "", &limitError{refused: refused, subscriptions: taken}
	}
	return made.ID, made.SigningSecret, err
}

// unsubscribe deletes a subscription, even if ctx has ended.
func (c *client) unsubscribe(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var gone struct{ Deleted bool }
	return c.send(ctx, http.MethodDelete, subscriptions+"/"+id, nil, &gone)
}

// deleteLeftovers deletes the subscriptions that killed runs of this command left behind, and
// returns all others. A subscription is a leftover if no program listens at its endpoint, or if it
// has the endpoint of this run.
func (c *client) deleteLeftovers(ctx context.Context, endpoint string) (others []subscription, err error) {
	var list struct{ Data []subscription }
	if err := c.send(ctx, http.MethodGet, subscriptions+"?limit=100", nil, &list); err != nil {
		return nil, err
	}
	for _, sub := range list.Data {
		if !strings.HasPrefix(sub.Name, ownName) || sub.URL != endpoint && reachable(sub.URL) {
			others = append(others, sub)
			continue
		}
		var refused *refusal
		if err := c.unsubscribe(ctx, sub.ID); errors.As(err, &refused) && refused.status == http.StatusNotFound {
			continue // another run has already deleted the subscription
		} else if err != nil {
			return nil, err
		}
	}
	return others, nil
}

// reachable reports whether a program listens at the endpoint. An endpoint on another machine
// counts as reachable.
func reachable(endpoint string) bool {
	parsed, err := url.Parse(endpoint)
	if err != nil || parsed.Hostname() != loopback {
		return true
	}
	conn, err := net.DialTimeout("tcp", parsed.Host, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
