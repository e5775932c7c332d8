package sip_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// The person speaks the first two sentences. The constant beside each sentence is its start in the
// played file, in seconds.
const (
	interruption, interrupts = "Who is this calling me", 5
	refusal, refuses         = "Never call me again", 11
	disclosure               = "I am an AI."
	notice                   = "This is recorded."
	greeting                 = "This is Ida from the energy cooperative, and I would like to tell you at some length about our new tariffs, which begin in January, and how you could save a good deal by them."
	explained                = "This is Ida."
	parting                  = "That is noted. Goodbye."
	// letterDuration is the duration of the audio that the model's voice produces for one letter.
	letterDuration = 60 * time.Millisecond
)

// phone is a baresip that answers each call, plays a file and records the audio that it receives.
type phone struct{ *peertest.Phone }

func newPhone(t *testing.T, says, config, account string) phone {
	t.Helper()
	dir, port := t.TempDir(), peertest.Port(t)
	config = fmt.Sprintf("audio_source aufile,%s\nrtp_ports 34000-36000\nmodule aufile.so\nmodule sndfile.so\nsnd_path %s\n", says, dir) + config
	account = strings.NewReplacer("NUMBER", number(port), "PORT", fmt.Sprint(port)).Replace(account)
	return phone{peertest.NewPhone(t, dir, port, config, account)}
}

// recordedSamples returns the samples that the phone recorded. side is "dec" for the audio that the
// phone received, and "enc" for the audio that it sent.
func (p phone) recordedSamples(t *testing.T, side string) []int16 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.Dir, "dump-*-"+side+".wav"))
	if err != nil {
		t.Fatalf("Glob: %v", err)
	}
	if len(files) != 1 {
		t.Fatalf("length of files = %d, want 1", len(files))
	}
	return samplesOf(t, files[0], 1)
}

// samplesOf returns the samples of one channel of a file, with 16 bits at 8 kHz.
func samplesOf(t *testing.T, file string, channel int) (samples []int16) {
	t.Helper()
	raw := sox(t, file, "-t", "raw", "-r", "8000", "-e", "signed", "-b", "16", "-", "remix", fmt.Sprint(channel))
	samples = make([]int16, len(raw)/2)
	if _, err := binary.Decode(raw, binary.LittleEndian, samples); err != nil {
		t.Fatal(err)
	}
	return samples
}

// sox returns the audio if the output is "-". Otherwise it returns the text that the program sox
// prints.
func sox(t *testing.T, args ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	for i, arg := range args {
		if arg == "-" {
			args[i] = out
		}
	}
	p := peertest.Start(t, dir, "sox", args...)
	p.Ends(t)
	if written, err := os.ReadFile(out); err == nil {
		return written
	}
	return []byte(p.Output())
}

// writeSpeech writes the spoken sentences into a WAV file and returns its path. startSeconds
// contains the start of each sentence.
func writeSpeech(t *testing.T, startSeconds []int, sentences ...string) (path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "speech.wav")
	args := []string{}
	for i, sentence := range sentences {
		raw, ready := filepath.Join(dir, fmt.Sprint(i)+".wav"), filepath.Join(dir, fmt.Sprint(i)+"-8k.wav")
		peertest.Start(t, dir, "espeak-ng", "-v", "en", "-s", "170", "-a", "150", "-w", raw, sentence).Ends(t)
		sox(t, raw, "-r", "8000", "-c", "1", "-b", "16", ready, "pad", fmt.Sprint(startSeconds[i]), "4")
		args = append(args, ready)
	}
	if len(args) > 1 {
		args = append([]string{"-m"}, args...)
	}
	sox(t, append(args, "-b", "16", path, "gain", "-n", "-3", "pad", "0", "60")...)
	return path
}

// soundParts returns the start and end of each part with sound, in samples. A pause of less than
// 400 ms does not end a part.
func soundParts(samples []int16) (found [][2]int) {
	const frame, pause = 80, 3200
	for at := 0; at+frame <= len(samples); at += frame {
		sum := 0
		for _, s := range samples[at : at+frame] {
			sum += max(int(s), -int(s))
		}
		if sum < 200*frame {
			continue
		}
		if n := len(found); n > 0 && at-found[n-1][1] < pause {
			found[n-1][1] = at + frame
		} else {
			found = append(found, [2]int{at, at + frame})
		}
	}
	return found
}

