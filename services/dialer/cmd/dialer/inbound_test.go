package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"ringfence.dev/libs/peertest"
)

// strange is a sipp scenario of a call to an unassigned number. Any response before the 404, except 100,
// makes it fail.
const strange = `<?xml version="1.0" encoding="ISO-8859-1" ?>
<scenario name="caller">
<send retrans="500"><![CDATA[

INVITE sip:+14155559999@[remote_ip]:[remote_port] SIP/2.0
Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]
From: <sip:+14155550100@[local_ip]:[local_port]>;tag=[call_number]
To: <sip:+14155559999@[remote_ip]:[remote_port]>
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
<recv response="404"/>
<send><![CDATA[

ACK sip:+14155559999@[remote_ip]:[remote_port] SIP/2.0
[last_Via:]
[last_From:]
[last_To:]
[last_Call-ID:]
CSeq: 1 ACK
Max-Forwards: 70
Content-Length: 0

]]></send>
</scenario>
`

// A call to an unassigned number is refused with 404 and does not ring.
func TestInbound_UnassignedNumberIsNotFound(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	r := newRig(t, "0")
	address := freeAddr(t)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+address)
	port := peertest.Port(t)
	r.addTrunk(p, port, "")
	_, listens, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "caller.xml")
	if err := os.WriteFile(file, []byte(strange), 0o600); err != nil {
		t.Fatal(err)
	}
	caller := peertest.Start(t, dir, "sipp", "-sf", file, "-i", "127.0.0.1", "-p", strconv.Itoa(port), "-t", "u1",
		"-m", "1", "-nostdin", "-timeout", "60s", "-timeout_error",
		"-mp", strconv.Itoa(peertest.Port(t)), "127.0.0.1:"+listens)
	caller.Ends(t)
}
