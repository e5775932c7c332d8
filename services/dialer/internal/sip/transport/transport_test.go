package transport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/emiago/sipgo/sip"
)

type book struct {
	hosts map[string]string
	srv   map[string][]*net.SRV
}

func (b book) LookupIPAddr(_ context.Context, host string) ([]net.IPAddr, error) {
	if ip := net.ParseIP(b.hosts[host]); ip != nil {
		return []net.IPAddr{{IP: net.ParseIP("2001:db8::1")}, {IP: ip}}, nil
	}
	return nil, errors.New("no such host")
}

func (b book) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	if records := b.srv["_"+service+"._"+proto+"."+name]; records != nil {
		return "", records, nil
	}
	return "", nil, errors.New("no such record")
}

func TestResolveAddress_ResolvesHostNamesAndSRVRecords(t *testing.T) {
	t.Parallel()
	l := &Transport{names: book{
		hosts: map[string]string{"a.test": "192.0.2.1", "b.test": "192.0.2.2"},
		srv: map[string][]*net.SRV{
			"_sip._udp.trunk.test": {{Target: "b.test.", Port: 5080}, {Target: "gone.test.", Port: 5080}, {Target: "a.test.", Port: 5082}}, "_sips._tcp.trunk.test": {{Target: "b.test.", Port: 5081}},
		},
	}}
	for _, one := range []struct{ hop, transport, want string }{
		{
			hop: "192.0.2.9:5070", transport: UDP, want: "192.0.2.9:5070"}, {hop: "192.0.2.9:0", transport: TLS,
			want: "192.0.2.9:5061"}, {hop: "a.test:5070", transport: UDP, want: "192.0.2.1:5070"},
		{
			hop: "a.test:0", transport: TCP, want: "192.0.2.1:5060"}, {hop: "trunk.test:0", transport: UDP,
			want: "192.0.2.2:5080"}, {hop: "trunk.test:0", transport: TLS,
			want: "192.0.2.2:5081"}, {hop: "a.test:5061", transport: TLS, want: "192.0.2.1:5061"},
		{
			hop: "nobody.test:5060", transport: UDP, want: ""}, {hop: "", transport: UDP,
			want: ""}, {hop: ":5060", transport: UDP, want: ""}, {hop: "a.test:70000", transport: UDP,
			want: ""}, {hop: "a.test", transport: UDP, want: ""},
	} {
		got, err := l.resolveAddress(Route{Hop: one.hop}, one.transport)
		switch {
		case got != one.want:
			t.Errorf("got = %v, want %v", got, one.want)
		case (err != nil) != (one.want == ""):
			t.Errorf("an error was returned = %v, want %v", (err != nil), (one.want == ""))
		case err != nil && !IsNotSent(err):
			t.Error("Refused = false for the error of a refused address, want true")
		}
	}
}

func TestResolveAddress_SkipsExcludedAddresses(t *testing.T) {
	t.Parallel()
	l := &Transport{names: book{
		hosts: map[string]string{"a.test": "192.0.2.1", "b.test": "192.0.2.2"},
		srv:   map[string][]*net.SRV{"_sip._tcp.trunk.test": {{Target: "b.test.", Port: 5080}, {Target: "gone.test.", Port: 5080}, {Target: "a.test.", Port: 5082}}},
	}}
	for _, one := range []struct {
		hop  string
		want []string
	}{{hop: "trunk.test:0", want: []string{"192.0.2.2:5080", "192.0.2.1:5082"}}, {hop: "a.test:0",
		want: []string{"192.0.2.1:5060"}}, {hop: "192.0.2.9:5070", want: []string{"192.0.2.9:5070"}}} {
		to, got := Route{Hop: one.hop}, []string(nil)
		for range 5 {
			at, err := l.resolveAddress(to, TCP)
			if err != nil {
				if !IsNotSent(err) {
					t.Errorf("%s: %v", one.hop, err)
				}
				break
			}
			got, to.Excluded = append(got, at), append(to.Excluded, at)
		}
		if !slices.Equal(got, one.want) {
			t.Errorf("addresses of %s = %v, want %v", one.hop, got, one.want)
		}
	}
}

