package auth

import (
	"net/http"
	"net/netip"
	"testing"
)

// FuzzClient checks the address by which a request is counted. It must be the address of the
// connection, or the address in X-Forwarded-For before a trusted proxy. It must never be a text
// that the client chose.
func FuzzClient(f *testing.F) {
	for _, peer := range []string{"198.51.100.7:1", "10.0.0.1:1", "[2001:db8::1]:1", "[::ffff:10.0.0.1]:1", "[fe80::1%eth0]:1", "pipe", ""} {
		for _, hops := range []string{"", "203.0.113.9", "203.0.113.9, 10.0.0.2", "10.0.0.2,10.0.0.3", "2001:db8:1:2:3:4:5:6", "::ffff:203.0.113.9", "fe80::1%a", "x", ",", " , ,", "203.0.113.9:80",
			"[2001:db8::1]", "999.1.1.1", "010.0.0.1", "\x00", "10.0.0.2,\xff"} {
			f.Add(peer, hops)
		}
	}
	proxies, err := ParseProxies([]string{"10.0.0.0/8", "2001:db8::1"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, peer, hops string) {
		r := &http.Request{RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": {hops}}}
		client := proxies.Client(r)
		if without := (Proxies(nil)).Client(r); without != (Proxies(nil)).Client(&http.Request{RemoteAddr: peer, Header: http.Header{}}) {
			t.Errorf("Client(%q, X-Forwarded-For %q) = %q, want the peer: no proxy is trusted", peer, hops, without)
		}
		if client == peer || client == (Proxies(nil)).Client(r) {
			return
		}
		if _, err := netip.ParseAddr(client); err == nil {
			return
		}
		network, err := netip.ParsePrefix(client)
		if err != nil {
			t.Fatal(err)
		}
		if network.Bits() != 64 {
			t.Errorf("network.Bits() = %v, want 64", network.Bits())
		}
		if network != network.Masked() {
			t.Errorf("network = %v, want %v", network, network.Masked())
		}
	})
}

// FuzzParseProxies checks that ParseProxies either refuses a list or returns networks that contain
// each address of the list.
func FuzzParseProxies(f *testing.F) {
	for _, entry := range []string{"10.0.0.0/8", "10.0.0.1/8", "::/0", "fe80::1%eth0", "10.0.0.1", "", " ", "x", "10.0.0.0/33", "\x00", "::ffff:10.0.0.0/104"} {
		f.Add(entry)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		proxies, err := ParseProxies([]string{entry})
		if err != nil {
			return
		}
		for _, network := range proxies {
			if !network.IsValid() {
				t.Errorf("%q: network.IsValid() = false, want true", entry)
			} else if network != network.Masked() {
				t.Errorf("%q: network = %v, want %v", entry, network, network.Masked())
			}
		}
	})
}
