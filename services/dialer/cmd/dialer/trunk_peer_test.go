package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/agent/modeltest"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// answersThen returns a scenario that answers the INVITE with 200 and then executes the steps.
// audioAddress is the address in the SDP of the 200.
func answersThen(audioAddress, steps string) string {
	response := func(status, body string) string {
		kind := ""
		if body != "" {
			kind = "Content-Type: application/sdp\n"
		}
		return `<send><![CDATA[

SIP/2.0 ` + status + `
[last_Via:]
[last_From:]
[last_To:];tag=[pid]t[call_number]
[last_Call-ID:]
[last_CSeq:]
Contact: <sip:far@[local_ip]:[local_port]>
` + kind + `Content-Length: [len]

` + body + `
]]></send>`
	}
	return `<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="trunk">
<recv request="OPTIONS" optional="true" next="options"/>
<recv request="INVITE"><action>
<ereg regexp="sip:[^&gt;]*" search_in="hdr" header="Contact:" assign_to="contact"/>
<ereg regexp="[^ ].*" search_in="hdr" header="From:" assign_to="us"/>
<ereg regexp="[^ ].*" search_in="hdr" header="To:" assign_to="them"/>
<log message="begins [$contact] [clock_tick]"/>
</action></recv>
` + response("180 Ringing", "") +
		response("200 OK", "v=0\no=far 1 1 "+audioAddress+" RTP/AVP 0\na=rtpmap:0 PCMU/8000\n") + `
<recv request="ACK"/>
` + steps + `
<nop next="end"><action><log message="ends [$us] [$them] [clock_tick]"/></action></nop>
<label id="options"/>
` + response("200 OK", "") + `
<label id="end"/>
</scenario>
`
}

func requestStep(method string, seq int, headers, body string) string {
	return fmt.Sprintf(`<send><![CDATA[

%[1]s [$contact] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: [$them];tag=[pid]t[call_number]
To: [$us]
Call-ID: [call_id]
CSeq: %[2]d %[1]s
Contact: <sip:far@[local_ip]:[local_port]>
Max-Forwards: 70
%[3]sContent-Length: [len]

%[4]s]]></send>
<recv response="200"/>
`, method, seq, headers, body)
}

func okStep(method, status string) string {
	return `<recv request="` + method + `"/>
<send><![CDATA[

SIP/2.0 ` + status + `
[last_Via:]
[last_From:]
[last_To:]
[last_Call-ID:]
[last_CSeq:]
Contact: <sip:far@[local_ip]:[local_port]>
Content-Length: 0

]]></send>
`
}

const audioOfSipp = "IN IP[media_ip_type] [media_ip]\ns=-\nc=IN IP[media_ip_type] [media_ip]\nt=0 0\n" +
	"m=audio [media_port]"

func (r *rig) setAgent(settings string) {
	r.t.Helper()
	version := time.Now().UnixNano()
	r.publish(kafka.Agents, r.agent, &eventv1.AgentEvent{
		AgentId: r.agent.String(), WorkspaceId: r.workspace.String(), Version: version,
		Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{
			Name: "Ida", FromE164: dialqueue.DefaultFrom, MaxCallSeconds: 600, SettingsJson: []byte(settings),
		}},
	})
	await(r.t, "the agent's settings are stored", func() bool {
		var stored bool
		err := r.pool.QueryRow(r.t.Context(), "SELECT version = $2 FROM agents WHERE agent_id = $1",
			r.agent, version).Scan(&stored)
		return err == nil && stored
	})
}

