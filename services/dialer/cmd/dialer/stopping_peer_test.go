package main

import (
	"strings"
	"syscall"
	"testing"

	"ringfence.dev/libs/testkit/peertest"
)

const calledBySipp = `<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="phone">
<send retrans="500"><![CDATA[

INVITE sip:[service]@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:+14155550001@[local_ip]:[local_port]>;tag=[pid]a[call_number]
To: <sip:[service]@[remote_ip]:[remote_port]>
Call-ID: [call_id]
CSeq: 1 INVITE
Contact: <sip:phone@[local_ip]:[local_port]>
Max-Forwards: 70
Content-Type: application/sdp
Content-Length: [len]

v=0
o=phone 1 1 IN IP[media_ip_type] [media_ip]
s=-
c=IN IP[media_ip_type] [media_ip]
t=0 0
m=audio [media_port] RTP/AVP 0
a=rtpmap:0 PCMU/8000
]]></send>
<recv response="100" optional="true"/>
<recv response="180" optional="true"/>
<recv response="200" rrs="true"/>
<send><![CDATA[

ACK [next_url] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:+14155550001@[local_ip]:[local_port]>;tag=[pid]a[call_number]
To: <sip:[service]@[remote_ip]:[remote_port]>[peer_tag_param]
Call-ID: [call_id]
CSeq: 1 ACK
Max-Forwards: 70
Content-Length: 0

]]></send>
<recv request="BYE"/>
<send><![CDATA[

SIP/2.0 200 OK
[last_Via:]
[last_From:]
[last_To:]
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>
</scenario>
`

// sipp reports an error if no BYE arrives.
func TestStop_SecondSignalSendsBYE(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	r, p, address := newAnsweringRig(t, "1h")
	phone := callIn(t, calledBySipp, "127.0.0.1", peertest.Port(t), address, "-s", agentNumber)
	await(t, "the call is answered", func() bool {
		var answered int
		err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM sip_legs WHERE answered_at IS NOT NULL").Scan(&answered)
		return err == nil && answered == 1
	})
	for range 2 {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatalf("signal: %v", err)
		}
		await(t, "the dialer drains", func() bool {
			return strings.Contains(p.output(), "waiting for live calls")
		})
	}
	phone.Ends(t)
}
