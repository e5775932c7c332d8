package kit

import (
	"fmt"
	"strings"
)

// Script is a whole scenario of sipp: an INVITE to a number whose last digits, as the pattern catches them, choose among branches. named are the variables that the pattern's groups fill.
func Script(pattern string, named []string, branches ...string) string {
	return `<?xml version="1.0" encoding="UTF-8" ?><!DOCTYPE scenario SYSTEM "sipp.dtd"><scenario name="farm">
<recv request="INVITE" crlf="true"><action><ereg regexp="sip:[^@]*` + pattern + `@" search_in="msg" check_it="true" assign_to="whole,` + strings.Join(named, ",") + `"/>
<log message="[$whole] [$` + strings.Join(named, "] [$") + `]"/></action></recv>` + strings.Join(branches, "") + `</scenario>`
}

// When plays what for numbers whose variable is one of the values. label is a number that no other branch has, nor its neighbour.
func When(label int, variable string, values []int, what string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<nop><action><todouble assign_to="n%d" variable="%s"/></action></nop>`, label, variable)
	for i, value := range values {
		fmt.Fprintf(&b, `<nop><action><test assign_to="is%d_%d" variable="n%d" compare="equal" value="%d"/></action></nop><nop next="%d" test="is%d_%d"/>`, label, i, label, value, label, label, i)
	}
	fmt.Fprintf(&b, `<nop next="%d"/><label id="%d"/>%s<nop next="%d"/><label id="%d"/>`, label+1, label, what, End, label+1)
	return b.String()
}

// End is the label behind everything; a script ends with Over.
const End = 1000

// Over is the end of a script.
func Over() string { return fmt.Sprintf(`<label id="%d"/><pause milliseconds="1"/>`, End) }

// said is a message of ours within the INVITE's transaction.
func said(status, cseq, more, attributes string) string {
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

// Says is a response to the INVITE, as 180 Ringing; headers are added.
func Says(status string, headers ...string) string {
	return said(status, sameCSeq, strings.Join(append(headers, empty), "\n"), "")
}

// Refuses is a final response, repeated until its ACK.
func Refuses(status string, headers ...string) string {
	return said(status, sameCSeq, strings.Join(append(headers, empty), "\n"), `retrans="500"`) + `<recv request="ACK" crlf="true"></recv>`
}

// Canceled waits for a CANCEL and answers it, and the INVITE.
func Canceled() string {
	return `<recv request="CANCEL"></recv>` + said("200 OK", sameCSeq, empty, "") + said("487 Request Terminated", inviteCSeq, empty, `retrans="500"`) + `<recv request="ACK" crlf="true"></recv>`
}

// CanceledTooLate waits for a CANCEL, answers it, and picks up all the same.
func CanceledTooLate() string {
	return `<recv request="CANCEL"></recv>` + said("200 OK", sameCSeq, empty, "") + `<pause milliseconds="300"/>` + said("200 OK", inviteCSeq, audio, `retrans="500"`) +
		`<recv request="ACK" crlf="true"></recv>` + HearsBye()
}

// RingsFor rings, and goes on when nobody cancels within the time. label is as in When, and another.
func RingsFor(label, milliseconds int, then string) string {
	return Says("180 Ringing") + fmt.Sprintf(`<recv request="CANCEL" timeout="%d" ontimeout="%d"></recv>`, milliseconds, label) +
		said("200 OK", sameCSeq, empty, "") + said("487 Request Terminated", inviteCSeq, empty, `retrans="500"`) + fmt.Sprintf(`<recv request="ACK" crlf="true" next="%d"></recv><label id="%d"/>`, End, label) + then
}

// Answers picks up.
func Answers() string {
	return said("200 OK", inviteCSeq, audio, `retrans="500"`) + `<recv request="ACK" crlf="true"><action><ereg regexp=".*" search_in="hdr" header="From:" assign_to="peer"/><log message="[$peer]"/></action></recv>`
}

// HearsBye waits for the other side to hang up.
func HearsBye() string {
	return `<recv request="BYE"></recv><send><![CDATA[SIP/2.0 200 OK
[last_Via:]
[last_From:]
[last_To:]
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>`
}

// SaysBye hangs up when the other side has not within the time. label is as in When, and another.
func SaysBye(label, milliseconds int) string {
	return fmt.Sprintf(`<recv request="BYE" timeout="%d" ontimeout="%d"></recv>`, milliseconds, label) + strings.TrimPrefix(HearsBye(), `<recv request="BYE"></recv>`) +
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
