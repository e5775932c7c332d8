package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
	"ringfence.dev/services/dialer/internal/callstate"
)

// asteriskTrunk is a format string for the file pjsip.conf of Asterisk. Asterisk listens at the
// address in the first argument and accepts calls from the address in the second argument.
const asteriskTrunk = `[transport-udp]
type=transport
protocol=udp
bind=%[1]s:5060

[ringfence]
type=endpoint
context=from-ringfence
disallow=all
allow=ulaw
direct_media=no
media_address=%[1]s
bind_rtp_to_media_address=yes
aors=ringfence

[ringfence]
type=aor
contact=sip:%[2]s:5060

[ringfence]
type=identify
endpoint=ringfence
match=%[2]s
`

type asteriskSetup struct {
	// dialplan is a format string. Its %s becomes the path of the announcement's audio file.
	dialplan     string
	announcement time.Duration
	// rtp contains additional lines of rtp.conf. trunk contains additional JSON fields of the request
	// that creates the trunk.
	rtp, trunk string
}

func asteriskRig(t *testing.T, model *modeltest.RealtimeServer, setup asteriskSetup) *rig {
	t.Helper()
	peertest.AsteriskInstalled(t)
	dir, network := t.TempDir(), fmt.Sprintf("127.%d.%d.", 128+rand.IntN(127), rand.IntN(256))
	ours, theirs := network+"10", network+"20"
	file := filepath.Join(dir, "announcement")
	if strings.Contains(file, ",") { // a comma separates arguments in the dialplan
		t.Fatalf("file of the announcement = %q, want a name without a comma", file)
	}
	// The 8 samples below are 1 ms of mu-law audio. They are repeated once per millisecond.
	samples := int(setup.announcement.Milliseconds())
	loud := bytes.Repeat([]byte{0x10, 0x10, 0x10, 0x10, 0x90, 0x90, 0x90, 0x90}, samples)
	if err := os.WriteFile(file+".ulaw", loud, 0o600); err != nil {
		t.Fatal(err)
	}
	asterisk, err := peertest.StartAsterisk(dir, map[string]string{
		"pjsip.conf":      fmt.Sprintf(asteriskTrunk, theirs, ours),
		"rtp.conf":        "[general]\nrtpstart=20000\nrtpend=20199\n" + setup.rtp,
		"extensions.conf": "[from-ringfence]\nexten => _+X.,1," + fmt.Sprintf(setup.dialplan, file),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		asterisk.Stop()
		if t.Failed() {
			t.Logf("log of Asterisk:\n%s", asterisk.Output())
		}
	})
	r := newRig(t, "0")
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+ours+":5060", "SIP_ADVERTISED_ADDR="+ours, "RTP_ADDR="+ours,
		"REALTIME_URL="+model.URL, "REALTIME_KEY=x")
	trunk := `{"name":"asterisk","host":"` + theirs + `"` + setup.trunk + `}`
	if status, body := r.asOperator("POST", "http://"+p.addr+"/admin/v1/trunks", trunk); status != 201 {
		t.Fatalf("POST trunk = %d %v, want 201", status, body)
	}
	return r
}

// Asterisk plays an announcement and then sends only RTCP.
func TestTrunk_RTCPPreventsTheMediaTimeout(t *testing.T) {
	t.Parallel()
	const dialplan = "Answer()\n same => n,Playback(%%s)\n same => n,Wait(%d)\n same => n,Hangup()\n"
	tests := []struct {
		name string
		// rtcp is the time between two RTCP packets. The default of Asterisk is 5 s.
		rtcp time.Duration
		// mediaTimeout is the trunk's setting media_timeout_seconds. Asterisk sends no audio for
		// waitSeconds and then hangs up.
		mediaTimeout, waitSeconds int
		cause                     callstate.Cause
		status                    string
	}{
		{name: "RTCP within the timeout", rtcp: 5 * time.Second, mediaTimeout: 9, waitSeconds: 12,
			cause: callstate.NormalClearing, status: "completed"},
		{name: "no RTCP and no timeout", rtcp: time.Minute, waitSeconds: 18, // longer than the default of 15 s
			cause: callstate.NormalClearing, status: "completed"},
		{name: "no RTCP within the timeout", rtcp: time.Minute, mediaTimeout: 5, waitSeconds: 14,
			cause: callstate.MediaTimeout, status: "failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			model := modeltest.NewRealtime(modeltest.RealtimeOptions{Reply: func(heard, asked string, _ int) modeltest.RealtimeReply {
				if heard != "" {
					return modeltest.RealtimeReply{}
				}
				return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day."), Length: 300 * time.Millisecond}
			}})
			t.Cleanup(model.Close)
			r := asteriskRig(t, model, asteriskSetup{
				dialplan: fmt.Sprintf(dialplan, tt.waitSeconds), announcement: 500 * time.Millisecond,
				rtp:   fmt.Sprintf("rtcpinterval=%d\n", tt.rtcp.Milliseconds()),
				trunk: fmt.Sprintf(`,"media_timeout_seconds":%d`, tt.mediaTimeout),
			})
			r.setAgent(`{"kind":"openai_realtime","disclosure":{"off_reason":"a test"},"greeting":"Good day.",` +
				`"silence_seconds":60}`)
			end := last(r.ends(r.request("+14155551703"))).GetCall()
			if got, want := end.GetHangupCause(), string(tt.cause); got != want {
				t.Errorf("hangup cause = %q, want %q", got, want)
			}
			if got := end.GetStatus(); got != tt.status {
				t.Errorf("status = %q, want %q", got, tt.status)
			}
		})
	}
}