func length(samples int) time.Duration { return time.Duration(samples) * time.Second / 8000 }

// TestConversation_CompletesFromPOSTToWebhook calls a real phone through a proxy that requests
// credentials. The model uses the Realtime protocol, and the speech is synthesised. The person
// interrupts the agent and opts out.
func TestConversation_CompletesFromPOSTToWebhook(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	house := w.house(t, map[string]any{"features": map[string]any{"transcripts": true, "recordings": true}})
	ida := agent(t, house, map[string]any{
		"kind": "openai_realtime", "language": "en-GB", "instructions": "Be brief.", "greeting": greeting,
		"disclosure": map[string]any{"text": disclosure}, "recording": map[string]any{"notice": notice},
	})
	bo := newPhone(t, writeSpeech(t, []int{interrupts, refuses}, interruption, refusal), "",
		"<sip:NUMBER@127.0.0.1:PORT>;regint=0;answermode=auto")
	to := number(bo.Port)
	truncated := len(w.modelEvents(t, "conversation.item.truncate"))
	placed := time.Now().Add(-time.Second)
	req, err := house.Place(t.Context(), map[string]any{"to": to, "agent_id": ida, "external_ref": "real"})
	if err != nil {
		t.Fatal(err)
	}
	call := w.awaitCall(t, house, req, "call.completed")
	sharedstack.Equal(t, "call.Status", call.Status, "completed")
	sharedstack.Equal(t, "stage.Value(call.HangupCause)", sharedstack.Value(call.HangupCause), "normal_clearing")
	sharedstack.Equal(t, "stage.Value(call.Outcome)", sharedstack.Value(call.Outcome), "opted_out")
	sharedstack.Equal(t, "stage.Value(call.Disposition)", sharedstack.Value(call.Disposition), "human")
	until(t, "the opt-out is stored", func() bool {
		var contact struct {
			DND string `json:"dnd_status"`
		}
		return house.API.Into(t.Context(), "GET", "/v1/opt-outs/"+strings.Replace(to, "+", "%2B", 1), nil, 200, &contact) == nil && contact.DND == "dnd"
	})
	status, answer, err := house.API.Do(t.Context(), "POST", "/v1/calls", map[string]any{"to": to, "agent_id": ida})
	if err != nil {
		t.Fatal(err)
	}
	sharedstack.Equal(t, "status", status, 422)
	sharedstack.Contains(t, "answer", string(answer), "recipient_dnd")
	w.wantEvents(t, house, call.CallID)
	w.wantTranscript(t, house, call.CallID, placed)
	cuts := w.modelEvents(t, "conversation.item.truncate")[truncated:]
	if len(cuts) != 1 {
		t.Fatalf("interruptions that the model received = %d (%v), want 1", len(cuts), cuts)
	}
	wantHeard(t, bo.recordedSamples(t, "dec"), time.Duration(cuts[0]["audio_end_ms"].(float64)*float64(time.Millisecond)))
	wantRecorded(t, house, call.CallID, bo)
}

// awaitCall waits until the last event of a request's call is delivered, and returns the call.
func (w *testStack) awaitCall(t *testing.T, house *kit.Workspace, req kit.Request, last string) kit.Call {
	t.Helper()
	var id string
	until(t, "the request has a call", func() bool {
		now, err := house.Request(t.Context(), req.ID)
		if err == nil && now.CallID != nil {
			id = *now.CallID
		}
		return id != ""
	})
	w.awaitEvents(t, house, id, last)
	call, err := house.Call(t.Context(), id)
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	if call.HangupCause == nil {
		t.Fatal("call: call.HangupCause = nil, want a value")
	}
	return call
}

