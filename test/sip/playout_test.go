package sip_test

import (
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// The voice of the model takes 60 ms for each letter of these texts.
const (
	longDisclosure = "Good day, this is an assistant of the energy cooperative, and it is an artificial intelligence."
	longNotice     = "This call is recorded, please say so if you do not agree."
	message        = "Please call us back."
)

type played struct {
	Disclosure *struct {
		Text       string     `json:"text"`
		StartedAt  *time.Time `json:"started_at"`
		FinishedAt *time.Time `json:"finished_at"`
		CutAt      *time.Time `json:"cut_at"`
	} `json:"disclosure"`
	Transcript struct {
		Turns []struct {
			Role, Text string
			At         time.Time
		}
	} `json:"transcript"`
}

// greetedAt returns the time of the turn with the greeting, or the zero time if there is none.
func (p played) greetedAt() (at time.Time) {
	for _, turn := range p.Transcript.Turns {
		if strings.HasPrefix(greeting, strings.TrimSuffix(turn.Text, " –")) {
			at = turn.At
		}
	}
	return at
}

func (p played) spokenDuration() (sum time.Duration) {
	for _, turn := range p.Transcript.Turns {
		if turn.Role == "agent" {
			// the mark after an interrupted turn is not a spoken text
			text := strings.TrimSuffix(turn.Text, " –")
			sum += time.Duration(len(text)) * letterDuration
		}
	}
	return sum
}

// awaitTranscript waits for the transcript, which can arrive after the end of the call.
func awaitTranscript(t *testing.T, house *kit.Workspace, callID string) (p played) {
	t.Helper()
	until(t, "the call has a transcript", func() bool {
		p = played{}
		err := house.API.Into(t.Context(), "GET", "/v1/calls/"+callID, nil, 200, &p)
		return err == nil && len(p.Transcript.Turns) > 0
	})
	return p
}

func talker(t *testing.T, house *kit.Workspace, more map[string]any) string {
	t.Helper()
	settings := map[string]any{
		"kind": "openai_realtime", "language": "en-GB", "instructions": "Be brief.", "greeting": greeting,
		"disclosure": map[string]any{"text": longDisclosure}, "recording": map[string]any{"notice": longNotice},
	}
	for name, value := range more {
		settings[name] = value
	}
	return agent(t, house, settings)
}

// The phone hangs up during the disclosure, the notice or the greeting. The transcript must not
// contain words that the phone did not receive. It must contain the times at which the words were
// played.
func TestPlayout_TranscriptEndsWhenThePhoneHangsUp(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	tests := []struct {
		name     string
		after    time.Duration
		finished bool
	}{
		{name: "in the disclosure", after: 3 * time.Second},
		{name: "in the notice", after: 7500 * time.Millisecond},
		{name: "in the greeting", after: 13 * time.Second, finished: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			house := w.house(t, map[string]any{"features": map[string]any{"transcripts": true, "recordings": true}})
			e := listen(t)
			call := w.toEar(t, house, talker(t, house, nil), e, test.after, "call.completed")
			sharedstack.Equal(t, "call.Status", call.Status, "completed")
			_, loud := e.heard()
			heard := time.Duration(loud) * frameTime
			p := awaitTranscript(t, house, call.CallID)
			if got, want := p.spokenDuration(), heard+200*time.Millisecond; got > want {
				t.Errorf("audio of the transcript = %v, want at most %v, which the phone received", got, want)
			}
			if got, want := p.spokenDuration(), heard-1500*time.Millisecond; got < want {
				t.Errorf("audio of the transcript = %v, want at least %v", got, want)
			}
			if p.Disclosure == nil || p.Disclosure.StartedAt == nil {
				t.Fatalf("disclosure = %+v, want one that was started", p.Disclosure)
			}
			if got, want := p.Disclosure.Text, longDisclosure+" "+longNotice; got != want {
				t.Errorf("text of the disclosure = %q, want %q", got, want)
			}
			if got := p.Disclosure.FinishedAt != nil; got != test.finished {
				t.Fatalf("disclosure is finished = %v, want %v", got, test.finished)
			}
			if test.finished {
				// The model sends the greeting while the disclosure is played. The phone receives the greeting
				// after the disclosure.
				if got, want := p.greetedAt(), p.Disclosure.FinishedAt.Add(-frameTime); got.Before(want) {
					t.Errorf("time of the greeting = %v, want at least %v, the end of the disclosure", got, want)
				}
				return
			}
			if p.Disclosure.CutAt == nil {
				t.Fatal("cut_at = nil, want a time")
			}
			if got := p.Disclosure.CutAt.Sub(*p.Disclosure.StartedAt); (got - heard).Abs() > 200*time.Millisecond {
				t.Errorf("disclosure was played for %v, want %v, which the phone received", got, heard)
			}
		})
	}
}