func TestTrunk_ConversationContinuesAfterAFailedTransfer(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, steps string }{
		{name: "trunk refuses REFER", steps: okStep("REFER", "603 Decline")},
		{name: "target is busy", steps: okStep("REFER", "202 Accepted") + requestStep("NOTIFY", 2,
			"Event: refer\nSubscription-State: terminated;reason=noresource\nContent-Type: message/sipfrag\n",
			"SIP/2.0 486 Busy Here\n")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "0")
			var results atomic.Value
			model := modeltest.NewRealtime(modeltest.RealtimeOptions{
				Hears: func(int) string { return "" },
				Reply: func(heard, asked string, _ int) modeltest.RealtimeReply {
					if heard == "" {
						return modeltest.RealtimeReply{
							Text: modeltest.QuotedRealtime(asked, "Good day."), Length: 300 * time.Millisecond,
							Tool: "transfer", Args: `{"to":"sales"}`,
						}
					}
					results.CompareAndSwap(nil, heard)
					return modeltest.RealtimeReply{Text: "Sales cannot be reached.", Length: 300 * time.Millisecond, Tool: "end_call"}
				},
			})
			t.Cleanup(model.Close)
			port := startTrunk(t, answersThen(audioOfSipp, test.steps+okStep("BYE", "200 OK")))
			p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "REALTIME_URL="+model.URL, "REALTIME_KEY=x")
			r.addTrunk(p, port, "")
			r.setAgent(`{"kind":"openai_realtime","disclosure":{"off_reason":"a test"},"greeting":"Good day.",` +
				`"transfers":{"sales":"+14155559999"}}`)
			end := last(r.ends(r.request("+14155551501")))
			if got, want := end.GetCall().GetStatus(), "completed"; got != want {
				t.Errorf("status = %q, want %q", got, want)
			}
			if got := end.GetAnalysed().GetOutcome(); got == "transferred" {
				t.Errorf("outcome = %q, want another one", got)
			}
			result, _ := results.Load().(string)
			if !strings.Contains(result, "failed") {
				t.Errorf("result of the tool = %q, want it to contain %q", result, "failed")
			}
			const reply = "Sales cannot be reached."
			if got := string(end.GetAnalysed().GetTranscriptJson()); !strings.Contains(got, reply) {
				t.Errorf("transcript = %q, want it to contain %q", got, reply)
			}
		})
	}
}

func TestTrunk_IPv6CarriesAudioInBothDirections(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	model := echoedModel(t)
	port := startTrunkAt(t, "::1", answersThen(audioOfSipp, okStep("BYE", "200 OK")), "-mi", "::1", "-rtp_echo")
	_, own, err := net.SplitHostPort(freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR=[::1]:"+own, "SIP_ADVERTISED_ADDR=::1", "RTP_ADDR=::1",
		"REALTIME_URL="+model.URL, "REALTIME_KEY=x")
	url := "http://" + p.addr + "/admin/v1/trunks"
	status, response := r.asOperator("POST", url, fmt.Sprintf(`{"name":"far","host":"::1","port":%d}`, port))
	if status != 201 {
		t.Fatalf("POST trunk = %d %v, want 201", status, response)
	}
	r.setAgent(`{"kind":"openai_realtime","disclosure":{"off_reason":"a test"},"greeting":"Good day."}`)
	end := last(r.ends(r.request("+14155551502")))
	if got, want := end.GetCall().GetStatus(), "completed"; got != want {
		t.Errorf("status = %q, want %q", got, want)
	}
	if got := len(model.Sent("input_audio_buffer.speech_started")); got == 0 {
		t.Errorf("times that the model heard speech = %d, want more", got)
	}
}

func echoedModel(t *testing.T) *modeltest.RealtimeServer {
	t.Helper()
	model := modeltest.NewRealtime(modeltest.RealtimeOptions{
		Hears: func(int) string { return "Good day." },
		Reply: func(heard, asked string, _ int) modeltest.RealtimeReply {
			if heard == "" {
				return modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Good day."), Length: time.Second}
			}
			return modeltest.RealtimeReply{Text: "Goodbye.", Length: 300 * time.Millisecond, Tool: "end_call"}
		},
	})
	t.Cleanup(model.Close)
	return model
}

