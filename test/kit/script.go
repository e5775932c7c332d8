package kit

import (
	"fmt"
	"strings"
)

// Script returns a sipp scenario for INVITEs. The regular expression pattern is applied to the
// dialed number. Its groups set the variables in named, which select one of the branches.
func Script(pattern string, named []string, branches ...string) string {
	return `<?xml version="1.0" encoding="UTF-8" ?><!DOCTYPE scenario SYSTEM "sipp.dtd"><scenario name="farm">
<recv request="INVITE" crlf="true"><action><ereg regexp="sip:[^@]*` + pattern + `@" search_in="msg" check_it="true" assign_to="whole,` + strings.Join(named, ",") + `"/>
<log message="[$whole] [$` + strings.Join(named, "] [$") + `]"/></action></recv>` + strings.Join(branches, "") + `</scenario>`
}

// When returns a branch of the scenario. sipp executes the branch if the variable has one of the
// values. No other branch may use the labels label and label+1.
func When(label int, variable string, values []int, steps string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<nop><action><todouble assign_to="n%d" variable="%s"/></action></nop>`, label, variable)
	for i, value := range values {
		fmt.Fprintf(&b, `<nop><action><test assign_to="is%d_%d" variable="n%d" compare="equal" value="%d"/></action></nop><nop next="%d" test="is%d_%d"/>`, label, i, label, value, label, label, i)
	}
	fmt.Fprintf(&b, `<nop next="%d"/><label id="%d"/>%s<nop next="%d"/><label id="%d"/>`, label+1, label, steps, End,
		label+1)
	return b.String()
}

// End is the label after the last branch of a scenario.
const End = 1000

// Over returns the end of a scenario.
func Over() string { return fmt.Sprintf(`<label id="%d"/><pause milliseconds="1"/>`, End) }

// inviteMessage returns a message that sipp sends within the transaction of the INVITE.
func inviteMessage(status, cseq, more, attributes string) string {
	return fmt.Sprintf(`<send %s><![CDATA[SIP/2.0 %s
[last_Via:]
[last_From:]
[last_To:];tag=[pid]farm[call_number]
[last_Call-ID:]
%s
Contact: <sip:[local_ip]:[local_port];transport=[transport]>
%s

]]></send>`, attributes, status, cseq, more)
}

const (
	sameCSeq   = "[last_CSeq:]"
	inviteCSeq = "CSeq: 1 INVITE"
	empty      = "Content-Length: 0"
	audio      = `Content-Type: application/sdp
Content-Length: [len]

v=0
o=farm 1 1 IN IP[local_ip_type] [local_ip]
s=-
c=IN IP[media_ip_type] [media_ip]
t=0 0
m=audio [media_port] RTP/AVP 0
a=rtpmap:0 PCMU/8000`
)

// Respond returns a step that sends a response to the INVITE, for example "180 Ringing". The
// parameter headers contains additional headers.
func Respond(status string, headers ...string) string {
	return inviteMessage(status, sameCSeq, strings.Join(append(headers, empty), "\n"), "")
}

// Reject returns a step that sends a final response. sipp repeats the response until the ACK.
func Reject(status string, headers ...string) string {
	return inviteMessage(status, sameCSeq, strings.Join(append(headers, empty), "\n"), `retrans="500"`) +
		`<recv request="ACK" crlf="true"></recv>`
}

// ExpectCancel returns steps that wait for a CANCEL and respond to the CANCEL and to the INVITE.
func ExpectCancel() string {
	return `<recv request="CANCEL"></recv>` + inviteMessage("200 OK", sameCSeq, empty, "") +
		inviteMessage("487 Request Terminated", inviteCSeq, empty, `retrans="500"`) +
		`<recv request="ACK" crlf="true"></recv>`
}

// AnswerDespiteCancel returns steps that wait for a CANCEL, respond to the CANCEL, and answer the
// call anyway.
func AnswerDespiteCancel() string {
	return `<recv request="CANCEL"></recv>` + inviteMessage("200 OK", sameCSeq, empty, "") +
		`<pause milliseconds="300"/>` + inviteMessage("200 OK", inviteCSeq, audio, `retrans="500"`) +
		`<recv request="ACK" crlf="true"></recv>` + ExpectBye()
}

// RingThen returns steps that ring. If no CANCEL arrives within the time, nextSteps follow. For
// label see When.
func RingThen(label, milliseconds int, nextSteps string) string {
	return Respond("180 Ringing") + fmt.Sprintf(`<recv request="CANCEL" timeout="%d" ontimeout="%d"></recv>`, milliseconds, label) +
		inviteMessage("200 OK", sameCSeq, empty, "") + inviteMessage("487 Request Terminated", inviteCSeq, empty,
		`retrans="500"`) + fmt.Sprintf(`<recv request="ACK" crlf="true" next="%d"></recv><label id="%d"/>`, End,
		label) + nextSteps
}

// Answer returns steps that answer the call.
func Answer() string {
	return inviteMessage("200 OK", inviteCSeq, audio, `retrans="500"`) +
		`<recv request="ACK" crlf="true"><action><ereg regexp=".*" search_in="hdr" header="From:" assign_to="peer"/>` +
		`<log message="[$peer]"/></action></recv>`
}

// ExpectBye returns steps that wait until the other side hangs up.
func ExpectBye() string {
	return `<recv request="BYE"></recv><send><![CDATA[SIP/2.0 200 OK
[last_Via:]
[last_From:]
[last_To:]
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>`
}

// HangUp returns steps that hang up, unless the other side hangs up within the time. For label see
// When.
func HangUp(label, milliseconds int) string {
	return fmt.Sprintf(`<recv request="BYE" timeout="%d" ontimeout="%d"></recv>`, milliseconds, label) + strings.TrimPrefix(ExpectBye(), `<recv request="BYE"></recv>`) +
		fmt.Sprintf(`<nop next="%d"/><label id="%d"/>`, End, label) + `<send retrans="500"><![CDATA[BYE sip:[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:farm@[local_ip]:[local_port]>;tag=[pid]farm[call_number]
To:[$peer]
[last_Call-ID:]
CSeq: 1 BYE
Max-Forwards: 70
Content-Length: 0

]]></send><recv response="200"></recv>`
}
