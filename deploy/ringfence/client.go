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
	"strings"
	"time"
)

// plainClient asks this machine only, so no proxy has a say.
func plainClient() *http.Client {
	return &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
}

// client speaks the public API.
type client struct {
	stack stack
	http  *http.Client
}

func newClient(s stack) *client { return &client{stack: s, http: plainClient()} }

// refusal is the error body of an answer.
type refusal struct {
	status  int
	Code    string `json:"code"`
	Message string `json:"message"`
	what    string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s was answered with %d %s: %s", r.what, r.status, r.Code, r.Message)
}

// ask sends one request, with the key that its method needs, and decodes the answer.
func (c *client) ask(ctx context.Context, method, path string, body, into any) error {
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
		return fmt.Errorf("%s %s: the stack went away: look at the terminal of `make run`", method, path)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return fmt.Errorf("read answer of %s %s: %w", method, path, err)
	}
	if resp.StatusCode >= 300 {
		wrapped := struct{ Error refusal }{refusal{status: resp.StatusCode, what: method + " " + path}}
		_ = json.Unmarshal(answer, &wrapped) // without a body the status says it all
		return &wrapped.Error
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("decode answer of %s %s: %w", method, path, err)
	}
	return nil
}

const (
	subscriptions = "/v1/webhook-subscriptions"
	// ownName begins the name of every subscription this command makes, so that leftovers are found again.
	ownName = "ringfence cli: "
)

// subscribe makes a subscription and gives back the way to remove it. When the workspace has no room, what killed runs
// of this command left behind is removed first.
func (c *client) subscribe(ctx context.Context, name, endpoint string, events []string) (id, secret string, err error) {
	body := map[string]any{"name": ownName + name, "url": endpoint, "events": events}
	var made struct {
		ID            string `json:"id"`
		SigningSecret string `json:"signing_secret"`
	}
	err = c.ask(ctx, http.MethodPost, subscriptions, body, &made)
	var refused *refusal
	if errors.As(err, &refused) && refused.Code == "subscription_limit_reached" && c.sweep(ctx) > 0 {
		err = c.ask(ctx, http.MethodPost, subscriptions, body, &made)
	}
	return made.ID, made.SigningSecret, err
}

// unsubscribe removes a subscription, also after ctx has ended.
func (c *client) unsubscribe(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	var gone struct{ Deleted bool }
	return c.ask(ctx, http.MethodDelete, subscriptions+"/"+id, nil, &gone)
}

// sweep removes our own subscriptions whose endpoint is no longer there.
func (c *client) sweep(ctx context.Context) (removed int) {
	var list struct {
		Data []struct{ ID, Name, URL string }
	}
	if c.ask(ctx, http.MethodGet, subscriptions+"?limit=100", nil, &list) != nil {
		return 0
	}
	for _, sub := range list.Data {
		parsed, err := url.Parse(sub.URL)
		if err != nil || !strings.HasPrefix(sub.Name, ownName) || parsed.Hostname() != loopback {
			continue
		}
		if conn, err := net.DialTimeout("tcp", parsed.Host, time.Second); err == nil {
			_ = conn.Close()
			continue
		}
		if c.unsubscribe(ctx, sub.ID) == nil {
			removed++
		}
	}
	return removed
}
