package conversation

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

// reel is a recorder in memory.
type reel struct{ person, agent []byte }

func (r *reel) Tick(person, said []byte) {
	r.person, r.agent = append(r.person, person...), append(r.agent, said...)
}

// told says what the person has been told and has said about a recording.
type told struct{ noticed, objected atomic.Int32 }

func recorded(t *testing.T, test func(*bridgeTalk, *told, *reel)) {
	t.Helper()
	converse(t, agent.Settings{}, func(k *bridgeTalk) {
		seen, into := &told{}, &reel{}
		k.settings.Noticed = func() { seen.noticed.Add(1); k.Record(into) }
		k.settings.Objected = func() { seen.objected.Add(1); k.fake.note("objected") }
		test(k, seen, into)
	})
}

func TestRecording_BeginsWhenTheNoticeWasHeard(t *testing.T) {
	t.Parallel()
	recorded(t, func(k *bridgeTalk, seen *told, into *reel) {
		k.send(agent.Event{Kind: agent.Audio, Item: "disclosure", Audio: tone(time.Second), Keep: true}, agent.Event{Kind: agent.ItemDone, Item: "disclosure"},
			agent.Event{Kind: agent.Noticed, Item: "disclosure"})
		k.speak("greeting", time.Second)
		k.pass(900 * time.Millisecond)
		k.send(agent.Event{Kind: agent.SpeechStarted, Item: "p"}) // a barge-in takes the greeting, and not the notice
		k.pass(60 * time.Millisecond)
		if seen.noticed.Load() != 0 {
			t.Error("recorded before the notice was heard")
		}
		k.pass(100 * time.Millisecond)
		if seen.noticed.Load() != 1 {
			t.Errorf("noticed %d times, want once", seen.noticed.Load())
		}
		if played := k.fake.now().played; slices.ContainsFunc(played, func(item string) bool { return item != "disclosure" }) {
			t.Errorf("the agent was told of %q", played)
		}
		k.send(agent.Event{Kind: agent.Noticed, Item: "disclosure"})
		k.pass(time.Second)
		switch {
		case seen.noticed.Load() != 1:
			t.Errorf("seen.noticed.Load() = %v, want 1", seen.noticed.Load())
		case len(into.agent) == 0:
			t.Error("length of into.agent = 0, want another value")
		case len(into.agent) != len(into.person):
			t.Errorf("length of into.agent = %v, want %v", len(into.agent), len(into.person))
		}
	})
}

func TestRecording_OfANoticeThatWasCutOffNothingComes(t *testing.T) {
	t.Parallel()
	recorded(t, func(k *bridgeTalk, seen *told, _ *reel) {
		notice := func(item string) {
			k.speak(item, time.Second)
			k.send(agent.Event{Kind: agent.Noticed, Item: item})
		}
		notice("1") // of a bot that does not keep what it says
		k.pass(500 * time.Millisecond)
		k.send(agent.Event{Kind: agent.SpeechStarted, Item: "p"})
		k.pass(2 * time.Second)
		if seen.noticed.Load() != 0 {
			t.Error("half a notice counts")
		}
		notice("2")
		k.pass(2 * time.Second)
		if seen.noticed.Load() != 1 {
			t.Error("said again, it does not count")
		}
	})
}

func TestRecording_EndsWhenThePersonObjects(t *testing.T) {
	t.Parallel()
	for name, object := range map[string]func(*bridgeTalk){
		"by the agent's tool": func(k *bridgeTalk) { k.tool(agent.ToolStopRecording, "{}") },
		"in so many words": func(k *bridgeTalk) {
			k.send(agent.Event{Kind: agent.Said, Role: agent.RolePerson, Item: "p", Text: "Well, I don’t want to be recorded."})
		},
	} {
		recorded(t, func(k *bridgeTalk, seen *told, into *reel) {
			k.speak("notice", 100*time.Millisecond)
			k.send(agent.Event{Kind: agent.Noticed, Item: "notice"})
			k.pass(time.Second)
			before := len(into.agent)
			object(k)
			object(k)
			k.pass(time.Second)
			switch {
			case seen.objected.Load() != 1:
				t.Errorf("%s: seen.objected.Load() = %v, want 1", name, seen.objected.Load())
			case before == 0:
				t.Errorf("%s: before = 0, want another value", name)
			case len(into.agent) != before:
				t.Errorf("%s: length of into.agent = %v, want %v", name, len(into.agent), before)
			}
			if result := k.fake.now(); name == "by the agent's tool" && slices.Index(result.told, "objected") > slices.Index(result.told, "result "+agent.ToolStopRecording) {
				t.Errorf("%s: answered before it was done: %v", name, result.told)
			}
		})
	}
	recorded(t, func(k *bridgeTalk, seen *told, _ *reel) { // before the notice was heard
		k.speak("notice", time.Second)
		k.send(agent.Event{Kind: agent.Noticed, Item: "notice"}, agent.Event{Kind: agent.Said, Role: agent.RolePerson, Text: "Bitte nicht aufzeichnen!"})
		k.pass(2 * time.Second)
		if seen.noticed.Load() != 0 {
			t.Errorf("seen.noticed = %v, want 0", seen.noticed.Load())
		} else if seen.objected.Load() != 1 {
			t.Errorf("seen.objected = %v, want 1", seen.objected.Load())
		}
	})
	recorded(t, func(k *bridgeTalk, seen *told, _ *reel) { // the agent's own words are nobody's wish
		k.send(agent.Event{Kind: agent.Said, Role: agent.RoleAgent, Text: "I can stop recording if you like."})
		if seen.objected.Load() != 0 {
			t.Error("the agent objected")
		}
	})
}

func TestRecording_KeepsWhatWasSentAndWhatWasHeardTogether(t *testing.T) {
	t.Parallel()
	recorded(t, func(k *bridgeTalk, _ *told, _ *reel) {
		into := &reel{}
		k.Record(into)
		k.speak("long", 10*time.Second)
		k.pass(time.Second)
		k.hear(500 * time.Millisecond)
		k.send(agent.Event{Kind: agent.SpeechStarted, Item: "p"})
		k.pass(time.Second)
		k.Record(nil)
		k.mu.Lock()
		defer k.mu.Unlock()
		first, last := bytes.IndexByte(into.agent, 0x20), bytes.LastIndexByte(into.agent, 0xa0)
		if said := agent.Duration(last - first); said < 1400*time.Millisecond {
			t.Errorf("Duration: said = %v, want at least %v", said, 1400*time.Millisecond)
		} else if said > 1600*time.Millisecond {
			t.Errorf("Duration: said = %v, want at most %v", said, 1600*time.Millisecond)
		}
		heard := agent.Duration(bytes.IndexByte(into.person, 0x20) - first)
		if heard < 950*time.Millisecond {
			t.Errorf("heard = %v, want at least %v", heard, 950*time.Millisecond)
		} else if heard > 1100*time.Millisecond {
			t.Errorf("heard = %v, want at most %v", heard, 1100*time.Millisecond)
		}
		if len(into.agent) != len(into.person) {
			t.Errorf("length of into.agent = %d, want %d", len(into.agent), len(into.person))
		} else if len(into.agent)%160 != 0 {
			t.Errorf("bytes after the last whole frame = %v, want 0", len(into.agent)%160)
		}
	})
}
