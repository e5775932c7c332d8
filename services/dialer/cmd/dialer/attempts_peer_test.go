package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/services/dialer/internal/callstate"
)

func refusing(status string) string {
	return `<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="trunk">
<recv request="OPTIONS" optional="true" next="options"/>
<recv request="INVITE"/>
<send next="end"><![CDATA[

SIP/2.0 ` + status + `
[last_Via:]
[last_From:]
[last_To:];tag=[call_number]b
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>
` + optionsAndEnd
}

const ringing = `<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="trunk">
<recv request="OPTIONS" optional="true" next="options"/>
<recv request="INVITE"/>
<send><![CDATA[

SIP/2.0 180 Ringing
[last_Via:]
[last_From:]
[last_To:];tag=[call_number]b
[last_Call-ID:]
[last_CSeq:]
Contact: <sip:callee@[local_ip]:[local_port]>
Content-Length: 0

]]></send>
<recv request="CANCEL"/>
<send><![CDATA[

SIP/2.0 200 OK
[last_Via:]
[last_From:]
[last_To:];tag=[call_number]b
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>
<send><![CDATA[

SIP/2.0 487 Request Terminated
[last_Via:]
[last_From:]
[last_To:];tag=[call_number]b
[last_Call-ID:]
CSeq: 1 INVITE
Content-Length: 0

]]></send>
<recv request="ACK" next="end"/>
` + optionsAndEnd

const optionsAndEnd = `<label id="options"/>
<send><![CDATA[

SIP/2.0 200 OK
[last_Via:]
[last_From:]
[last_To:];tag=[call_number]o
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>
<label id="end"/>
</scenario>
`

const conversing = `<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="caller">
<send retrans="500"><![CDATA[

INVITE sip:+14155559000@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:+14155550100@[local_ip]:[local_port]>;tag=[call_number]
To: <sip:+14155559000@[remote_ip]:[remote_port]>
Call-ID: [call_id]
CSeq: 1 INVITE
Contact: <sip:caller@[local_ip]:[local_port]>
Max-Forwards: 70
Content-Type: application/sdp
Content-Length: [len]

v=0
o=user1 53655765 2353687637 IN IP[local_ip_type] [local_ip]
s=-
c=IN IP[media_ip_type] [media_ip]
t=0 0
m=audio [media_port] RTP/AVP 0

]]></send>
<recv response="100" optional="true"/>
<recv response="180" optional="true"/>
<recv response="200"/>
<send><![CDATA[

ACK sip:+14155559000@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
[last_From:]
[last_To:]
[last_Call-ID:]
CSeq: 1 ACK
Max-Forwards: 70
Content-Length: 0

]]></send>
<send retrans="500"><![CDATA[

BYE sip:+14155559000@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
[last_From:]
[last_To:]
[last_Call-ID:]
CSeq: 2 BYE
Max-Forwards: 70
Content-Length: 0

]]></send>
<recv response="200"/>
</scenario>
`

