// Package live opens sessions with a model of OpenAI's Live API (GPT-Live). The package is
// experimental: the API is new, and the package was tested only against a fake server.
//
// The model listens and speaks at the same time. It sends audio continuously and in real time,
// including silence, and decides itself when it speaks. The API has no event for the end of an
// utterance, so the session detects utterances by the loudness of the audio. The session measures
// time by the length of the received audio.
package live

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/dialer/internal/agent"
)

// Config configures the operator's models, which agents without a base_url use.
type Config struct {
	URL          string `env:"LIVE_URL" envDefault:"wss://api.openai.com/v1/live/sessions" help:"WebSocket URL of the Live API, for openai_live agents (experimental) without a base_url."`
	Key          string `env:"LIVE_KEY" help:"Key for LIVE_URL, sent as a bearer token. If empty, openai_live agents need their own base_url and key."`
	Model        string `env:"LIVE_MODEL" envDefault:"gpt-live-1" help:"Voice model of openai_live agents without a model."`
	BackendModel string `env:"LIVE_BACKEND_MODEL" envDefault:"gpt-6-luna" help:"Model that calls the tools of openai_live agents."`
}

// ErrUnconfigured is returned for an agent without a base_url if LIVE_KEY is empty.
var ErrUnconfigured = errors.New("no key for the agent's model")

// Opener opens sessions.
type Opener struct {
	cfg   Config
	guard *ssrf.Guard
	log   *slog.Logger
	// ownClient connects to the operator's URL. guardedClient connects to the URLs of workspaces.
	ownClient, guardedClient *http.Client
}

// New returns an opener. The SSRF guard checks connections to an agent's base_url, but not to
// cfg.URL. If roots is nil, the system's root certificates are used.
func New(cfg Config, g *ssrf.Guard, roots *x509.CertPool, log *slog.Logger) *Opener {
	return &Opener{
		cfg: cfg, guard: g, log: log,
		ownClient:     agent.NewClient(ssrf.Unguarded(5*time.Second), roots),
		guardedClient: agent.NewClient(g.Dialing(5*time.Second), roots),
	}
}

// Open connects to the model and returns when the model has confirmed the session. Until Begin is
// called, the model receives no audio, and its audio is dropped.
func (o *Opener) Open(ctx context.Context, spec agent.Spec) (agent.Session, error) {
	client, address, key, err := o.endpoint(spec)
	if err != nil {
		return nil, err
	}
	o.log.InfoContext(ctx, "experimental agent kind used", "kind", agent.Live, "call_id", spec.CallID,
		"agent_id", spec.AgentID)
	sock, err := agent.Dial(ctx, client, address, http.Header{"Authorization": {"Bearer " + key}}, appendAudio)
	if err != nil {
		return nil, err
	}
	model := o.cfg.Model
	if spec.Settings.Model != "" {
		model = spec.Settings.Model
	}
	s := newSession(spec, sock)
	if err := s.start(ctx, newSessionConfig(spec, model, o.cfg.BackendModel)); err != nil {
		sock.Cut()
		return nil, err
	}
	go s.run()
	return s, nil
}

// endpoint returns the client, the URL and the key for an agent. The operator's key is returned
// only with the operator's URL. The SSRF guard checks every URL of a workspace, even if it has the
// operator's host.
func (o *Opener) endpoint(spec agent.Spec) (client *http.Client, url, key string, err error) {
	client, url, key = o.ownClient, o.cfg.URL, o.cfg.Key
	if spec.Settings.BaseURL != "" {
		client, key = o.guardedClient, spec.Key
		if url, err = ssrf.CheckURL(spec.Settings.BaseURL, "wss", o.guard.Reachable); err != nil {
			return nil, "", "", fmt.Errorf("the agent's base_url %w", err)
		}
	}
	if key == "" {
		return nil, "", "", ErrUnconfigured
	}
	return client, url, key, nil
}
