// Package realtime opens sessions with a model of the OpenAI Realtime API (GA events). It
// configures the model, converts the model's events to agent.Event, and informs the model which
// audio the person heard.
package realtime

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/dialer/internal/agent"
)

// Config configures the operator's model. Agents without a base_url use the operator's URL and key.
// Agents without a model use the operator's model.
type Config struct {
	URL string `env:"REALTIME_URL" envDefault:"wss://api.openai.com/v1/realtime" help:"WebSocket URL of the Realtime API, for openai_realtime agents without a base_url."`
	Key string `env:"REALTIME_KEY" help:"Key for REALTIME_URL. If empty, openai_realtime agents need their own base_url and key."`
	// AuthHeader is the HTTP header with the key. If it is Authorization, the key is sent as a bearer
	// token. In any other header, such as api-key, the key is the whole value.
	AuthHeader         string `env:"REALTIME_AUTH_HEADER" envDefault:"Authorization" help:"HTTP header that contains the key. In the header Authorization, the key is sent as a bearer token."`
	Model              string `env:"REALTIME_MODEL" envDefault:"gpt-realtime-2.1" help:"Model of openai_realtime agents without a model."`
	TranscriptionModel string `env:"REALTIME_TRANSCRIPTION_MODEL" envDefault:"gpt-transcribe" help:"Model that transcribes the speech of the person."`
}

// ErrUnconfigured means that there is no key for the agent's model: the agent has its own base_url
// but no key, or it uses the operator's URL and REALTIME_KEY is empty.
var ErrUnconfigured = errors.New("no key for the agent's model")

// Opener opens sessions.
type Opener struct {
	cfg   Config
	guard *ssrf.Guard
	// ownClient connects to the operator's URL. guardedClient connects to the URLs of workspaces.
	ownClient, guardedClient *http.Client
	// renewAfter is the age at which a session is replaced by another one.
	renewAfter time.Duration
}

// New returns an opener. The SSRF guard checks connections to an agent's base_url, but not to the
// operator's URL. If roots is nil, the system's root certificates are used.
func New(cfg Config, g *ssrf.Guard, roots *x509.CertPool) *Opener {
	if cfg.AuthHeader == "" {
		cfg.AuthHeader = "Authorization"
	}
	return &Opener{
		cfg: cfg, guard: g, renewAfter: renewAfter,
		ownClient:     agent.NewClient(ssrf.Unguarded(5*time.Second), roots),
		guardedClient: agent.NewClient(g.Dialing(5*time.Second), roots),
	}
}

// Open connects, configures the model, and returns when the model has confirmed the configuration.
// Until Begin is called, the model neither speaks nor receives audio.
func (o *Opener) Open(ctx context.Context, spec agent.Spec) (agent.Session, error) {
	address, header, err := o.address(spec)
	if err != nil {
		return nil, err
	}
	s := newSession(spec, o.cfg.TranscriptionModel, func(ctx context.Context) (*agent.Socket, error) {
		return agent.Dial(ctx, o.client(spec), address, header, appendAudio)
	})
	s.renewAfter = o.renewAfter
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	go s.run(context.WithoutCancel(ctx))
	return s, nil
}

// client returns the HTTP client for the agent's model. The SSRF guard checks every URL of a
// workspace, even if it has the operator's host.
func (o *Opener) client(spec agent.Spec) *http.Client {
	if spec.Settings.BaseURL != "" {
		return o.guardedClient
	}
	return o.ownClient
}

// address returns the URL of the model, and the header with the key. It returns the operator's key
// only with the operator's URL.
func (o *Opener) address(spec agent.Spec) (string, http.Header, error) {
	base, key := o.cfg.URL, o.cfg.Key
	if spec.Settings.BaseURL != "" {
		checked, err := ssrf.CheckURL(spec.Settings.BaseURL, "wss", o.guard.Reachable)
		if err != nil {
			return "", nil, fmt.Errorf("the agent's base_url %w", err)
		}
		base, key = checked, spec.Key
	}
	if key == "" {
		return "", nil, ErrUnconfigured
	}
	parsed, err := url.Parse(base)
	if err != nil {
		return "", nil, fmt.Errorf("read the agent's base_url: %w", err)
	}
	query := parsed.Query()
	model := o.cfg.Model
	if spec.Settings.Model != "" {
		model = spec.Settings.Model
	}
	query.Set("model", model)
	parsed.RawQuery = query.Encode()
	value := key
	if strings.EqualFold(o.cfg.AuthHeader, "Authorization") {
		value = "Bearer " + key
	}
	return parsed.String(), http.Header{http.CanonicalHeaderKey(o.cfg.AuthHeader): {value}}, nil
}
