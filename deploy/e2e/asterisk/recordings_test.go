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

	"ringfence.dev/deploy/e2e/rig"
	"ringfence.dev/deploy/e2e/stage"
)

// turn is one of a transcript.
type turn struct{ Role, Text string }

// checkTranscript compares the transcript of a call with the recordings of Asterisk. It returns false if there is
// nothing to compare: the phone did not answer, or the dialer was killed in the call, whose transcript is lost then.
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
		Outcome     *string // published together with the transcript
		Transcript  struct{ Turns []turn }
	}
	path := "/v1/calls/" + stage.Value(p.finished.CallID)
	what := "the transcript of " + p.number
	err = rig.Until(context.WithoutCancel(t.Context()), rig.HangTimeout, what, func() (bool, error) {
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
			p.number, call.Status, stage.Value(call.HangupCause), stage.Value(p.finished.ErrorCode), "completed")
		return false
	}
	s.checkAgent(t, p, call.Transcript.Turns, agent)
	s.checkPerson(t, p, call.Transcript.Turns, person)
	return true
}

// checkAgent compares the turns of the agent with what the phone received.
func (s *trial) checkAgent(t *testing.T, p *phone, turns []turn, recording []byte) {
	t.Helper()
	kept, last := map[string]string{}, -1
	texts := append(slices.Collect(maps.Values(answers)), aiDisclosure, p.greeting, goodbye)
	for _, said := range turns {
		if said.Role != "agent" {
			continue
		}
		part := strings.TrimSuffix(said.Text, cutMark)
		i := slices.IndexFunc(texts, func(text string) bool { return strings.HasPrefix(text, part) })
		if i < 0 {
			t.Errorf("%s: the transcript contains %q, which the agent did not say", p.number, said.Text)
			continue
		}
		if _, twice := kept[texts[i]]; twice {
			t.Errorf("%s: the transcript contains %q twice", p.number, texts[i])
		}
		kept[texts[i]] = part
		if _, first := s.heard(t, texts[i], recording); first >= 0 && first <= last {
			t.Errorf("%s: first sample of %q in the recording = %d, want one after %d, as in the transcript",
				p.number, part, first, last)
		} else if first >= 0 {
			last = first
		}
	}
	for _, text := range texts {
		got, _ := s.heard(t, text, recording)
		want := time.Duration(len(kept[text])) * letter
		if (got - want).Abs() > tolerance(text, kept[text]) {
			t.Errorf("%s: recording of %q = %v, want %v, because the transcript contains %q",
				p.number, text, got, want, kept[text])
		}
	}
}

// tolerance is the difference between a recording and a transcript that is permitted: the packets that arrive while
// the phone hangs up, and a word if the turn was cut, because a transcript is cut between words.
func tolerance(text, kept string) time.Duration {
	const packets = 200 * time.Millisecond
	if text == kept {
		return packets
	}
	next := strings.TrimSpace(strings.TrimPrefix(text, kept))
	word, _, _ := strings.Cut(next, " ")
	return packets + time.Duration(len(word)+1)*letter
}

// checkPerson compares the turns of the person with what the phone sent.
func (s *trial) checkPerson(t *testing.T, p *phone, turns []turn, recording []byte) {
	t.Helper()
	var got, want []string
	for _, said := range turns {
		if said.Role == "person" {
			got = append(got, said.Text)
		}
	}
	for _, text := range p.said {
		if length, _ := s.heard(t, text, recording); length > time.Duration(len(text))*letter/2 {
			want = append(want, text)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: turns of the person (-recording +transcript):\n%s", p.number, diff)
	}
}

// heard returns the position in a text's audio up to which a recording contains it, and the sample of the recording
// at which it begins, or -1. Asterisk drops frames of a recording when it is late, so the position is that of the last
// frame. If a recording lacks more than half of the frames before, it does not contain the text.
func (s *trial) heard(t *testing.T, text string, recording []byte) (reached time.Duration, first int) {
	t.Helper()
	const frame = 160
	audio := s.voice(t, text)
	frames := map[uint64]int{}
	for at := 0; at+frame <= len(audio); at += frame {
		frames[signs(audio[at:at+64])] = at
	}
	var key uint64
	found, end := 0, 0
	first = -1
	for i, sample := range recording {
		key = key<<1 | uint64(sample>>7)
		at, known := frames[key]
		start := i - 63
		if !known || start < 0 || start+frame > len(recording) {
			continue
		}
		if !alike(audio[at:at+frame], recording[start:start+frame]) {
			continue
		}
		delete(frames, key)
		found, end = found+frame, at+frame
		if first < 0 {
			first = start
		}
	}
	if 2*found < end {
		t.Errorf("samples of %q in the recording = %d, want at least half of %d", text, found, end)
	}
	return time.Duration(end) * time.Second / 8000, first
}

func signs(audio []byte) (key uint64) {
	for _, sample := range audio {
		key = key<<1 | uint64(sample>>7)
	}
	return key
}

// alike reports whether the signs of the samples correlate by at least 0.9.
func alike(a, b []byte) bool {
	same := 0
	for i := range a {
		if a[i]>>7 == b[i]>>7 {
			same++
		}
	}
	return 2*same-len(a) >= len(a)*9/10
}