// A phone behind a NAT sends and receives audio at another port than its SDP names. The dialer must
// ignore audio packets from a third address.
func TestTrunk_AudioFollowsTheAddressOfAPhoneBehindNAT(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	described, translated := listenRTP(t, "127.0.0.3"), listenRTP(t, "127.0.0.3")
	third := listenRTP(t, "127.0.0.66")
	audio := fmt.Sprintf("IN IP4 127.0.0.3\ns=-\nc=IN IP4 127.0.0.3\nt=0 0\nm=audio %d",
		described.LocalAddr().(*net.UDPAddr).Port)
	port := startTrunk(t, answersThen(audio, okStep("BYE", "200 OK")))
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
	r.addTrunk(p, port, "")
	r.setAgent(`{"script":{"tone_hz":440,"tone_millis":60000}}`)
	r.request("+14155551503")
	agent := received(t, described)
	sendRTP(t, third, agent, 100)
	sendRTP(t, translated, agent, 20)
	if got, want := received(t, translated).String(), agent.String(); got != want {
		t.Errorf("source of the audio at the translated port = %q, want %q", got, want)
	}
	sendRTP(t, third, agent, 100)
	for range 50 { // 50 packets are one second of audio
		received(t, translated)
	}
	if err := third.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, _, err := third.ReadFromUDP(make([]byte, 1500)); err == nil {
		t.Errorf("bytes that the third address received = %d, want none", n)
	}
}

// The operating system refuses to send each audio packet, because a socket at 127.0.0.1 cannot send
// to an address outside of this machine.
func TestTrunk_UnsentAudioIsNotInTheTranscript(t *testing.T) {
	t.Parallel()
	const disclosure, greeting = "I am an AI.", "Good day."
	r := newRig(t, "0")
	model := modeltest.NewRealtime(modeltest.RealtimeOptions{
		Reply: func(_, asked string, _ int) modeltest.RealtimeReply {
			reply := modeltest.RealtimeReply{Text: modeltest.QuotedRealtime(asked, "Goodbye."), Length: 500 * time.Millisecond}
			if reply.Text != disclosure {
				reply.Tool = "end_call"
			}
			return reply
		},
	})
	t.Cleanup(model.Close)
	const unreachable = "IN IP4 198.51.100.1\ns=-\nc=IN IP4 198.51.100.1\nt=0 0\nm=audio 9000"
	port, private := startTrunk(t, answersThen(unreachable, okStep("BYE", "200 OK"))), freeAddr(t)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "RTP_ADDR=127.0.0.1", "REALTIME_URL="+model.URL,
		"REALTIME_KEY=x", "PRIVATE_ADDR="+private)
	r.addTrunk(p, port, "")
	r.setAgent(`{"kind":"openai_realtime","disclosure":{"text":"` + disclosure + `"},"greeting":"` + greeting + `"}`)
	end := last(r.ends(r.request("+14155551504")))
	if got, want := end.GetCall().GetStatus(), "completed"; got != want {
		t.Errorf("status = %q, want %q", got, want)
	}
	transcript := string(end.GetAnalysed().GetTranscriptJson())
	for _, unsent := range []string{disclosure, greeting} {
		if strings.Contains(transcript, unsent) {
			t.Errorf("transcript = %q, want it to lack %q, which was not sent", transcript, unsent)
		}
	}
	played := end.GetCall().GetDisclosure()
	if got := played.GetText(); got != disclosure {
		t.Errorf("text of the disclosure = %q, want %q", got, disclosure)
	}
	if got := played.GetStartedAt(); got != nil {
		t.Errorf("start of the disclosure = %v, want none", got.AsTime())
	}
	if got := played.GetFinishedAt(); got != nil {
		t.Errorf("end of the disclosure = %v, want none", got.AsTime())
	}
}

func listenRTP(t *testing.T, address string) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(address)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func received(t *testing.T, conn *net.UDPConn) *net.UDPAddr {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(waitTimeout)); err != nil {
		t.Fatal(err)
	}
	_, from, err := conn.ReadFromUDP(make([]byte, 1500))
	if err != nil {
		t.Fatalf("no audio arrives at %v: %v", conn.LocalAddr(), err)
	}
	return from
}

