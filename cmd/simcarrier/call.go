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
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/google/uuid"
)

// callConfig contains the settings of the command `call`.
type callConfig struct {
	BaseURL  string `env:"RINGFENCE_URL" help:"URL of the public API, for the command call"`
	AdminURL string `env:"RINGFENCE_ADMIN_URL" help:"URL of the operator API, for the command call"`
	// Tokens are operator tokens, as in the gateway's configuration. The first token is used.
	Tokens []string `env:"OPERATOR_TOKENS" help:"operator tokens of the gateway, for the command call"`
}

const (
	callTimeout      = 3 * time.Minute
	callPollInterval = time.Second
	// dialWindow is how long send repeats failed dials. A cluster needs seconds to include a new pod
	// in its network policies.
	dialWindow   = 30 * time.Second
	dialTimeout  = 3 * time.Second
	dialInterval = 500 * time.Millisecond
	// answeringNumber is answered by the simulated carrier (docs/test-numbers.md).
	answeringNumber = "+14155550101"
)

// placeCall creates a workspace with an agent, a key and credit. It places a call in this workspace
// and waits until the call is completed. `helm test` uses it.
func placeCall(ctx context.Context, out io.Writer) error {
	cfg, err := env.ParseAs[callConfig]()
	if err != nil {
		return err
	}
	if cfg.BaseURL == "" || cfg.AdminURL == "" || len(cfg.Tokens) == 0 {
		return errors.New("set RINGFENCE_URL, RINGFENCE_ADMIN_URL and OPERATOR_TOKENS")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, token, _ := strings.Cut(cfg.Tokens[0], "=")
	operator := apiClient{base: cfg.AdminURL + "/admin/v1/workspaces", token: token, dialWindow: dialWindow, out: out}
	name := "test-" + uuid.NewString()
	var workspace, agent struct{ ID string }
	var key struct{ Key string }
	const policy = `{"window":{"start":"00:00","end":"24:00"},"timezone":"recipient"}`
	for _, step := range []struct {
		path, body string
		into       any
	}{
		{"", `{"name":"` + name + `","plan":"growth","currency":"USD","calling_policy":` + policy + `}`, &workspace},
		{"/agents", `{"name":"Ida"}`, &agent},
		{"/api-keys", `{"name":"test","access":"write"}`, &key},
		{"/wallet/transactions", `{"type":"top_up","amount":"10.00","reference":"test"}`, nil},
	} {
		path := step.path
		if path != "" {
			path = "/" + workspace.ID + path
		}
		if err := operator.send(ctx, http.MethodPost, path, step.body, step.into); err != nil {
			return err
		}
	}
	customer := apiClient{base: cfg.BaseURL, token: key.Key, dialWindow: dialWindow, out: out}
	var order struct {
		ID     string
		Status string
	}
	body := fmt.Sprintf(`{"agent_id":%q,"to":%q,"idempotency_key":%q}`, agent.ID, answeringNumber, name)
	if err := customer.send(ctx, http.MethodPost, "/v1/calls", body, &order); err != nil {
		return err
	}
	for order.Status != "completed" {
		fmt.Fprintf(out, "call request %s of workspace %s is %s\n", order.ID, workspace.ID, order.Status)
		if order.Status == "failed" || order.Status == "blocked" || order.Status == "canceled" {
			return fmt.Errorf("the call request ended as %s", order.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the call request is still %s: %w", order.Status, ctx.Err())
		case <-time.After(callPollInterval):
		}
		if err := customer.send(ctx, http.MethodGet, "/v1/call-requests/"+order.ID, "", &order); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "call request %s of workspace %s is completed\n", order.ID, workspace.ID)
	return nil
}

// apiClient sends requests with a bearer token to an API.
type apiClient struct {
	base, token string
	dialWindow  time.Duration
	// out receives a line for each failed dial.
	out io.Writer
}

var httpClient = &http.Client{Transport: &http.Transport{
	DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
}}

// send sends a request and decodes the response into result. It repeats failed dials until
// dialWindow ends. After a failed dial, nothing was sent, so no request is sent twice.
func (c apiClient) send(ctx context.Context, method, path, body string, result any) error {
	giveUp := time.Now().Add(c.dialWindow)
	for {
		err := c.sendOnce(ctx, method, path, body, result)
		var failed *net.OpError
		if !errors.As(err, &failed) || failed.Op != "dial" {
			return err
		}
		if time.Now().After(giveUp) {
			return fmt.Errorf("no connection to %s within %s. Check the Service and the network policies: %w",
				c.base, c.dialWindow, err)
		}
		fmt.Fprintf(c.out, "no connection to %s, dialing again: %v\n", c.base, failed)
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(dialInterval):
		}
	}
}

func (c apiClient) sendOnce(ctx context.Context, method, path, body string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := httpClient.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: status %d: %s", method, path, response.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
