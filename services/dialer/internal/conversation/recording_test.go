package conversation

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.dev/services/dialer/internal/agent"
)

type memoryRecorder struct{ person, agent []byte }

func (r *memoryRecorder) Tick(person, agentAudio []byte) {
	r.person, r.agent = append(r.person, person...), append(r.agent, agentAudio...)
}

type notices struct{ noticed, objected atomic.Int32 }

func recorded(t *testing.T, test func(*conversationTest, *notices, *memoryRecorder)) {
	t.Helper()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		sessionCalls, into := &notices{}, &memoryRecorder{}
		k.settings.Noticed = func() { sessionCalls.noticed.Add(1); k.Record(into) }
		k.settings.Objected = func() { sessionCalls.objected.Add(1); k.fakeSession.note("objected") }
		test(k, sessionCalls, into)
	})
}

func TestRecording_StartsAfterTheNotice(t *testing.T) {
	t.Parallel()
	recorded(t, func(k *conversationTest, sessionCalls *notices, into *memoryRecorder) {
		k.send(
			agent.Event{Kind: agent.Audio, Item: "disclosure", Audio: tone(time.Second), Keep: true},
			agent.Event{Kind: agent.ItemDone, Item: "disclosure"},
			agent.Event{Kind: agent.Noticed, Item: "disclosure"},
		)
		k.speak("greeting", time.Second)
		k.pass(900 * time.Millisecond)
		// A barge-in must discard the queued greeting, but not the notice.
		k.send(agent.Event{Kind: agent.SpeechStarted, Item: "p"})
		k.pass(60 * time.Millisecond)
		if sessionCalls.noticed.Load() != 0 {
			t.Error("recorded audio before the end of the notice")
		}
		k.pass(100 * time.Millisecond)
		if sessionCalls.noticed.Load() != 1 {
			t.Errorf("calls of Noticed = %d, want 1", sessionCalls.noticed.Load())
		}
		if played := k.fakeSession.soFar().played; slices.ContainsFunc(
			played,
			func(item string) bool { return item != "disclosure" },
		) {
			t.Errorf("items reported as played = %q", played)
		}
		k.send(agent.Event{Kind: agent.Noticed, Item: "disclosure"})
		k.pass(time.Second)
		switch {
		case sessionCalls.noticed.Load() != 1:
			t.Errorf("calls of Noticed = %v, want 1", sessionCalls.noticed.Load())
		case len(into.agent) == 0:
			t.Error("length of recorded audio of the agent = 0, want another value")
		case len(into.agent) != len(into.person):
			t.Errorf("length of recorded audio of the agent = %v, want %v", len(into.agent), len(into.person))
		}
	})
}

func TestRecording_DoesNotStartAfterAnInterruptedNotice(t *testing.T) {
	t.Parallel()
	recorded(t, func(k *conversationTest, sessionCalls *notices, _ *memoryRecorder) {
		notice := func(item string) {
			k.speak(item, time.Second)
			k.send(agent.Event{Kind: agent.Noticed, Item: item})
		}
		notice("1") // this agent does not set Keep, so the notice can be interrupted
		k.pass(500 * time.Millisecond)
		k.send(agent.Event{Kind: agent.SpeechStarted, Item: "p"})
		k.pass(2 * time.Second)
		if sessionCalls.noticed.Load() != 0 {
			t.Error("Noticed was called for a cut notice")
		}
		notice("2")
		k.pass(2 * time.Second)
		if sessionCalls.noticed.Load() != 1 {
			t.Error("Noticed was not called for the repeated notice")
		}
	})
}

func TestRecording_EndsAfterAnObjection(t *testing.T) {
	t.Parallel()
	for name, object := range map[string]func(*conversationTest){
		"agent calls stop_recording": func(k *conversationTest) { k.tool(agent.ToolStopRecording, "{}") },
		"person objects in words": func(k *conversationTest) {
			k.send(agent.Event{
				Kind: agent.Utterance, Role: agent.RolePerson, Item: "p",
				Text: "Well, I don’t want to be recorded.",
			})
		},
	} {
		recorded(t, func(k *conversationTest, sessionCalls *notices, into *memoryRecorder) {
			k.speak("notice", 100*time.Millisecond)
			k.send(agent.Event{Kind: agent.Noticed, Item: "notice"})
			k.pass(time.Second)
			before := len(into.agent)
			object(k)
			object(k)
			k.pass(time.Second)
			switch {
			case sessionCalls.objected.Load() != 1:
				t.Errorf("%s: calls of Objected = %v, want 1", name, sessionCalls.objected.Load())
			case before == 0:
				t.Errorf("%s: before = 0, want another value", name)
			case len(into.agent) != before:
				t.Errorf("%s: length of recorded audio of the agent = %v, want %v", name, len(into.agent), before)
			}
			if result := k.fakeSession.soFar(); name == "agent calls stop_recording" &&
				slices.Index(result.calls, "objected") > slices.Index(result.calls, "result "+agent.ToolStopRecording) {
				t.Errorf("%s: tool result before the end of the recording: %v", name, result.calls)
			}
		})
	}
	// The person objects before the notice was played.
	recorded(t, func(k *conversationTest, sessionCalls *notices, _ *memoryRecorder) {
		k.speak("notice", time.Second)
		k.send(
			agent.Event{Kind: agent.Noticed, Item: "notice"},
			agent.Event{Kind: agent.Utterance, Role: agent.RolePerson, Text: "Bitte nicht aufzeichnen!"},
		)
		k.pass(2 * time.Second)
		if sessionCalls.noticed.Load() != 0 {
			t.Errorf("calls of Noticed = %v, want 0", sessionCalls.noticed.Load())
		} else if sessionCalls.objected.Load() != 1 {
			t.Errorf("calls of Objected = %v, want 1", sessionCalls.objected.Load())
		}
	})
	recorded(t, func(k *conversationTest, sessionCalls *notices, _ *memoryRecorder) {
		k.send(agent.Event{Kind: agent.Utterance, Role: agent.RoleAgent, Text: "I can stop recording if you like."})
		if sessionCalls.objected.Load() != 0 {
			t.Error("words of the agent ended the recording")
		}
	})
}

func TestRecording_BothSidesAreSynchronous(t *testing.T) {
	t.Parallel()
	recorded(t, func(k *conversationTest, _ *notices, _ *memoryRecorder) {
		into := &memoryRecorder{}
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
		if duration := agent.Duration(last - first); duration < 1400*time.Millisecond {
			t.Errorf("duration = %v, want at least %v", duration, 1400*time.Millisecond)
		} else if duration > 1600*time.Millisecond {
			t.Errorf("duration = %v, want at most %v", duration, 1600*time.Millisecond)
		}
		heard := agent.Duration(bytes.IndexByte(into.person, 0x20) - first)
		if heard < 950*time.Millisecond {
			t.Errorf("heard = %v, want at least %v", heard, 950*time.Millisecond)
		} else if heard > 1100*time.Millisecond {
			t.Errorf("heard = %v, want at most %v", heard, 1100*time.Millisecond)
		}
		if len(into.agent) != len(into.person) {
			t.Errorf("length of recorded audio of the agent = %d, want %d", len(into.agent), len(into.person))
		} else if len(into.agent)%160 != 0 {
			t.Errorf("bytes after the last whole frame = %v, want 0", len(into.agent)%160)
		}
	})
}