func startLogging(t *testing.T, scenario string) (port int, received func() string) {
	t.Helper()
	peertest.Installed(t, "sipp")
	dir := t.TempDir()
	file, messages := filepath.Join(dir, "trunk.xml"), filepath.Join(dir, "messages")
	if err := os.WriteFile(file, []byte(scenario), 0o600); err != nil {
		t.Fatal(err)
	}
	port = peertest.Port(t)
	peer := peertest.Start(t, dir, "sipp", "-sf", file, "-i", "127.0.0.1", "-p", strconv.Itoa(port), "-t", "u1",
		"-nostdin", "-mp", strconv.Itoa(peertest.Port(t)), "-trace_msg", "-message_file", messages,
		"-trace_err", "-error_file", filepath.Join(dir, "errors"))
	if err := peer.Listens("udp", port); err != nil {
		t.Fatal(err)
	}
	return port, func() string {
		text, err := os.ReadFile(messages)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

type attempt struct {
	CallID    string  `json:"call_id"`
	Direction string  `json:"direction"`
	Attempt   *int    `json:"attempt"`
	Trunk     string  `json:"trunk"`
	SIPCallID string  `json:"sip_call_id"`
	SIPStatus *int    `json:"sip_status"`
	SIPReason *string `json:"sip_reason"`
	Cause     *string `json:"hangup_cause"`
	ByUs      *bool   `json:"hung_up_by_us"`
	Error     *string `json:"error"`
	EndedAt   *string `json:"ended_at"`
}

func (r *rig) attempts(p *process, of uuid.UUID) []attempt {
	r.t.Helper()
	status, response := r.admin(p, "GET", "/attempts?of="+of.String(), "")
	if status != 200 {
		r.t.Fatalf("GET attempts = %d %v, want 200", status, response)
	}
	encoded, err := json.Marshal(response["data"])
	if err != nil {
		r.t.Fatal(err)
	}
	var found []attempt
	if err := json.Unmarshal(encoded, &found); err != nil {
		r.t.Fatal(err)
	}
	for i := range len(found) / 2 {
		found[i], found[len(found)-1-i] = found[len(found)-1-i], found[i]
	}
	return found
}

func TestAttempts_ListShowsTheResponseOfEachTrunk(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	full, atFull := startLogging(t, refusing("503 All Lines In Use"))
	busy, atBusy := startLogging(t, refusing("486 Busy Here"))
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
	url := "http://" + p.addr + "/admin/v1/trunks"
	for _, body := range []string{
		`{"name":"full","host":"127.0.0.1","priority":1,"port":` + strconv.Itoa(full) + `}`,
		`{"name":"busy","host":"127.0.0.1","priority":2,"port":` + strconv.Itoa(busy) + `}`,
	} {
		if status, response := r.asOperator("POST", url, body); status != 201 {
			t.Fatalf("POST trunk = %d %v, want 201", status, response)
		}
	}
	await(t, "both trunks answered OPTIONS", func() bool {
		return strings.Contains(atFull(), "200 OK") && strings.Contains(atBusy(), "200 OK")
	})
	id := r.request("+14155551311")
	end := last(r.ends(id)).GetCall()
	first, second, no := 1, 2, false
	unavailable, busyHere := 503, 486
	reasons := []string{"All Lines In Use", "Busy Here"}
	causes := []string{string(callstate.NormalTemporaryFailure), string(callstate.UserBusy)}
	want := []attempt{
		{
			Direction: "outbound", Attempt: &first, Trunk: "full", SIPStatus: &unavailable, SIPReason: &reasons[0],
			Cause: &causes[0], ByUs: &no,
		},
		{
			Direction: "outbound", Attempt: &second, Trunk: "busy", SIPStatus: &busyHere, SIPReason: &reasons[1],
			Cause: &causes[1], ByUs: &no,
		},
	}
	got := r.attempts(p, id)
	if len(got) != len(want) {
		t.Fatalf("attempts = %d, want %d", len(got), len(want))
	}
	for i, logged := range []func() string{atFull, atBusy} {
		await(t, "sipp logged the Call-ID of the attempt", func() bool {
			return strings.Contains(logged(), "Call-ID: "+got[i].SIPCallID+"\r\n")
		})
		if got[i].EndedAt == nil {
			t.Errorf("attempt %d: ended_at = null, want a time", i+1)
		}
		line := `sip_call_id=` + got[i].SIPCallID + ` trunk=` + got[i].Trunk + ` direction=outbound`
		if !strings.Contains(p.output(), line) {
			t.Errorf("log does not contain %q", line)
		}
		want[i].CallID, want[i].SIPCallID, want[i].EndedAt = got[i].CallID, got[i].SIPCallID, got[i].EndedAt
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	if got, want := got[1].CallID, end.GetCallId(); got != want {
		t.Errorf("call_id of the last attempt = %q, want %q", got, want)
	}
	if strings.Contains(p.output(), "to=+14155551311") {
		t.Error("log contains the number of the callee, want it masked")
	}
}

// The process is killed directly after it sends the INVITE. The Call-ID must already be stored.
func TestAttempts_CallIDIsStoredBeforeTheINVITEIsSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	port, received := startLogging(t, ringing)
	env := []string{"CARRIER=sip", "SIP_UDP_ADDR=" + freeAddr(t)}
	p := r.dialer(env...)
	r.addTrunk(p, port, "")
	id := r.request("+14155551312")
	await(t, "the phone rings", func() bool { return strings.Contains(received(), "180 Ringing") })
	p.kill()
	p = r.dialer(env...)
	r.ends(id)
	found := r.attempts(p, id)
	if len(found) != 1 {
		t.Fatalf("attempts = %d, want 1", len(found))
	}
	if want := "Call-ID: " + found[0].SIPCallID + "\r\n"; !strings.Contains(received(), want) {
		t.Errorf("sipp did not log %q", want)
	}
	if got, want := found[0].Trunk, "far"; got != want {
		t.Errorf("trunk = %q, want %q", got, want)
	}
	if found[0].SIPStatus != nil {
		t.Errorf("SIP status = %d, want null", *found[0].SIPStatus)
	}
	if got, want := text(found[0].Error), "the process that held the call ended"; got != want {
		t.Errorf("error = %q, want %q", got, want)
	}
}

func text(of *string) string {
	if of == nil {
		return ""
	}
	return *of
}

func TestAttempts_InboundCallHasTheCallersCallID(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	r := newRig(t, "0")
	address, port := freeAddr(t), peertest.Port(t)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+address)
	r.addTrunk(p, port, "")
	body := `{"phone_e164":"+14155559000","agent_id":"` + r.agent.String() + `"}`
	if status, response := r.admin(p, "POST", "/numbers", body); status != 201 {
		t.Fatalf("POST numbers = %d %v, want 201", status, response)
	}
	callIn(t, conversing, "127.0.0.1", port, address, "-cid_str", "caller-%u@sipp.example").Ends(t)
	var id uuid.UUID
	await(t, "the call ended", func() bool {
		const ended = "SELECT call_id FROM calls WHERE direction = 'inbound' AND ended_at IS NOT NULL"
		return r.pool.QueryRow(t.Context(), ended).Scan(&id) == nil
	})
	answered, ok, normal, no, ended := 200, "OK", string(callstate.NormalClearing), false, ""
	want := []attempt{{
		CallID: id.String(), Direction: "inbound", Trunk: "far", SIPCallID: "caller-1@sipp.example", SIPStatus: &answered,
		SIPReason: &ok, Cause: &normal, ByUs: &no, EndedAt: &ended,
	}}
	got := r.attempts(p, id)
	for i := range got {
		if got[i].EndedAt != nil {
			got[i].EndedAt = &ended
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
}

func TestAttempts_RedirectIsNotReportedAsAMissingNumber(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	port := startTrunk(t, refusing("302 Moved Temporarily\nContact: <sip:+14155551313@127.0.0.1:9>"))
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
	r.addTrunk(p, port, "")
	id := r.request("+14155551313")
	end := last(r.ends(id)).GetCall()
	if got, want := end.GetHangupCause(), string(callstate.NoRouteDestination); got != want {
		t.Errorf("hangup cause = %q, want %q", got, want)
	}
	if got, want := end.GetDisposition(), "unreachable"; got != want {
		t.Errorf("disposition = %q, want %q", got, want)
	}
	if got, want := end.GetErrorCode(), callstate.CodeInvalidNumber; got != want {
		t.Errorf("error code = %q, want %q", got, want)
	}
	want := "The operator's trunk redirected the call or has no route to the number; neither means that the number " +
		"does not exist. Check the number, or ask your operator to check the trunk."
	if got := end.GetErrorDetail(); got != want {
		t.Errorf("error detail = %q, want %q", got, want)
	}
	found := r.attempts(p, id)
	if len(found) != 1 {
		t.Fatalf("attempts = %d, want 1", len(found))
	}
	if found[0].SIPStatus == nil || *found[0].SIPStatus != 302 {
		t.Errorf("SIP status = %v, want 302", found[0].SIPStatus)
	}
}
