package sipcarrier

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"ringfence.dev/services/dialer/internal/sip/transport"
)

func TestMaskedParty_RemovesNamesAndMasksNumbers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, header, want string
	}{
		{name: "number", header: `"Bob" <sip:+14155550123@192.0.2.1:5060;user=phone>;tag=1`, want: "…0123@192.0.2.1:5060"},
		{name: "URI without brackets", header: "sip:14155550123@a.test;tag=1", want: "…0123@a.test"},
		{name: "tel URI", header: "<tel:+1-415-555-0123>", want: "…0123"},
		{name: "user name and password", header: "<sips:admin:secret@a.test>", want: "admin@a.test"},
		{name: "number after other text", header: "<sip:x\x1b[2J+14155550123@a.test>", want: "x[2J…0123@a.test"},
		{name: "short extension", header: "<sip:1001@a.test>", want: "1001@a.test"},
		{name: "no URI", header: "nothing", want: ""},
		{name: "empty header", header: "", want: ""},
		{name: "control characters", header: "<sip:a\x1b[2Jb\u202ec\u009b@x\x00>", want: "a[2Jbc@x"},
		{name: "invalid UTF-8", header: "<sip:a\xff\xfe@x>", want: "a@x"},
		{name: "long user part", header: "<sip:" + strings.Repeat("é", 500) + "@x>", want: strings.Repeat("é", 64)},
	}
	for _, tt := range tests {
		if got := maskedParty(tt.header); got != tt.want {
			t.Errorf("%s: party = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func FuzzMaskedParty(f *testing.F) {
	f.Add(`"Bob" <sip:+14155550123@192.0.2.1>;tag=1`)
	f.Add("<tel:\xff\x1b>")
	f.Fuzz(func(t *testing.T, header string) {
		got := maskedParty(header)
		if n := utf8.RuneCountInString(got); n > maxTextLength {
			t.Errorf("length of party(%q) = %d, want at most %d", header, n, maxTextLength)
		}
		if strings.ContainsAny(got, "\x00\x1b\r\n\u202e\u009b") {
			t.Errorf("party(%q) = %q, want no control character", header, got)
		}
	})
}

func TestRejectedCalls_ListContainsTheLast20Calls(t *testing.T) {
	t.Parallel()
	s := NewRejectedCalls()
	from := netip.MustParseAddrPort("192.0.2.7:5060")
	for n := range 50 {
		for range 3 {
			s.AddUnknown(transport.Rejected{
				Source: from, Transport: transport.UDP, CallID: fmt.Sprint(n), To: fmt.Sprintf("<sip:u%d@x>", n)})
		}
	}
	last := s.Last()
	if got, want := len(last), 20; got != want {
		t.Fatalf("attempts = %d, want %d", got, want)
	}
	if got, want := last[0].To, "u49@x"; got != want {
		t.Errorf("To of the newest attempt = %q, want %q", got, want)
	}
	if got, want := last[19].To, "u30@x"; got != want {
		t.Errorf("To of the oldest attempt = %q, want %q", got, want)
	}
	if got, want := last[0].Hint, "add 192.0.2.7 to its inbound_sources"; !strings.Contains(got, want) {
		t.Errorf("hint = %q, want it to contain %q", got, want)
	}
	if got, want := testutil.ToFloat64(s.counted.WithLabelValues("unknown_source")), 50.0; got != want {
		t.Errorf("counted attempts = %v, want %v", got, want)
	}
}

// Several connections from one address must be one entry of the list, but each connection must be
// counted.
func TestRejectedCalls_EachConnectionFromAnAddressIsCounted(t *testing.T) {
	t.Parallel()
	s := NewRejectedCalls()
	address := netip.MustParseAddr("192.0.2.7")
	s.AddUnknown(transport.Rejected{Source: netip.AddrPortFrom(address, 1001), Transport: transport.TCP})
	s.AddUnknown(transport.Rejected{Source: netip.MustParseAddrPort("192.0.2.8:1001"), Transport: transport.TCP})
	s.AddUnknown(transport.Rejected{Source: netip.AddrPortFrom(address, 1002), Transport: transport.TCP})
	last := s.Last()
	if got, want := len(last), 2; got != want {
		t.Fatalf("attempts = %d, want %d", got, want)
	}
	if got, want := last[0].Source, "192.0.2.7:1002"; got != want {
		t.Errorf("source of the newest attempt = %q, want %q", got, want)
	}
	if got, want := testutil.ToFloat64(s.counted.WithLabelValues("unknown_source")), 3.0; got != want {
		t.Errorf("counted connections = %v, want %v", got, want)
	}
}
