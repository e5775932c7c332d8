package mediaws

import (
	"testing"

	"ringfence.dev/services/dialer/internal/agent"
)

// No message of the agent may cause a panic. The size of the audio and text in the events must be
// limited by the size of the message.
func FuzzAgentMessage(f *testing.F) {
	for _, seed := range []string{
		`{"event":"media","media":{"payload":"//8="}}`, `{"event":"media","media":{"payload":7}}`, `{"event":"mark"}`, `{"event":"mark","mark":{"name":"x"}}`,
		`{"event":"clear"}`, `{"event":"hangup"}`, `{"event":"transcript","transcript":{"role":"agent","text":"\ud800"}}`,
		`{"event":"tool","tool":{"id":"1","name":"end_call","args":[1]}}`, `[]`, `{"event":{}}`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := newSession(agent.Spec{})
		m, err := decode(text)
		if err != nil {
			return
		}
		_ = s.take(m)
		close(s.events)
		for e := range s.events {
			switch {
			case len(e.Audio) > len(text):
				t.Errorf("length of e.Audio = %v, want at most %v", len(e.Audio), len(text))
			case len(e.Text) > 3*len(text):
				t.Errorf("length of e.Text = %v, want at most %v", len(e.Text), 3*len(text))
			case len(e.Args) > len(text):
				t.Errorf("length of e.Args = %v, want at most %v", len(e.Args), len(text))
			}
		}
	})
}
