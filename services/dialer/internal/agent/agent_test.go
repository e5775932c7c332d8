package agent_test

import (
	"context"
	"errors"
	"testing"

	"ringfence.dev/services/dialer/internal/agent"
)

type refusing struct{ err error }

func (r refusing) Open(context.Context, agent.Spec) (agent.Session, error) { return nil, r.err }

func TestOpeners_OpenByKind(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	openers := agent.Openers{agent.Scripted: refusing{first}, agent.Realtime: refusing{second}}
	for kind, want := range map[string]error{"": first, agent.Scripted: first, agent.Realtime: second} {
		if _, err := openers.Open(t.Context(), agent.Spec{Settings: agent.Settings{Kind: kind}}); !errors.Is(err, want) {
			t.Errorf("%q was opened by %v, want %v", kind, err, want)
		}
	}
	if _, err := openers.Open(t.Context(), agent.Spec{Settings: agent.Settings{Kind: agent.MediaWS}}); err == nil {
		t.Error("a kind that is not there was opened")
	}
}
