package transport

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/emiago/sipgo/sip"
	"github.com/google/go-cmp/cmp"
)

func TestFilterDatagram_ReportsDroppedINVITEs(t *testing.T) {
	t.Parallel()
	const source = "192.0.2.7:5060"
	long := strings.Repeat("x", 1000)
	tests := []struct {
		name, message string
		want          []Rejected
	}{
		{
			name:    "INVITE",
			message: "INVITE sip:a SIP/2.0\r\nf: <sip:b@c>\r\nTo: <sip:a>\r\nCall-ID: 1\r\nUser-Agent: scanner\r\n\r\n",
			want:    []Rejected{{CallID: "1", From: "<sip:b@c>", To: "<sip:a>", UserAgent: "scanner"}},
		},
		{name: "INVITE without headers", message: "INVITE sip:a", want: []Rejected{{}}},
		{name: "INVITE with a long header", message: "INVITE sip:a\r\nTo: " + long + "\r\n",
			want: []Rejected{{To: long[:256]}}},
		{name: "OPTIONS", message: "OPTIONS sip:a SIP/2.0\r\nTo: <sip:a>\r\n\r\n"},
		{name: "empty datagram", message: ""},
	}
	for _, tt := range tests {
		var got []Rejected
		l := &Transport{pending: map[string]int{}, cfg: Config{
			Admit: func(netip.Addr) bool { return false }, Rejected: func(s Rejected) { got = append(got, s) },
		}}
		from := sip.TransportReadProps{Transport: UDP, RemoteAddr: net.UDPAddrFromAddrPort(netip.MustParseAddrPort(source))}
		left, err := l.filterDatagram(from, []byte(tt.message))
		if err != nil {
			t.Errorf("%s: filter: %v", tt.name, err)
		}
		if len(left) != 0 {
			t.Errorf("%s: filter returned %q, want nothing", tt.name, left)
		}
		for i := range tt.want {
			tt.want[i].Source, tt.want[i].Transport = netip.MustParseAddrPort(source), UDP
		}
		if diff := cmp.Diff(tt.want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
			t.Errorf("%s: rejected sources differ (-want +got):\n%s", tt.name, diff)
		}
	}
}
