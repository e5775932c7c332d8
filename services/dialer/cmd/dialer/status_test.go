package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDialer_ShowsItsListeningAddresses(t *testing.T) {
	t.Parallel()
	r, address := newRig(t, "0"), freeAddr(t)
	p := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+address, "RTP_PORT_LOW=31000", "RTP_PORT_HIGH=31998")
	var response map[string]any
	await(t, "the process has stored its report for operators", func() bool {
		var status int
		status, response = r.asOperator("GET", "http://"+p.addr+"/admin/v1/dialer", "")
		return status == 200 && len(response["replicas"].([]any)) == 1
	})
	want := map[string]any{
		"udp": address, "tcp": "", "tls": "", "advertised": "127.0.0.1", "rtp": "127.0.0.1 ports 31000 to 31998",
	}
	if diff := cmp.Diff(want, response["replicas"].([]any)[0].(map[string]any)["sip"]); diff != "" {
		t.Errorf("sip differs (-want +got):\n%s", diff)
	}
	if log := p.output(); !strings.Contains(log, "SIP listening") {
		t.Errorf("log = %q, want a line SIP listening", log)
	}
	queue := response["queue"].(map[string]any)
	if got := queue["due"]; got != 0.0 {
		t.Errorf("due requests = %v, want 0", got)
	}
}
