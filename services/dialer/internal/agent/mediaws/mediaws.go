// Package mediaws opens sessions with a customer's own agent over a WebSocket, in the format of
// Media Streams. It connects to the customer's URL with a signed request, sends the person's audio,
// and receives the agent's audio. docs/media-stream-agents.md describes the protocol.
package mediaws

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/signature"
	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/dialer/internal/agent"
)

// Headers of the HTTP request that opens the WebSocket. Package signature defines the header with
// the signature.
const (
	CallHeader = "X-Service-Call-Id"
	userAgent  = "Ringfence-Agents/1.0"
)

// ErrUnsigned means that the workspace has no secret for this agent, so the handshake cannot be
// signed.
var ErrUnsigned = errors.New("the agent has no secret to sign with")

// Opener opens sessions.
type Opener struct {
	client *http.Client
	guard  *ssrf.Guard
	now    func() time.Time
}

// New returns an opener. The SSRF guard checks its connections. If roots is nil, the system's root
// certificates are used.
func New(g *ssrf.Guard, roots *x509.CertPool) *Opener {
	return &Opener{client: agent.NewClient(g.Dialing(5*time.Second), roots), guard: g, now: time.Now}
}

// Signed returns the text that the header X-Service-Signature signs. (In a webhook, this header
// signs the request body.)
func Signed(callID uuid.UUID, url string) []byte { return []byte(callID.String() + "." + url) }

// Open connects to the agent's media URL. Until Begin is called, the agent receives only the id of
// the call.
func (o *Opener) Open(ctx context.Context, spec agent.Spec) (agent.Session, error) {
	url, err := ssrf.CheckURL(spec.Settings.MediaURL, "wss", o.guard.Reachable)
	if err != nil {
		return nil, fmt.Errorf("the agent's media_url %w", err)
	}
	if spec.Key == "" {
		return nil, ErrUnsigned
	}
	header := http.Header{
		signature.Header: {signature.Sign(spec.Key, o.now(), Signed(spec.CallID, url))},
		CallHeader:       {spec.CallID.String()},
		"User-Agent":     {userAgent},
	}
	s := newSession(spec)
	sock, err := agent.Dial(ctx, o.client, url, header, s.encodeAudio)
	if err != nil {
		return nil, err
	}
	s.sock = sock
	s.send(message{Event: "connected", Protocol: "Call", Version: "1.0.0"})
	go s.run()
	return s, nil
}