// Asterisk plays an announcement before the answer. The model must not receive the announcement.
func TestTrunk_EarlyMediaIsNotAnAnswer(t *testing.T) {
	t.Parallel()
	const announcement = 2 * time.Second
	model := echoedModel(t)
	r := asteriskRig(t, model, asteriskSetup{
		announcement: announcement,
		dialplan:     "Progress()\n same => n,Playback(%s,noanswer)\n same => n,Answer()\n same => n,Echo()\n",
	})
	r.setAgent(quietAgent)
	facts := r.ends(r.request("+14155551701"))
	wantEchoedCall(t, facts, model)
	rang, answered := eventTime(facts, "ringing"), eventTime(facts, "answered")
	if got := answered.Sub(rang); got < announcement-100*time.Millisecond {
		t.Errorf("time from the first 183 to the answer = %v, want the length of the announcement, %v", got, announcement)
	}
}

// The 183 has an SDP and the 200 has none. sipp sends the agent's audio back, so the model receives
// speech if the dialer uses the SDP of the 183.
func TestTrunk_200WithoutSDPUsesTheSDPOfThe183(t *testing.T) {
	t.Parallel()
	scenario := answersThen(audioOfSipp, okStep("BYE", "200 OK"))
	ringing, answer := strings.Index(scenario, "SIP/2.0 180 Ringing"), strings.Index(scenario, "SIP/2.0 200 OK")
	first, second := scenario[ringing:answer], scenario[answer:]
	steps, rest, _ := strings.Cut(second, "]]></send>")
	header, body, _ := strings.Cut(steps, "Content-Type:")
	body, trailer := "Content-Type:"+body, "Content-Length: 0\n\n"
	first = strings.Replace(first, "180 Ringing", "183 Session Progress", 1)
	first = strings.Replace(first, "Content-Length: [len]\n\n\n", body, 1)
	port := startTrunk(t, scenario[:ringing]+first+header+trailer+"]]></send>"+rest, "-rtp_echo")
	r, model := newRig(t, "0"), echoedModel(t)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "REALTIME_URL="+model.URL, "REALTIME_KEY=x")
	r.addTrunk(p, port, "")
	r.setAgent(quietAgent)
	wantEchoedCall(t, r.ends(r.request("+14155551702")), model)
}

const quietAgent = `{"kind":"openai_realtime","disclosure":{"off_reason":"a test"},"greeting":"Good day."}`

// wantEchoedCall checks a call to a phone that sends the agent's audio back. The model must receive
// audio only after the answer.
func wantEchoedCall(t *testing.T, facts []eventRecord, model *modeltest.RealtimeServer) {
	t.Helper()
	if got, want := names(facts), talked; got != want {
		t.Errorf("events = %q, want %q", got, want)
	}
	end := last(facts)
	if got, want := end.GetCall().GetStatus(), "completed"; got != want {
		t.Errorf("status = %q, want %q", got, want)
	}
	if got := len(model.Sent("input_audio_buffer.speech_started")); got == 0 {
		t.Errorf("times that the model heard speech = %d, want more", got)
	}
	var transcript struct {
		Turns []struct {
			Role string
			At   time.Time
		}
	}
	if err := json.Unmarshal(end.GetAnalysed().GetTranscriptJson(), &transcript); err != nil {
		t.Fatalf("read the transcript: %v", err)
	}
	answered := eventTime(facts, "answered")
	for _, turn := range transcript.Turns {
		if turn.At.Before(answered) {
			t.Errorf("time of a turn of the %s = %v, want one after the answer at %v", turn.Role, turn.At, answered)
		}
	}
}

// eventTime returns the time of the first event with this name, or the zero time if there is none.
func eventTime(facts []eventRecord, name string) (at time.Time) {
	for _, each := range facts {
		if names([]eventRecord{each}) == name {
			at = each.event.GetOccurredAt().AsTime()
		}
	}
	return at
}
