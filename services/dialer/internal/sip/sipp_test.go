package sip_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/transport"
)

// scenario is a scenario for sipp, a SIP test program, which plays the far end of a call.
type scenario struct{ steps []string }

const ownTag = ";tag=[pid]SIPpTag01[call_number]"

func sdpOf(direction string) string {
	return "v=0\no=user1 53655765 2353687637 IN IP[local_ip_type] [local_ip]\ns=-\nc=IN IP[media_ip_type] [media_ip]\nt=0 0\nm=audio [media_port] RTP/AVP 0\na=rtpmap:0 PCMU/8000\na=" + direction + "\n"
}

func invited() *scenario {
	s := &scenario{}
	s.add(`<recv request="INVITE" rrs="true"><action>
	<ereg regexp="sip:[^&gt;]*" search_in="hdr" header="Contact:" assign_to="1"/>
	<ereg regexp="[^ ].*" search_in="hdr" header="From:" assign_to="2"/>
	<ereg regexp="[^ ].*" search_in="hdr" header="To:" assign_to="3"/>
	</action></recv>`)
	return s
}

func (s *scenario) add(steps ...string) *scenario { s.steps = append(s.steps, steps...); return s }

func (s *scenario) say(code int, body string, headers ...string) *scenario {
	tag := ownTag
	if code == 100 {
		tag = ""
	}
	return s.respond(code, tag, body, headers...)
}

func (s *scenario) ok(body string, headers ...string) *scenario {
	return s.respond(200, "", body, headers...)
}

func (s *scenario) respond(code int, tag, body string, headers ...string) *scenario {
	text := fmt.Sprintf("SIP/2.0 %d Status\n[last_Via:]\n[last_From:]\n[last_To:]%s\n[last_Call-ID:]\n[last_CSeq:]\n[last_Record-Route:]\n", code, tag)
	text += "Contact: <sip:callee@[local_ip]:[local_port];transport=[transport]>\n"
	return s.send(text, body, headers...)
}

// ask sends a request. It does not wait for the response.
func (s *scenario) ask(method, body string, seq int, headers ...string) *scenario {
	text := fmt.Sprintf("%s [$1] SIP/2.0\nVia: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\nFrom: [$3]%s\nTo: [$2]\nCall-ID: [call_id]\nCSeq: %d %s\n[routes]\nMax-Forwards: 70\n", method, ownTag, seq, method)
	text += "Contact: <sip:callee@[local_ip]:[local_port];transport=[transport]>\n"
	return s.send(text, body, headers...)
}

func (s *scenario) send(text, body string, headers ...string) *scenario {
	for _, header := range headers {
		text += header + "\n"
	}
	if body != "" {
		text += "Content-Type: application/sdp\n"
	}
	return s.add("<send><![CDATA[\n\n" + text + "Content-Length: [len]\n\n" + body + "\n]]></send>")
}

func (s *scenario) hear(method string) *scenario {
	return s.add(fmt.Sprintf(`<recv request=%q rrs="true"/>`, method))
}

func (s *scenario) response(code int) *scenario {
	return s.add(fmt.Sprintf(`<recv response="100" optional="true"/><recv response="%d"/>`, code))
}

func (s *scenario) pause(ms int) *scenario {
	return s.add(fmt.Sprintf(`<pause milliseconds="%d"/>`, ms))
}

func (s *scenario) answered(headers ...string) *scenario {
	return s.say(180, "").say(200, sdpOf("sendrecv"), headers...).hear("ACK")
}

// hungUp expects that the user agent sends the BYE.
func (s *scenario) hungUp() *scenario { return s.hear("BYE").ok("") }

// hangsUp sends a BYE to the user agent.
func (s *scenario) hangsUp(headers ...string) *scenario {
	return s.ask("BYE", "", 77, headers...).response(200)
}

func (s *scenario) canceled() *scenario {
	s.add(`<recv request="CANCEL"/>`).ok("")
	// The 487 is the response to the INVITE, so the method in its CSeq must be INVITE and not CANCEL.
	return s.add(`<send><![CDATA[

SIP/2.0 487 Request Terminated
[last_Via:]
[last_From:]
[last_To:]` + ownTag + `
[last_Call-ID:]
CSeq: [$cseq] INVITE
Content-Length: 0

]]></send>`).hear("ACK")
}

func (s *scenario) play(t *testing.T, protocol string, more ...string) (peer *peertest.Program, port int) {
	t.Helper()
	peertest.Installed(t, "sipp")
	dir := t.TempDir()
	text := `<?xml version="1.0" encoding="ISO-8859-1" ?>` + "\n<scenario name=\"x\">\n" + strings.Join(s.steps, "\n") + "\n"
	if used := text; !strings.Contains(used, "[$1]") {
		text += "<Reference variables=\"1\"/>\n"
	}
	for name, marker := range map[string]string{"2": "[$2]", "3": "[$3]"} {
		if !strings.Contains(text, marker) {
			text += "<Reference variables=\"" + name + "\"/>\n"
		}
	}
	text += "</scenario>\n"
	text = strings.ReplaceAll(text, "[$cseq]", "[cseq]")
	file := filepath.Join(dir, "far.xml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	port = peertest.Port(t)
	mode := map[string]string{transport.UDP: "u1", transport.TCP: "t1"}[protocol]
	args := append([]string{
		"-sf", file, "-i", "127.0.0.1", "-p", strconv.Itoa(port), "-t", mode, "-m", "1", "-nostdin", "-timeout", "25s", "-timeout_error",
		"-mp", strconv.Itoa(peertest.Port(t)), "-trace_err", "-error_file", filepath.Join(dir, "errors"),
	}, more...)
	peer = peertest.Start(t, dir, "sipp", args...)
	if err := peer.Listens(strings.ToLower(protocol), port); err != nil {
		t.Fatal(err)
	}
	return peer, port
}

func against(t *testing.T, protocol string, s *scenario, more ...string) (*fixture, *peertest.Program) {
	t.Helper()
	peer, port := s.play(t, protocol, more...)
	return &fixture{t: t, agent: newAgent(t), trunk: sip.Trunk{
		Name: "sipp", Host: "127.0.0.1", Port: port, Transport: protocol, CallerID: sip.InFrom,
	}}, peer
}
