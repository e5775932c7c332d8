// Package realtime owns the conversation with a model that speaks the OpenAI Realtime protocol (GA events): how it is opened, what the model is told, what its
// events mean, and what it is told of what the person really heard. The line is the bridge's.
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

// Config is the realtime part of the environment: the operator's own model, for agents that name no other.
type Config struct {
	URL string `env:"REALTIME_URL" envDefault:"wss://api.openai.com/v1/realtime" help:"WebSocket of a Realtime API, for agents without a base_url"`
	Key string `env:"REALTIME_KEY" help:"its key; without one agents need a base_url and key of their own"`
	// AuthHeader carries the key: Authorization as a bearer's, any other (api-key) as it is.
	AuthHeader         string `env:"REALTIME_AUTH_HEADER" envDefault:"Authorization" help:"header that carries the key; Authorization: as a bearer token"`
	Model              string `env:"REALTIME_MODEL" envDefault:"gpt-realtime-2.1" help:"model, for agents that name no other"`
	TranscriptionModel string `env:"REALTIME_TRANSCRIPTION_MODEL" envDefault:"gpt-transcribe" help:"model that writes down what the person says"`
}

// ErrUnconfigured says that nobody gave a key.
var ErrUnconfigured = errors.New("no key for the agent's model")

// Opener opens sessions.
type Opener struct {
	cfg   Config
	guard *ssrf.Guard
	// own connects to the operator's URL, guarded to the URLs of workspaces.
	own, guarded *http.Client
	// renew is after what time a session is opened anew.
	renew time.Duration
}

// New returns an Opener. Connections to the base_url of an agent go through the guard. Connections to the
// operator's own URL do not. If roots is nil, the system's root certificates are used.
func New(cfg Config, g *ssrf.Guard, roots *x509.CertPool) *Opener {
	if cfg.AuthHeader == "" {
		cfg.AuthHeader = "Authorization"
	}
	return &Opener{
		cfg: cfg, guard: g, renew: renewAfter,
		own:     agent.NewClient(ssrf.Unguarded(5*time.Second), roots),
		guarded: agent.NewClient(g.Dialing(5*time.Second), roots),
	}
}

// Open connects, tells the model what it is to be, and returns when it has confirmed that. Nothing is said, and nothing heard, before Begin.
func (o *Opener) Open(ctx context.Context, spec agent.Spec) (agent.Session, error) {
	address, header, err := o.address(spec)
	if err != nil {
		return nil, err
	}
	s := newSession(spec, o.cfg.TranscriptionModel, func(ctx context.Context) (*agent.Socket, error) {
		return agent.Dial(ctx, o.client(spec), address, header, appendAudio)
	})
	s.renewAfter = o.renew
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	go s.run(context.WithoutCancel(ctx))
	return s, nil
}

// client returns the HTTP client for the agent's URL. The guard judges every URL of a workspace, even if it
// has the operator's host.
func (o *Opener) client(spec agent.Spec) *http.Client {
	if spec.Settings.BaseURL != "" {
		return o.guarded
	}
	return o.own
}

// address is where the model is, and the header with the key. The operator's key goes to the operator's host alone.
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