// The last event must contain the result of the call and its summary.
func (w *testStack) wantEvents(t *testing.T, house *kit.Workspace, callID string) {
	t.Helper()
	got := w.awaitEvents(t, house, callID, "call.completed")
	var names []string
	for _, d := range got {
		names = append(names, d.Type)
		if !d.Signed {
			t.Errorf("%s: signed = false, want true", d.Type)
		}
	}
	// a phone can answer without ringing
	want := []string{"call.ringing", "call.answered", "call.completed"}
	if !slices.Equal(names, want) && !slices.Equal(names, want[1:]) {
		t.Errorf("events = %v", names)
	}
	var event struct {
		Data kit.Call `json:"data"`
	}
	if err := json.Unmarshal(got[len(got)-1].Body, &event); err != nil {
		t.Fatal(err)
	}
	d := event.Data
	sharedstack.Equal(t, "stage.Value(d.Outcome)", sharedstack.Value(d.Outcome), "opted_out")
	sharedstack.Equal(t, "d.Summary['customer_name']", d.Summary["customer_name"], "Bo")
	sharedstack.Equal(t, "d.Summary['outcome']", d.Summary["outcome"], "opted_out")
	sharedstack.Equal(t, "stage.Value(d.ExternalRef)", sharedstack.Value(d.ExternalRef), "real")
	if d.CreditsCharged == "" {
		t.Errorf("d.CreditsCharged = %v, want a value", d.CreditsCharged)
	}
}

func (w *testStack) wantTranscript(t *testing.T, house *kit.Workspace, callID string, after time.Time) {
	t.Helper()
	var transcript struct {
		Turns []struct {
			Role, Text string
			At         time.Time
		}
	}
	if err := house.API.Into(t.Context(), "GET", "/v1/calls/"+callID+"/transcript", nil, 200, &transcript); err != nil {
		t.Fatal(err)
	}
	want := []struct{ role, text string }{
		{"agent", disclosure + " " + notice}, {"agent", greeting}, {"person", interruption}, {"agent", explained}, {"person", refusal}, {"agent", parting},
	}
	if len(transcript.Turns) != len(want) {
		t.Fatalf("turns of the transcript = %d (%+v), want %d", len(transcript.Turns), transcript.Turns, len(want))
	}
	for i, turn := range transcript.Turns {
		// the turn with the greeting was interrupted, so its text is only a beginning
		whole := turn.Text == want[i].text || i == 1 && len(turn.Text) < len(greeting) && strings.HasPrefix(greeting, strings.TrimRight(turn.Text, " …-–—."))
		sharedstack.Equal(t, "turn.Role", turn.Role, want[i].role)
		sharedstack.Equal(t, "whole", whole, true)
		sharedstack.Equal(t, "turn.At.Before(after)", turn.At.Before(after), false)
		sharedstack.Equal(t, "turn.At.After(time.Now())", turn.At.After(time.Now()), false)
		after = turn.At
	}
	startOf := func(i int) time.Time { return transcript.Turns[i].At }
	if gap := startOf(4).Sub(startOf(2)); gap < (refuses-interrupts-2)*time.Second {
		t.Errorf("Sub: gap = %v, want at least %v", gap, (refuses-interrupts-2)*time.Second)
	} else if gap > (refuses-interrupts+2)*time.Second {
		t.Errorf("Sub: gap = %v, want at most %v", gap, (refuses-interrupts+2)*time.Second)
	}
}

// wantHeard checks the sound that the phone received before the first pause. It must contain the
// whole disclosure, the notice, and as much of the greeting as the model recorded as played.
func wantHeard(t *testing.T, samples []int16, playedAudio time.Duration) {
	t.Helper()
	found := soundParts(samples)
	if len(found) < 2 {
		t.Fatalf("parts with sound that the phone received = %v, want at least 2", found)
	}
	first := length(found[0][1] - found[0][0])
	opening := time.Duration(len(disclosure+" "+notice)) * letterDuration
	t.Logf("parts with sound = %d, first part = %s, played part of the greeting by the model = %s",
		len(found), first, playedAudio)
	if off := (first - opening - playedAudio).Abs(); off > time.Second {
		t.Errorf("first part with sound = %s, want disclosure and notice (%s) and the played part of the greeting (%s)",
			first, opening, playedAudio)
	}
	if whole := time.Duration(len(greeting)) * letterDuration; playedAudio < 500*time.Millisecond {
		t.Errorf("length of the note = %v, want at least %v", playedAudio, 500*time.Millisecond)
	} else if playedAudio > whole-time.Second {
		t.Errorf("length of the note = %v, want at most %v", playedAudio, whole-time.Second)
	}
}
