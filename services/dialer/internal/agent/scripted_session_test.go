package agent_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

func after(wait time.Duration, do func()) func() bool { return time.AfterFunc(wait, do).Stop }

func open(t *testing.T, script agent.Script) agent.Session {
	t.Helper()
	s, err := agent.New(after).Open(t.Context(), agent.Spec{Settings: agent.Settings{Script: script}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSession_PlaysTheScript(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, agent.Script{ToneHz: 440, ToneMillis: 300, EndAfterMillis: 2000})
		select {
		case e := <-s.Events():
			t.Fatalf("event before Begin = %v, want none", e)
		default:
		}
		began := time.Now()
		s.Begin()
		s.Begin() // the second call of Begin must have no effect
		var kinds []agent.Kind
		for e := range s.Events() {
			kinds = append(kinds, e.Kind)
			if e.Kind == agent.Audio && len(e.Audio) != 2400 {
				t.Errorf("tone = %d bytes, want 300 ms", len(e.Audio))
			}
		}
		if want := []agent.Kind{agent.Audio, agent.ItemDone, agent.TurnDone, agent.Closed}; !slices.Equal(kinds, want) {
			t.Errorf("events = %v, want %v", kinds, want)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("duration = %s, want 2s", took)
		}
	})
}

func TestSession_WithoutAScriptIsSilent(t *testing.T) {
	t.Parallel()
	s := open(t, agent.Script{})
	s.Begin()
	for range 20 {
		s.Say("goodbye") // Say must not block, even if no events are read
	}
	s.Close()
	s.Close()
	s.Say("too late")
	n := 0
	for e := range s.Events() {
		if e.Kind == agent.Audio {
			n++
		}
	}
	if n < 1 {
		t.Errorf("n = %v, want at least 1", n)
	} else if n > 3 {
		t.Errorf("n = %v, want at most 3", n)
	}
}

func TestTone_IsMuLaw(t *testing.T) {
	t.Parallel()
	tone := agent.Tone(1000, 20)
	// One period has 8 samples: 0, 5656, 8000 and so on, encoded by ITU-T G.711.
	if want := []byte{0xff, 0xa9, 0xa0, 0xa9}; len(tone) != 160 {
		t.Errorf("length of tone = %d, want 160; tone[:8] = % x", len(tone), tone[:8])
	} else if !slices.Equal(tone[:4], want) {
		t.Errorf("tone[:4] = %v, want %v; tone[:8] = % x", tone[:4], want, tone[:8])
	}
}
