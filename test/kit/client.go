package kit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"time"
)

// idleTimeout is the time for which a client keeps an unused connection. It is shorter than the
// DRAIN_DELAY of a stack whose replicas are replaced. No request then uses a connection that the
// server is about to close.
const idleTimeout = 2 * time.Second

// Client is an HTTP client of one API with one bearer credential.
type Client struct {
	base, key string
	http      *http.Client
}

// NewClient returns a client. If key is empty, the client sends no credential.
func NewClient(base, key string) *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.MaxIdleConnsPerHost = 256
	transport.IdleConnTimeout = idleTimeout
	return &Client{base: base, key: key, http: &http.Client{Transport: transport, Timeout: 30 * time.Second}}
}

// Do sends a request with an optional JSON body.
func (c *Client) Do(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return 0, nil, err
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// Into sends a request, returns an error unless the response has the wanted status, and decodes the
// body.
func (c *Client) Into(ctx context.Context, method, path string, body any, want int, into any) error {
	status, answer, err := c.Do(ctx, method, path, body)
	if err != nil {
		return err
	}
	if status != want {
		return fmt.Errorf("%s %s: %d %s, want %d", method, path, status, answer, want)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// Request is a call request as the API returns it.
type Request struct {
	ID          string  `json:"id"`
	Status      string  `json:"status"`
	CallID      *string `json:"call_id"`
	To          string  `json:"to"`
	ExternalRef *string `json:"external_ref"`
	ErrorCode   *string `json:"error_code"`
	ErrorDetail *string `json:"error_detail"`
}

// Final reports whether the call request has ended.
func (r Request) Final() bool { return r.Status != "queued" && r.Status != "dialing" }

// Call is a call in a response of GET /v1/calls/{id}.
type Call struct {
	CallID         string      `json:"call_id"`
	Status         string      `json:"status"`
	To             string      `json:"to"`
	HangupCause    *string     `json:"hangup_cause"`
	Outcome        *string     `json:"outcome"`
	Disposition    *string     `json:"disposition"`
	CreditsCharged json.Number `json:"credits_charged"`
	ExternalRef    *string     `json:"external_ref"`
	Timings        struct {
		TalkSeconds *int `json:"talk_seconds"`
	} `json:"timings"`
	Summary map[string]any `json:"summary"`
}

// Page is one page of a list.
type Page[T any] struct {
	Data    []T  `json:"data"`
	HasMore bool `json:"has_more"`
}

// All reads all pages of a list. itemID returns the id of an item. The id of the last item is the
// cursor of the next page.
func All[T any](ctx context.Context, c *Client, path string, query url.Values, itemID func(T) string) ([]T, error) {
	var all []T
	q := url.Values{"limit": {"100"}}
	for k, v := range query {
		q[k] = v
	}
	for {
		var p Page[T]
		if err := c.Into(ctx, "GET", path+"?"+q.Encode(), nil, 200, &p); err != nil {
			return nil, err
		}
		all = append(all, p.Data...)
		if !p.HasMore {
			return all, nil
		}
		q.Set("starting_after", itemID(p.Data[len(p.Data)-1]))
	}
}

// LogLine is one line of the simulated carrier's log.
type LogLine struct {
	Seq    int64     `json:"seq"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	CallID string    `json:"call_id"`
	From   string    `json:"from"`
	To     string    `json:"to"`
}

// CarrierLog returns the whole log of the simulated carrier.
func (s *Stack) CarrierLog(ctx context.Context) ([]LogLine, error) {
	sim := NewClient(s.Demo.SimURL, "")
	var all []LogLine
	var after int64
	for {
		var p Page[LogLine]
		if err := sim.Into(ctx, "GET", fmt.Sprintf("/log?after=%d", after), nil, 200, &p); err != nil {
			return nil, err
		}
		if len(p.Data) == 0 {
			return all, nil
		}
		all = append(all, p.Data...)
		after = p.Data[len(p.Data)-1].Seq
	}
}

// ErrNoShell is returned if curl or jq is not installed.
var ErrNoShell = errors.New("the first call needs curl and jq")

// FirstCall runs the commands of the first call in the documentation, with base, admin and token in
// place of the addresses and the operator token. It returns the output when the call request is
// completed. root is the root of the repository.
func FirstCall(ctx context.Context, root, base, admin, token string) (output string, err error) {
	for _, program := range []string{"curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", ErrNoShell
		}
	}
	blocks, err := PageBlocks(root, FirstCallTest)
	if err != nil {
		return "", err
	}
	var block string
	for _, b := range blocks {
		block += b.Text
	}
	const asks = "ask $key $url/v1/call-requests\n"
	block, starts := strings.CutPrefix(block, "docker compose up --wait\n")
	if !starts || !strings.HasSuffix(block, asks) {
		return "", fmt.Errorf("%s does not start the services, or does not end with %s", blocks[0], asks)
	}
	for _, place := range []struct{ from, to string }{{"http://localhost:18081", admin}, {"http://localhost:18080",
		base}, {"example-operator-token", token}} {
		if !strings.Contains(block, place.from) {
			return "", fmt.Errorf("%s does not name %s", blocks[0], place.from)
		}
		block = strings.ReplaceAll(block, place.from, place.to)
	}
	until := `for i in $(seq 150); do ` + strings.TrimSpace(asks) + ` | jq -r '.data[0].status' | grep -x completed && exit; sleep 0.2; done; exit 1`
	out, err := exec.CommandContext(ctx, "sh", "-euc", block+until).CombinedOutput()
	if err == nil && !strings.Contains(string(out), `"status":"queued"`) {
		err = errors.New("nothing was queued")
	}
	return string(out), err
}