func sendRTP(t *testing.T, conn *net.UDPConn, to *net.UDPAddr, packets int) {
	t.Helper()
	packet := make([]byte, 12+160)
	packet[0] = 0x80
	binary.BigEndian.PutUint32(packet[8:], uint32(conn.LocalAddr().(*net.UDPAddr).Port))
	for i := range packets {
		binary.BigEndian.PutUint16(packet[2:], uint16(i))
		binary.BigEndian.PutUint32(packet[4:], uint32(i*160))
		if _, err := conn.WriteToUDP(packet, to); err != nil {
			t.Fatal(err)
		}
	}
}

// The lease is long, because sipp sometimes halts. With a short lease, the second dialer would take
// the call over and send a BYE, and sipp does not log the end of such a call.
func TestTrunk_TwoDialersTogetherKeepTheTrunksLimits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, limits string
		check        func(t *testing.T, log []sippLine)
	}{
		{name: "channels", limits: `,"channels":3,"calls_per_second":100`, check: checkChannels},
		{name: "calls per second", limits: `,"channels":100,"calls_per_second":6`, check: checkPace},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r, file := newRig(t, "0"), filepath.Join(t.TempDir(), "calls")
			steps := `<pause milliseconds="300"/>` + requestStep("BYE", 2, "", "")
			port := startTrunk(t, answersThen(audioOfSipp, steps), "-trace_logs", "-log_file", file)
			first := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "INSTANCE_LEASE=1m", "CLAIM_LEASE=2m")
			r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t), "INSTANCE_LEASE=1m", "CLAIM_LEASE=2m")
			r.addTrunk(first, port, test.limits)
			r.setAgent(`{"script":{"tone_hz":440,"tone_millis":60000}}`)
			for round := 0; len(contacts(readLog(t, file))) < 2; round++ {
				if round == 10 {
					t.Fatal("only one of the dialers places calls")
				}
				r.callMany(20, 2000+20*round)
			}
			test.check(t, readLog(t, file))
		})
	}
}

func (r *rig) requestMany(calls, from int) (ids []uuid.UUID) {
	r.t.Helper()
	for i := range calls {
		ids = append(ids, r.request(fmt.Sprintf("+1415555%04d", from+i)))
	}
	return ids
}

func (r *rig) callMany(calls, from int) {
	r.t.Helper()
	for _, id := range r.requestMany(calls, from) {
		if got, want := last(r.ends(id)).GetCall().GetStatus(), "completed"; got != want {
			r.t.Errorf("status = %q, want %q", got, want)
		}
	}
}

// The trunk has three channels. One channel is reserved for small workspaces, so this workspace
// uses at most two.
func checkChannels(t *testing.T, log []sippLine) {
	t.Helper()
	const want = 2
	live, most := 0, 0
	for _, one := range log {
		live += one.live
		most = max(most, live)
	}
	if most > want {
		t.Errorf("calls at the same time = %d, want at most %d", most, want)
	}
}

// checkPace checks the trunk's limit of six calls per second.
func checkPace(t *testing.T, log []sippLine) {
	t.Helper()
	var begun []time.Duration
	for _, one := range log {
		if one.live > 0 {
			begun = append(begun, one.at)
		}
	}
	took := begun[len(begun)-1] - begun[0]
	if got, want := len(begun)-1, int(6*(took+500*time.Millisecond)/time.Second); got > want {
		t.Errorf("calls in %v = %d, want at most %d", took, got, want)
	}
}

// sippLine is a line of sipp's log: a call begins (live = 1) or ends (live = -1).
type sippLine struct {
	live    int
	contact string
	at      time.Duration
}

func readLog(t *testing.T, file string) (lines []sippLine) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for one := range strings.Lines(string(text)) {
		fields := strings.Fields(one)
		if len(fields) < 3 {
			continue
		}
		millis, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			t.Fatalf("log of sipp: %q: %v", one, err)
		}
		entry := sippLine{live: -1, at: time.Duration(millis) * time.Millisecond}
		if fields[0] == "begins" {
			entry.live, entry.contact = 1, fields[1]
		}
		lines = append(lines, entry)
	}
	return lines
}

func contacts(lines []sippLine) map[string]bool {
	found := map[string]bool{}
	for _, one := range lines {
		if one.contact != "" {
			found[one.contact] = true
		}
	}
	return found
}
