package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// The far end's scripts for sipp: each plays one call, again and again. RTP comes back to whoever sends it.
const (
	sippRing = `<recv request="INVITE" crlf="true"></recv>
<send><![CDATA[SIP/2.0 180 Ringing
[last_Via:]
[last_From:]
[last_To:];tag=[pid]callee[call_number]
[last_Call-ID:]
[last_CSeq:]
Contact: <sip:[local_ip]:[local_port];transport=[transport]>
Content-Length: 0

]]></send>
<pause milliseconds="200"/>`
	sippAnswer = `<send retrans="500"><![CDATA[SIP/2.0 200 OK
[last_Via:]
[last_From:]
[last_To:];tag=[pid]callee[call_number]
[last_Call-ID:]
[last_CSeq:]
Contact: <sip:[local_ip]:[local_port];transport=[transport]>
Content-Type: application/sdp
Content-Length: [len]

v=0
o=callee 1 1 IN IP[local_ip_type] [local_ip]
s=-
c=IN IP[media_ip_type] [media_ip]
t=0 0
m=audio [media_port] RTP/AVP 0
a=rtpmap:0 PCMU/8000

]]></send>
<recv request="ACK" crlf="true"><action><ereg regexp=".*" search_in="hdr" header="From:" assign_to="peer"/><log message="[$peer]"/></action></recv>`
	sippHearsBye = `<recv request="BYE"></recv>
<send><![CDATA[SIP/2.0 200 OK
[last_Via:]
[last_From:]
[last_To:]
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>`
	sippSaysBye = `<pause milliseconds="1500"/>
<send retrans="500"><![CDATA[BYE sip:[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:callee@[local_ip]:[local_port]>;tag=[pid]callee[call_number]
To:[$peer]
[last_Call-ID:]
CSeq: 1 BYE
Max-Forwards: 70
Content-Length: 0

]]></send>
<recv response="200"></recv>`
	sippBusy = `<send retrans="500"><![CDATA[SIP/2.0 486 Busy Here
[last_Via:]
[last_From:]
[last_To:];tag=[pid]callee[call_number]
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>
<recv request="ACK" crlf="true"></recv>`
)

// callee is sipp at a port, playing a script until the test ends.
func callee(t *testing.T, port int, script string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.xml")
	whole := `<?xml version="1.0" encoding="UTF-8" ?><!DOCTYPE scenario SYSTEM "sipp.dtd"><scenario name="callee">` + script + `</scenario>`
	if err := os.WriteFile(path, []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sipp", "-sf", path, "-i", "127.0.0.1", "-mi", "127.0.0.1", "-p", strconv.Itoa(port), "-rtp_echo", "-nostdin", "-trace_err", "-error_file", path+".err")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = nil, &said, t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			errors, _ := os.ReadFile(path + ".err")
			t.Logf("sipp said: %s%s", said.Bytes(), errors)
		}
	})
	until(t, 10*time.Second, "sipp listens", func() bool {
		conn, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

// freeUDP is a port that nobody has.
func freeUDP(t *testing.T) int {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.LocalAddr().(*net.UDPAddr).Port
}

// TestSIP_ACallFromPOSTToWebhook places calls over a real SIP trunk to a real SIP peer that sends the audio back.
func TestSIP_ACallFromPOSTToWebhook(t *testing.T) {
	if _, err := exec.LookPath("sipp"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("sipp is missing: install Debian's sip-tester")
		}
		t.Skip("sipp is missing: install Debian's sip-tester to run this")
	}
	hooks := receiver(t)
	port := freeUDP(t)
	s := start(t, binaries(t), "SSL_CERT_FILE="+hooks.CAFile, "CARRIER=sip", fmt.Sprintf("SIP_UDP_ADDR=127.0.0.1:%d", freeUDP(t)))
	w := tenant(t, s, hooks, "100")
	if err := w.Admin.Into(t.Context(), "POST", "/admin/v1/trunks", map[string]any{"name": "sipp", "host": "127.0.0.1", "port": port, "caller_ids": []string{"+14155550100"}}, 201, nil); err != nil {
		t.Fatal(err)
	}
	for i, row := range []struct {
		name, script, settings string
		status, cause          string
		events                 []string
	}{
		{"the agent hangs up", sippRing + sippAnswer + sippHearsBye, "1500", "completed", "normal_clearing", []string{"call.ringing", "call.answered", "call.completed"}},
		{"the person hangs up", sippRing + sippAnswer + sippSaysBye, "0", "completed", "normal_clearing", []string{"call.ringing", "call.answered", "call.completed"}},
		{"the person is busy", sippRing + sippBusy, "0", "busy", "user_busy", []string{"call.ringing", "call.busy"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			millis, _ := strconv.Atoi(row.settings)
			settings := map[string]any{"script": map[string]any{"tone_hz": 440, "tone_millis": 500, "end_after_millis": millis}}
			if err := w.Admin.Into(t.Context(), "PATCH", "/admin/v1/workspaces/"+w.ID+"/agents/"+w.AgentID, settings, 200, nil); err != nil {
				t.Fatal(err)
			}
			callee(t, port, row.script)
			before := len(types(hooks, "/"+w.ID))
			req, err := w.Place(t.Context(), map[string]any{"to": number(100 + i)})
			if err != nil {
				t.Fatal(err)
			}
			until(t, 20*time.Second, "the call's events", func() bool { return len(types(hooks, "/"+w.ID)) >= before+len(row.events) })
			if got := types(hooks, "/"+w.ID)[before:]; !slices.Equal(got, row.events) {
				t.Errorf("events = %v, want %v", got, row.events)
			}
			call := finishedCall(t, w, req.ID)
			if call.Status != row.status || call.HangupCause == nil || *call.HangupCause != row.cause || (call.CreditsCharged != "") != (row.status == "completed") {
				t.Errorf("call = %+v", call)
			}
			if row.status == "completed" && (call.Timings.TalkSeconds == nil || *call.Timings.TalkSeconds < 1 || *call.Timings.TalkSeconds > 5) {
				t.Errorf("talked for %v seconds", call.Timings.TalkSeconds)
			}
		})
	}
	if differences, err := w.Differences(t.Context()); err != nil || len(differences) > 0 {
		t.Errorf("the books: %v, %v", differences, err)
	}
}
