// Package summary summarises ended conversations with a language model, and publishes the analysis
// of calls. It uses any OpenAI-compatible API. If no endpoint is configured, no request is sent.
//
// The transcript contains words of an unknown person. So the request presents the transcript as
// data and offers no tools. From the answer, only values of the right form and outcomes of the
// agent's list are used.
package summary

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/dialer/internal/agent"
)

// Config configures the operator's endpoint. Agents without their own endpoint use it.
type Config struct {
	URL     string        `env:"SUMMARY_URL" help:"Base URL of an OpenAI-compatible API (…/v1), for agents without a summary.base_url. If empty, the calls of these agents get no summary."`
	Key     string        `env:"SUMMARY_KEY" help:"Key for SUMMARY_URL, sent as a bearer token. If empty, no key is sent."`
	Model   string        `env:"SUMMARY_MODEL" help:"Model that summarises calls." envDefault:"gpt-6-luna"`
	Timeout time.Duration `env:"SUMMARY_TIMEOUT" help:"Maximum duration of one request to the model. If a summary takes longer than ANALYSIS_WAIT of the calls service, the event call.completed does not contain it." envDefault:"15s"`
}

const (
	// maxTries is the maximum number of requests for one summary. retryPause is the pause after the
	// first error. Each further error doubles the pause.
	maxTries   = 4
	retryPause = 250 * time.Millisecond
	// maxAnswer is the maximum size of an endpoint's response, in bytes.
	maxAnswer      = 256 << 10
	defaultTimeout = 15 * time.Second
)

// Call is the input of a summary.
type Call struct {
	Settings agent.Settings
	// Key is the workspace's key for its base URL.
	Key   string
	Turns []agent.Turn
	// EndedAt is the end of the call. Zone is the person's time zone; nil means UTC.
	EndedAt time.Time
	Zone    *time.Location
	// Outcome and CallbackAt are the values that were determined during the call. The model cannot
	// change them. If they were not determined, Outcome is empty and CallbackAt is nil.
	Outcome    string
	CallbackAt *time.Time
}

// ErrNone means that no request returned a valid summary.
var ErrNone = errors.New("no summary")

// Summariser requests summaries. It is safe for concurrent use.
type Summariser struct {
	cfg   Config
	guard *ssrf.Guard
	// ownClient connects to the operator's URL. guardedClient connects to the URLs of workspaces.
	ownClient, guardedClient *http.Client
	retryPause               time.Duration
}

// NewSummariser returns a summariser. The SSRF guard checks connections to an agent's
// summary.base_url, but not to the operator's URL. If roots is nil, the system's root certificates
// are used.
func NewSummariser(cfg Config, g *ssrf.Guard, roots *x509.CertPool) *Summariser {
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	return &Summariser{
		cfg: cfg, guard: g, retryPause: retryPause,
		ownClient: newClient(ssrf.Unguarded(5*time.Second), roots), guardedClient: newClient(g.Dialing(5*time.Second), roots),
	}
}

func newClient(dial ssrf.Dialing, roots *x509.CertPool) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: nil, DialContext: dial, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 16 << 10, IdleConnTimeout: 30 * time.Second, MaxIdleConnsPerHost: 8,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// endpoint is a chat completions API of the operator or of a workspace.
type endpoint struct {
	url, key, model string
	client          *http.Client
}

// endpoint returns the endpoint that summarises the call. Its url is empty if there is none. The
// operator's key is sent only to the operator's URL. The SSRF guard checks every URL of a
// workspace.
func (s *Summariser) endpoint(c Call) (endpoint, error) {
	to := endpoint{url: s.cfg.URL, key: s.cfg.Key, model: s.cfg.Model, client: s.ownClient}
	if own := c.Settings.Summary.BaseURL; own != "" {
		checked, err := ssrf.CheckURL(own, "https", s.guard.Reachable)
		if err != nil {
			return endpoint{}, fmt.Errorf("the agent's summary.base_url %w", err)
		}
		to.url, to.key, to.client = checked, c.Key, s.guardedClient
	}
	if c.Settings.Summary.Model != "" {
		to.model = c.Settings.Summary.Model
	}
	if to.url != "" {
		to.url = strings.TrimSuffix(to.url, "/") + "/chat/completions"
	}
	return to, nil
}

// Summarise requests a summary. If there is no endpoint, or if the person said nothing, it sends no
// request and returns nil and no error. It repeats failed requests until ctx ends or maxTries is
// reached.
func (s *Summariser) Summarise(ctx context.Context, c Call) (*agent.Summary, error) {
	to, err := s.endpoint(c)
	if err != nil || to.url == "" || !hasPersonTurn(c.Turns) {
		return nil, err
	}
	step, pause := schema, s.retryPause
	var last error
	for try := range maxTries {
		text, err := s.requestAnswer(ctx, to, c, step)
		var statusErr *statusError
		switch {
		case err == nil:
			summary, err := parseAnswer(text, c)
			if err == nil {
				return summary, nil
			}
			last = err
			continue
		case errors.As(err, &statusErr) && statusErr.formUnsupported && step < plain:
			step++
		case errors.As(err, &statusErr) && !statusErr.retryable:
			return nil, fmt.Errorf("ask for a summary: %w", err)
		case try < maxTries-1:
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("ask for a summary: %w", errors.Join(ctx.Err(), err))
			case <-time.After(pause):
			}
			pause *= 2
		}
		if last = err; ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("%w after %d tries: %w", ErrNone, maxTries, last)
}

func hasPersonTurn(turns []agent.Turn) bool {
	for _, turn := range turns {
		if turn.Role == agent.RolePerson {
			return true
		}
	}
	return false
}

// statusError is an HTTP error status of an endpoint. formUnsupported is true if the endpoint
// possibly does not support the requested form of the answer. retryable is true if another request
// can succeed.
type statusError struct {
	status                     int
	formUnsupported, retryable bool
}

func (r *statusError) Error() string { return fmt.Sprintf("the endpoint answered %d", r.status) }

func (s *Summariser) requestAnswer(ctx context.Context, to endpoint, c Call, step strictness) (string, error) {
	body, err := json.Marshal(newChat(to.model, c, step))
	if err != nil {
		return "", fmt.Errorf("encode the summary request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("create the summary request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if to.key != "" {
		req.Header.Set("Authorization", "Bearer "+to.key)
	}
	resp, err := to.client.Do(req)
	if urlErr := (*url.Error)(nil); errors.As(err, &urlErr) {
		err = urlErr.Err // do not log the URL: a customer's URL can contain a token
	}
	if err != nil {
		return "", fmt.Errorf("request summary: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode != http.StatusOK {
		return "", newStatusError(resp.StatusCode)
	}
	if err != nil {
		return "", fmt.Errorf("read the endpoint's answer: %w", err)
	}
	var reply struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
	}
	if json.Unmarshal(answer, &reply) != nil || len(reply.Choices) == 0 {
		return "", nil // parseAnswer returns an error for an empty text
	}
	return reply.Choices[0].Message.Content, nil
}

func newStatusError(status int) *statusError {
	r := &statusError{status: status}
	switch status {
	case http.StatusBadRequest,
		http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity,
		http.StatusNotImplemented:
		r.formUnsupported = true
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		r.retryable = true
	default:
		r.retryable = status >= 500
	}
	return r
}
