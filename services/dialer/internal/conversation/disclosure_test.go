package conversation

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/services/dialer/internal/agent"
)

// In these tests, the agent speaks one word per second.
const (
	disclosureWords = "Hello, this is an AI. We record."
	greetingWords   = "Good day Ms Smith."
	// firstFrame is the time from the start of the conversation to its first frame.
	firstFrame = 20 * time.Millisecond
)

// speakWords sends all audio of the text at once, as a real model does, and then the text.
func (k *conversationTest) speakWords(item, text string, disclosure bool) {
	k.send(
		agent.Event{
			Kind: agent.Audio, Item: item, Audio: tone(time.Duration(len(strings.Fields(text))) * time.Second),
			Keep: disclosure, Disclosure: disclosure,
		},
		agent.Event{Kind: agent.ItemDone, Item: item},
		agent.Event{Kind: agent.Utterance, Role: agent.RoleAgent, Item: item, Text: text},
	)
	if disclosure {
		k.send(agent.Event{Kind: agent.Disclosed, Item: item})
	}
	k.send(agent.Event{Kind: agent.TurnDone})
}

func turnTexts(turns []agent.Turn) (texts []string) {
	for _, turn := range turns {
		texts = append(texts, turn.Text)
	}
	return texts
}

// The agent sends all audio and text before the first word is played. The transcript must contain
// only the words that were played.
func TestTranscript_EndsWhereThePersonHungUp(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		after time.Duration
		want  []string
		// Expected times in the record of the disclosure. Zero means that the record must not contain the
		// time.
		started, finished, cut time.Duration
	}{
		{name: "hangup before the first frame"},
		{name: "hangup in the first word", after: 500 * time.Millisecond, started: firstFrame, cut: 500 * time.Millisecond},
		{
			name: "hangup in the disclosure", after: 3500 * time.Millisecond, want: []string{"Hello, this is –"},
			started: firstFrame, cut: 3500 * time.Millisecond,
		},
		{
			name: "hangup in the notice", after: 6500 * time.Millisecond, want: []string{"Hello, this is an AI. We –"},
			started: firstFrame, cut: 6500 * time.Millisecond,
		},
		{
			name: "hangup in the first word of the greeting", after: 7500 * time.Millisecond, want: []string{disclosureWords},
			started: firstFrame, finished: 7 * time.Second,
		},
		{
			name: "hangup in the greeting", after: 9200 * time.Millisecond, want: []string{disclosureWords, "Good day –"},
			started: firstFrame, finished: 7 * time.Second,
		},
		{
			name: "hangup after the greeting", after: 12 * time.Second, want: []string{disclosureWords, greetingWords},
			started: firstFrame, finished: 7 * time.Second,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			converse(t, agent.Settings{}, func(k *conversationTest) {
				k.settings.Disclosure = disclosureWords
				begun := time.Now()
				k.speakWords("1", disclosureWords, true)
				k.speakWords("2", greetingWords, false)
				k.pass(test.after)
				k.hangUp()
				<-k.over
				heard := k.heardAudio()
				k.pass(5 * time.Second)
				if got := k.heardAudio(); got != heard {
					t.Errorf("audio sent after the end = %v, want 0s", got-heard)
				}
				if diff := cmp.Diff(test.want, turnTexts(k.result.Turns)); diff != "" {
					t.Errorf("transcript (-want +got):\n%s", diff)
				}
				want := &agent.DisclosureRecord{
					Text: disclosureWords, StartedAt: after(begun, test.started),
					FinishedAt: after(begun, test.finished), CutAt: after(begun, test.cut),
				}
				if diff := cmp.Diff(want, k.result.Disclosure); diff != "" {
					t.Errorf("disclosure (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// During a part of the call, the operating system refuses the agent's packets.
func TestTranscript_ExcludesFramesThatWereNotSent(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		from, to     time.Duration // no frame is sent in this period
		want         []string
		started, cut time.Duration
	}{
		{name: "no frame is sent", to: 20 * time.Second},
		{
			name: "first second is not sent", to: time.Second, want: []string{"Hello, this is an AI. We –", greetingWords},
			started: time.Second + firstFrame, cut: 7 * time.Second,
		},
		{
			name: "one second of the disclosure is not sent", from: 2 * time.Second, to: 3 * time.Second,
			want: []string{"Hello, this is an AI. We –", greetingWords}, started: firstFrame, cut: 7 * time.Second,
		},
		{
			name: "nothing is sent after 3.5 s", from: 3500 * time.Millisecond, to: 20 * time.Second,
			want:    []string{"Hello, this is –"},
			started: firstFrame, cut: 3500 * time.Millisecond,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			converse(t, agent.Settings{}, func(k *conversationTest) {
				k.settings.Disclosure = disclosureWords
				begun := time.Now()
				k.fails.Store(test.from == 0)
				k.speakWords("1", disclosureWords, true)
				k.speakWords("2", greetingWords, false)
				k.pass(test.from)
				k.fails.Store(true)
				k.pass(test.to - test.from)
				k.fails.Store(false)
				k.pass(12 * time.Second)
				k.hangUp()
				<-k.over
				if diff := cmp.Diff(test.want, turnTexts(k.result.Turns)); diff != "" {
					t.Errorf("transcript (-want +got):\n%s", diff)
				}
				want := &agent.DisclosureRecord{
					Text: disclosureWords, StartedAt: after(begun, test.started), CutAt: after(begun, test.cut),
				}
				if diff := cmp.Diff(want, k.result.Disclosure); diff != "" {
					t.Errorf("disclosure (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func after(begun time.Time, d time.Duration) *time.Time {
	if d == 0 {
		return nil
	}
	at := begun.Add(d)
	return &at
}

func TestTranscript_ContainsTheTimesAtWhichAudioWasPlayed(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		begun := time.Now()
		k.speakWords("1", disclosureWords, true)
		k.speakWords("2", greetingWords, false)
		k.pass(9 * time.Second)
		k.hangUp()
		<-k.over
		var got []time.Duration
		for _, turn := range k.result.Turns {
			got = append(got, turn.At.Sub(begun), turn.EndedAt.Sub(begun))
		}
		want := []time.Duration{
			firstFrame, 7 * time.Second,
			7020 * time.Millisecond, 9 * time.Second,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("times of the turns (-want +got):\n%s", diff)
		}
	})
}

// The person hangs up while the model is still sending an item. All of its text has arrived, but
// most of its audio has not.
func TestTranscript_ShortensTheTextOfAnIncompleteItem(t *testing.T) {
	t.Parallel()
	const text = "This sentence is so long that nobody can say it in one second."
	converse(t, agent.Settings{}, func(k *conversationTest) {
		k.send(
			agent.Event{Kind: agent.Audio, Item: "1", Audio: tone(time.Second)},
			agent.Event{Kind: agent.Utterance, Role: agent.RoleAgent, Item: "1", Text: text},
		)
		k.pass(2 * time.Second)
		k.hangUp()
		<-k.over
		if diff := cmp.Diff([]string{"This sentence is so –"}, turnTexts(k.result.Turns)); diff != "" {
			t.Errorf("transcript (-want +got):\n%s", diff)
		}
	})
}

func TestTranscript_OmitsTextWhoseAudioWasNotSent(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		k.send(agent.Event{Kind: agent.Utterance, Role: agent.RoleAgent, Item: "1", Text: "Never spoken."})
		k.pass(time.Second)
		k.hangUp()
		<-k.over
		if len(k.result.Turns) != 0 {
			t.Errorf("turns = %v, want none", k.result.Turns)
		}
	})
}

// An agent of kind media_ws sends a mark after the disclosure. Without this mark, there must be no
// record of the disclosure.
func TestDisclosure_RecordNeedsTheMarkOfAMediaWSAgent(t *testing.T) {
	t.Parallel()
	for _, marks := range []bool{true, false} {
		converse(t, agent.Settings{Kind: agent.MediaWS}, func(k *conversationTest) {
			k.settings.Disclosure = disclosureWords
			k.speak("0", time.Second)
			if marks {
				k.send(agent.Event{Kind: agent.Disclosed, Item: "0"})
			}
			k.pass(2 * time.Second)
			k.hangUp()
			<-k.over
			record := k.result.Disclosure
			if got := record != nil; got != marks {
				t.Fatalf("record with mark %v = %v, want %v", marks, got, marks)
			}
			if marks && record.FinishedAt == nil {
				t.Error("FinishedAt = nil, want a time")
			}
		})
	}
}

func TestDisclosure_ReportsATranscriptThatDiffersFromTheText(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, spoken, want string }{
		{name: "the same words", spoken: "Hello this is an A.I.; we record."},
		{name: "other words", spoken: "Hello, this is Ann.", want: "Hello, this is Ann."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			converse(t, agent.Settings{}, func(k *conversationTest) {
				k.settings.Disclosure = disclosureWords
				k.speakWords("1", test.spoken, true)
				k.speakWords("2", greetingWords, false)
				k.pass(15 * time.Second)
				k.hangUp()
				<-k.over
				if got := k.result.Reworded; got != test.want {
					t.Errorf("Result.Reworded = %q, want %q", got, test.want)
				}
			})
		})
	}
}

func TestDisclosure_HasNoRecordIfTurnedOff(t *testing.T) {
	t.Parallel()
	converse(t, agent.Settings{}, func(k *conversationTest) {
		k.speak("1", time.Second)
		k.pass(2 * time.Second)
		k.hangUp()
		<-k.over
		if k.result.Disclosure != nil {
			t.Errorf("Result.Disclosure = %v, want nil", k.result.Disclosure)
		}
	})
}