func (w *testStack) toEar(
	t *testing.T, house *kit.Workspace, agentID string, e *ear, after time.Duration, last string,
) kit.Call {
	t.Helper()
	port := sippPort(t, storeAddresses().answer(e.description("sendrecv")).pause(after).hangsUp())
	req, err := house.Place(t.Context(), map[string]any{"to": number(port), "agent_id": agentID})
	if err != nil {
		t.Fatalf("place a call: %v", err)
	}
	return w.awaitCall(t, house, req, last)
}

// TestPlayout_SilentPhoneEndsTheCallUnlessItSendsRTCP calls phones that stop sending audio. If the
// phone sends RTCP, the call must continue. Otherwise the call must fail after the media timeout
// and keep its transcript.
func TestPlayout_SilentPhoneEndsTheCallUnlessItSendsRTCP(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	tests := []struct {
		name          string
		reports       bool
		status, cause string
		last          string
		script        func(e *ear) script
	}{
		{
			name: "that sends only RTCP", reports: true, status: "completed", cause: "normal_clearing", last: "call.completed",
			script: func(e *ear) script {
				return storeAddresses().answer(e.description("sendrecv")).pause(20 * time.Second).hangsUp()
			},
		},
		{
			name: "that sends nothing", status: "failed", cause: "media_timeout", last: "call.failed",
			script: func(e *ear) script { return storeAddresses().answer(e.description("sendrecv")).hungUp() },
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			house := w.house(t, map[string]any{"features": map[string]any{"transcripts": true}})
			e := listen(t)
			e.muted, e.reports = true, test.reports
			port := sippPort(t, test.script(e))
			agentID := talker(t, house, map[string]any{"silence_seconds": 60})
			req, err := house.Place(t.Context(), map[string]any{"to": number(port), "agent_id": agentID})
			if err != nil {
				t.Fatalf("place a call: %v", err)
			}
			call := w.awaitCall(t, house, req, test.last)
			sharedstack.Equal(t, "call.Status", call.Status, test.status)
			sharedstack.Equal(t, "hangup_cause", sharedstack.Value(call.HangupCause), test.cause)
			if p := awaitTranscript(t, house, call.CallID); p.spokenDuration() == 0 {
				t.Errorf("audio of the transcript = %v, want more", p.spokenDuration())
			}
		})
	}
}

// TestVoicemail_ContainsOnlyDisclosureAndMessage calls a phone that plays a greeting and a beep.
// The test is not parallel, because TestConversation_CompletesFromPOSTToWebhook counts the
// interruptions of the shared model.
func TestVoicemail_ContainsOnlyDisclosureAndMessage(t *testing.T) {
	w := sharedWorld(t)
	house := w.house(t, map[string]any{"features": map[string]any{"transcripts": true}})
	const ai = "I am an AI."
	ida := talker(t, house, map[string]any{
		"disclosure": map[string]any{"text": ai}, "on_voicemail": "leave_message", "voicemail_message": message,
	})
	machine := newPhone(t, writeVoicemail(t), "", "<sip:NUMBER@127.0.0.1:PORT>;regint=0;answermode=auto")
	req, err := house.Place(t.Context(), map[string]any{"to": number(machine.Port), "agent_id": ida})
	if err != nil {
		t.Fatalf("place a call: %v", err)
	}
	call := w.awaitCall(t, house, req, "call.completed")
	sharedstack.Equal(t, "disposition", sharedstack.Value(call.Disposition), "voicemail")
	found := soundParts(machine.recordedSamples(t, "dec"))
	if len(found) == 0 {
		t.Fatal("the mailbox is empty")
	}
	last := found[len(found)-1]
	want := time.Duration(len(ai+" "+message)) * letterDuration
	if got := length(last[1] - last[0]); (got - want).Abs() > 300*time.Millisecond {
		t.Errorf("last audio in the mailbox = %v, want disclosure and message, %v; all audio: %v", got, want, found)
	}
}

// writeVoicemail returns a WAV file with a spoken greeting, and a beep of 1 kHz after 6 s.
func writeVoicemail(t *testing.T) string {
	t.Helper()
	greets := writeSpeech(t, []int{1}, "Nobody is at home, please leave a message after the tone")
	out := t.TempDir() + "/machine.wav"
	beep := t.TempDir() + "/beep.wav"
	sox(t, "-n", "-r", "8000", "-c", "1", "-b", "16", beep, "synth", "0.6", "sine", "1000", "gain", "-6", "pad", "6", "0")
	sox(t, "-m", greets, beep, "-b", "16", out)
	return out
}

func sippPort(t *testing.T, s script) int {
	t.Helper()
	port := peertest.Port(t)
	sipp(t, port, s)
	return port
}
