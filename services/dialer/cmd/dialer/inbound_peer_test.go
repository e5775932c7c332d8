package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/proto/eventv1"
)

// unassignedScenario fails if any response except 100 arrives before the 404.
const unassignedScenario = `<?xml version="1.0" encoding="ISO-8859-1" ?>
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

func callIn(t *testing.T, scenario, from string, port int, to string, more ...string) *peertest.Program {
	t.Helper()
	peertest.Installed(t, "sipp")
	dir := t.TempDir()
	file := filepath.Join(dir, "caller.xml")
	if err := os.WriteFile(file, []byte(scenario), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"-sf", file, "-i", from, "-mi", from, "-p", strconv.Itoa(port), "-mp", strconv.Itoa(peertest.Port(t)), "-t", "u1",
		"-m", "1", "-nostdin", "-timeout", "60s", "-timeout_error", "-trace_err", "-error_file", "/dev/stderr",
	}
	return peertest.Start(t, dir, "sipp", append(append(args, more...), to)...)
}

func (r *rig) assignNumber(p *process) {
	r.t.Helper()
	body := `{"phone_e164":"` + agentNumber + `","agent_id":"` + r.agent.String() + `"}`
	if status, answer := r.admin(p, "POST", "/numbers", body); status != 201 {
		r.t.Fatalf("POST numbers = %d %v, want 201", status, answer)
	}
}

func TestInbound_CallToUnassignedNumberIsRejectedWith404(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	r, address, port := newRig(t, "0"), freeAddr(t), peertest.Port(t)
	r.addTrunk(r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+address), port, "")
	callIn(t, unassignedScenario, "127.0.0.1", port, address).Ends(t)
}

// The caller's IP address belongs to two trunks. If the dialer selected the first trunk, it would
// respond 488.
func TestInbound_TransportAndPortOfTheCallSelectTheTrunk(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, first string
		// If disabled is true, the first trunk has the transport and port of the call, but it is
		// disabled.
		disabled bool
	}{
		{name: "first trunk has another transport", first: `,"transport":"tls","srtp":"required"`},
		{name: "first trunk has another port", first: `,"codecs":["pcma"]`},
		{name: "first trunk is disabled", first: `,"codecs":["pcma"]`, disabled: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			peertest.Installed(t, "sipp")
			r, address, port := newRig(t, "0"), freeAddr(t), peertest.Port(t)
			p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+address)
			first := peertest.Port(t)
			if test.disabled {
				first = port
			}
			path := r.addTrunk(p, first, `,"priority":1`+test.first)
			if test.disabled {
				r.patchTrunk(path, `{"status":"disabled"}`)
			}
			second := `{"name":"second","priority":2,"host":"127.0.0.1","port":%d,"inbound_sources":["127.0.0.66"]}`
			url := "http://" + p.addr + "/admin/v1/trunks"
			if status, answer := r.asOperator("POST", url, fmt.Sprintf(second, port)); status != 201 {
				t.Fatalf("POST trunk = %d %v, want 201", status, answer)
			}
			r.setAgent(`{"script":{"tone_hz":440,"tone_millis":200,"end_after_millis":400}}`)
			r.assignNumber(p)
			// A response to this call shows that the dialer has loaded the second trunk.
			callIn(t, unassignedScenario, "127.0.0.66", peertest.Port(t), address).Ends(t)
			callIn(t, calledBySipp, "127.0.0.1", port, address, "-s", agentNumber).Ends(t)
			var trunk string
			await(t, "the call has an attempt", func() bool {
				var id uuid.UUID
				const inbound = "SELECT call_id FROM calls WHERE direction = 'inbound'"
				if r.pool.QueryRow(t.Context(), inbound).Scan(&id) != nil {
					return false
				}
				for _, one := range r.attempts(p, id) {
					trunk = one.Trunk
				}
				return trunk != ""
			})
			if want := "second"; trunk != want {
				t.Errorf("trunk of the call = %q, want %q", trunk, want)
			}
		})
	}
}

func TestInbound_IPv6CallIsAnswered(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	r, model, port := newRig(t, "0"), echoedModel(t), peertest.Port(t)
	_, own, err := net.SplitHostPort(freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("::1", own)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+address, "SIP_ADVERTISED_ADDR=::1", "RTP_ADDR=::1",
		"REALTIME_URL="+model.URL, "REALTIME_KEY=x")
	trunk := fmt.Sprintf(`{"name":"far","host":"::1","port":%d}`, port)
	if status, answer := r.asOperator("POST", "http://"+p.addr+"/admin/v1/trunks", trunk); status != 201 {
		t.Fatalf("POST trunk = %d %v, want 201", status, answer)
	}
	r.setAgent(quietAgent)
	r.assignNumber(p)
	callIn(t, calledBySipp, "::1", port, address, "-s", agentNumber, "-rtp_echo").Ends(t)
	if got := len(model.Sent("input_audio_buffer.speech_started")); got == 0 {
		t.Errorf("times that the model heard speech = %d, want more", got)
	}
	await(t, "the inbound call is completed", func() bool {
		var completed int
		const query = "SELECT count(*) FROM calls WHERE direction = 'inbound' AND status = 'completed'"
		return r.pool.QueryRow(t.Context(), query).Scan(&completed) == nil && completed == 1
	})
}

// The caller can receive 180 before the 486, because the hold is made while the call rings.
func TestInbound_CallWithoutSufficientCreditReceives486(t *testing.T) {
	t.Parallel()
	peertest.Installed(t, "sipp")
	address, port := freeAddr(t), peertest.Port(t)
	r, p := priced(t, "0", &eventv1.InboundSettings{
		PerMinuteMicro: 20_000, IncrementSeconds: 6, MaxConcurrent: 7, MaxCallSeconds: 90,
	}, "CARRIER=sip", "SIP_UDP_ADDR="+address)
	r.wallet.answer = func(*billingv1.HoldRequest, int) (*billingv1.HoldResponse, error) { return insufficient(), nil }
	r.addTrunk(p, port, "")
	scenario := strings.NewReplacer("+14155559999", inboundLine,
		`<recv response="404"/>`, `<recv response="180" optional="true"/><recv response="486"/>`).Replace(unassignedScenario)
	callIn(t, scenario, "127.0.0.1", port, address).Ends(t)
	await(t, "the call is stored as busy", func() bool {
		var busy int
		const query = "SELECT count(*) FROM calls WHERE direction = 'inbound' AND status = 'busy'"
		return r.pool.QueryRow(t.Context(), query).Scan(&busy) == nil && busy == 1
	})
}
