package asterisk_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// turn is what one party said without a change of speaker.
type turn struct{ Role, Text string }

// checkTranscript compares the transcript of a call with Asterisk's recordings. It returns false if
// no comparison is possible: the phone did not answer, or the killed dialer lost the transcript.
func (s *trial) checkTranscript(t *testing.T, p *phone, killed bool) bool {
	t.Helper()
	agent, err := os.ReadFile(s.file(p, "agent"))
	if os.IsNotExist(err) {
		return false
	}
	person, personErr := os.ReadFile(s.file(p, "person"))
	if err := errors.Join(err, personErr); err != nil {
		t.Fatal(err)
	}
	var call struct {
		Status      string
		HangupCause *string `json:"hangup_cause"`
		Outcome     *string // the dialer publishes the outcome together with the transcript
		Transcript  struct{ Turns []turn }
	}
	path := "/v1/calls/" + sharedstack.Value(p.finished.CallID)
	what := "the transcript of " + p.number
	err = kit.Until(context.WithoutCancel(t.Context()), kit.HangTimeout, what, func() (bool, error) {
		err := s.house.API.Into(t.Context(), "GET", path, nil, http.StatusOK, &call)
		return call.Status != "completed" || call.Outcome != nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if call.Status != "completed" && killed {
		return false
	}
	if call.Status != "completed" {
		t.Errorf("%s: status of the call = %q with hangup cause %q and error code %q, want %q, because the phone answered",
			p.number, call.Status, sharedstack.Value(call.HangupCause), sharedstack.Value(p.finished.ErrorCode), "completed")
		return false
	}
	s.checkAgent(t, p, call.Transcript.Turns, agent)
	s.checkPerson(t, p, call.Transcript.Turns, person)
	return true
}

func (s *trial) checkAgent(t *testing.T, p *phone, turns []turn, recording []byte) {
	t.Helper()
	kept, last := map[string]string{}, -1
	texts := append(slices.Collect(maps.Values(modelAnswers)), aiDisclosure, p.greeting, goodbye)
	for _, utterance := range turns {
		if utterance.Role != "agent" {
			continue
		}
		part := strings.TrimSuffix(utterance.Text, cutMark)
		i := slices.IndexFunc(texts, func(text string) bool { return strings.HasPrefix(text, part) })
		if i < 0 {
			t.Errorf("%s: the transcript contains %q, which the agent did not say", p.number, utterance.Text)
			continue
		}
		if _, twice := kept[texts[i]]; twice {
			t.Errorf("%s: the transcript contains %q twice", p.number, texts[i])
		}
		kept[texts[i]] = part
		found := s.findAudio(t, texts[i], recording)
		if found.first >= 0 && found.first <= last {
			t.Errorf("%s: first sample of %q in the recording = %d, want one after %d, as in the transcript",
				p.number, part, found.first, last)
		}
		last = max(last, found.first)
	}
	for _, text := range texts {
		found, want := s.findAudio(t, text, recording), time.Duration(len(kept[text]))*letterDuration
		if got := found.end; (got - want).Abs() > tolerance(text, kept[text]) {
			t.Errorf("%s: recording of %q = %v, want %v, because the transcript contains %q",
				p.number, text, got, want, kept[text])
		}
		s.gap = max(s.gap, found.gap)
		if got := found.gap; got > maxGap {
			t.Errorf("%s: longest part inside of %q that the recording lacks = %v, want at most %v", p.number, text, got, maxGap)
		}
		if !found.ordered {
			t.Errorf("%s: the frames of %q in the recording are not in order", p.number, text)
		}
	}
}

// tolerance returns the permitted difference between a recording and a transcript. Packets that
// arrive while the phone hangs up can cause a difference. A transcript is cut between words, so an
// interrupted turn can differ by one word.
func tolerance(text, kept string) time.Duration {
	const packets = 200 * time.Millisecond
	if text == kept {
		return packets
	}
	next := strings.TrimSpace(strings.TrimPrefix(text, kept))
	word, _, _ := strings.Cut(next, " ")
	return packets + time.Duration(len(word)+1)*letterDuration
}

func (s *trial) checkPerson(t *testing.T, p *phone, turns []turn, recording []byte) {
	t.Helper()
	var got, want []string
	for _, utterance := range turns {
		if utterance.Role == "person" {
			got = append(got, utterance.Text)
		}
	}
	for _, text := range p.texts {
		if s.findAudio(t, text, recording).end > time.Duration(len(text))*letterDuration/2 {
			want = append(want, text)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: turns of the person (-recording +transcript):\n%s", p.number, diff)
	}
}

// maxGap is the longest permitted gap in a turn. Asterisk drops frames on a busy machine. The
// agent's words are longer than maxGap, except "I".
const maxGap = 100 * time.Millisecond

// foundAudio is the part of a text's audio that a recording contains.
type foundAudio struct {
	// end is the position in the text's audio up to which the recording contains the audio.
	end time.Duration
	// first is the index of the recording's sample at which the audio begins, or -1.
	first int
	// gap is the longest part of the audio before end that is missing in the recording.
	gap     time.Duration
	ordered bool
}

// The audio of each text is different noise, so findAudio can search the recording for each frame.
func (s *trial) findAudio(t *testing.T, text string, recording []byte) foundAudio {
	t.Helper()
	const frame = 160
	audio := s.voice(t, text)
	frames := map[uint64]int{}
	for at := 0; at+frame <= len(audio); at += frame {
		frames[signs(audio[at:at+64])] = at
	}
	var key uint64
	has, of := map[int]bool{}, foundAudio{first: -1, ordered: true}
	last := -1
	for i, sample := range recording {
		key = key<<1 | uint64(sample>>7)
		at, known := frames[key]
		start := i - 63
		if !known || start < 0 || start+frame > len(recording) {
			continue
		}
		if !signsCorrelate(audio[at:at+frame], recording[start:start+frame]) {
			continue
		}
		delete(frames, key)
		has[at] = true
		of.ordered = of.ordered && at > last
		last = max(last, at)
		if of.first < 0 {
			of.first = start
		}
	}
	if last < 0 {
		return of
	}
	missing := 0
	for at := 0; at <= last; at += frame {
		if missing += frame; has[at] {
			missing = 0
		}
		of.gap = max(of.gap, duration(missing))
	}
	of.end = duration(last + frame)
	return of
}

func duration(bytes int) time.Duration { return time.Duration(bytes) * time.Second / 8000 }

func signs(audio []byte) (key uint64) {
	for _, sample := range audio {
		key = key<<1 | uint64(sample>>7)
	}
	return key
}

// signsCorrelate reports whether the correlation of the signs of the samples is at least 0.9.
func signsCorrelate(a, b []byte) bool {
	same := 0
	for i := range a {
		if a[i]>>7 == b[i]>>7 {
			same++
		}
	}
	return 2*same-len(a) >= len(a)*9/10
}
