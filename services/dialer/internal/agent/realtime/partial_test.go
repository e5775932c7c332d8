package realtime_test

import (
	"encoding/base64"
	"testing"
	"time"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
)

func TestSession_EmitsTheTextOfAnIncompleteItem(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.RealtimeOptions{})
	l := open(t, server, agent.Settings{})
	l.Begin()
	l.wait(agent.TurnDone, 2)
	utterances, played := len(l.all(agent.Utterance)), len(l.all(agent.Audio))
	audio := base64.StdEncoding.EncodeToString(make([]byte, agent.FrameBytes))
	server.Inject([]byte(`{"type":"response.output_audio_transcript.delta","item_id":"item-x","delta":"We are "}`))
	server.Inject([]byte(`{"type":"response.output_audio_transcript.delta","item_id":"item-x","delta":"calling"}`))
	server.Inject([]byte(`{"type":"response.output_audio.delta","item_id":"item-x","delta":"` + audio + `"}`))
	l.wait(agent.Audio, played+1)
	l.Close()
	last := l.wait(agent.Utterance, utterances+1)
	if last.Item != "item-x" {
		t.Errorf("item = %q, want %q", last.Item, "item-x")
	}
	if want := "We are calling"; last.Text != want {
		t.Errorf("text = %q, want %q", last.Text, want)
	}
	select {
	case <-l.ended:
	case <-time.After(testkit.Timeout):
		t.Fatal("the session did not close its events")
	}
}

func TestDisclosure_AudioIsMarkedAsDisclosure(t *testing.T) {
	t.Parallel()
	server := serve(t, modeltest.RealtimeOptions{})
	l := open(t, server, agent.Settings{Greeting: "Good day."})
	l.Begin()
	disclosed := l.wait(agent.Disclosed, 1)
	l.wait(agent.TurnDone, 2)
	if got := len(l.all(agent.Disclosed)); got != 1 {
		t.Errorf("disclosed events = %d, want 1", got)
	}
	if want := l.all(agent.Utterance)[0].Item; disclosed.Item != want {
		t.Errorf("disclosed item = %q, want %q", disclosed.Item, want)
	}
	for _, e := range l.all(agent.Audio) {
		if want := e.Item == disclosed.Item; e.Disclosure != want {
			t.Errorf("audio of %s: Disclosure = %v, want %v", e.Item, e.Disclosure, want)
		}
	}
}