func TestFilterDatagram_DropsDatagramsFromUnknownSources(t *testing.T) {
	t.Parallel()
	l := &Transport{pending: map[string]int{}, cfg: Config{
		Admit:   func(addr netip.Addr) bool { return addr == netip.MustParseAddr("192.0.2.1") },
		HasCall: func(id string) bool { return id == "ours" },
	}}
	over := l.expectResponse("asked")
	message := func(id string) []byte {
		return []byte("OPTIONS sip:x SIP/2.0\r\nVia: y\r\nCall-ID: " + id + "\r\n\r\nCall-ID: ours\r\n")
	}
	for _, one := range []struct {
		from, transport, id string
		want                bool
	}{
		{
			from: "192.0.2.1", transport: "UDP", id: "any", want: true}, {from: "192.0.2.2", transport: "UDP",
			id: "any", want: false}, {from: "192.0.2.2", transport: "UDP", id: "ours",
			want: true}, {from: "192.0.2.2", transport: "UDP", id: "asked", want: true},
		{
			from: "192.0.2.2", transport: "TCP", id: "any", want: true}, {from: "::ffff:192.0.2.1",
			transport: "UDP", id: "any", want: true,
		},
	} {
		from := &net.UDPAddr{IP: net.ParseIP(one.from), Port: 5060}
		got, err := l.filterDatagram(sip.TransportReadProps{Transport: one.transport, RemoteAddr: from}, message(one.id))
		if err != nil {
			t.Errorf("filter: %v", err)
		} else if (len(got) > 0) != one.want {
			t.Errorf("an address was found = %v, want %v; one.from = %s; one.transport = %s",
				len(got) > 0, one.want, one.from, one.transport)
		}
	}
	over()
	if l.expectsResponse("asked") {
		t.Error(`what was answered is still waited for: l.waits("asked") = true, want false`)
	} else if len(l.pending) != 0 {
		t.Errorf("what was answered is still waited for: l.pending = %v, want none", l.pending)
	}
}

func FuzzCallIDOf(f *testing.F) {
	for _, seed := range []string{"A\r\nCall-ID: x\r\n\r\n", "A\ni:x\n", "A\r\n\r\nCall-ID: x", "\n\n\n", "A\nCALL-ID : a:b \n", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		id := callIDOf(data)
		if strings.ContainsAny(id, "\r\n") {
			t.Errorf("id = %q, want it without \"\\r\\n\"", id)
		} else if !strings.Contains(string(data), id) {
			t.Errorf("data = %q, want it to contain %q", string(data), id)
		}
	})
}

// faulty is a listener whose first calls of Accept return errors. The next call succeeds. All later
// calls return net.ErrClosed.
type faulty struct {
	net.Listener
	left int
}

type faultyPackets struct {
	net.PacketConn
	faults faulty
}

func (f *faulty) fault() error {
	f.left--
	switch {
	case f.left > 0:
		return errors.New("no descriptors are left")
	case f.left == 0:
		return nil
	}
	return net.ErrClosed
}

func (f *faulty) Accept() (net.Conn, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	near, _ := net.Pipe()
	return near, nil
}

func (f *faultyPackets) ReadFrom([]byte) (int, net.Addr, error) { return 1, nil, f.faults.fault() }

func TestListeners_ContinueAfterErrors(t *testing.T) {
	t.Parallel()
	streams := &filteredListener{Listener: &faulty{left: 3}, admits: func(net.Addr) bool { return true }, refused: nil}
	if conn, err := streams.Accept(); err != nil {
		t.Errorf("accept: %v", err)
	} else if conn == nil {
		t.Error("accept: conn = nil, want a value")
	}
	if _, err := streams.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept when closed: %v", err)
	}
	datagrams := &datagramConn{PacketConn: &faultyPackets{faults: faulty{left: 3}}, line: &Transport{}}
	if n, _, err := datagrams.ReadFrom(nil); err != nil {
		t.Errorf("read: ReadFrom: %v", err)
	} else if n != 1 {
		t.Errorf("read: n = %v, want 1", n)
	}
	if _, _, err := datagrams.ReadFrom(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read when closed: %v", err)
	}
}
