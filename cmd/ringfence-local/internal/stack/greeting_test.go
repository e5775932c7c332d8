package stack

import (
	"encoding/json"
	"testing"
)

func TestSIPProcessString_ContainsAllAddresses(t *testing.T) {
	t.Parallel()
	const process = `{"sip":{"udp":"127.0.0.1:5060","tcp":"","tls":"0.0.0.0:5061","advertised":"192.0.2.1",
		"rtp":"127.0.0.1 ports 10000 to 20000"}}`
	var one sipProcess
	if err := json.Unmarshal([]byte(process), &one); err != nil {
		t.Fatal(err)
	}
	want := "SIP: UDP 127.0.0.1:5060 TLS 0.0.0.0:5061. Trunks reach it at 192.0.2.1. " +
		"Audio: 127.0.0.1 ports 10000 to 20000."
	if got := one.String(); got != want {
		t.Errorf("line = %q, want %q", got, want)
	}
}
