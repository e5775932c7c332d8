package sipcarrier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/sip/transport"
	"ringfence.dev/services/dialer/internal/trunks"
)

type list struct {
	trunks []trunks.Trunk
	err    error
}

func (l *list) Active(context.Context) ([]trunks.Trunk, error) { return l.trunks, l.err }

type directory struct {
	hosts map[string][]string
	srv   map[string][]string // targets of SRV records, by name
	fault error
}

func (d *directory) LookupIPAddr(_ context.Context, host string) (found []net.IPAddr, err error) {
	for _, address := range d.hosts[host] {
		found = append(found, net.IPAddr{IP: net.ParseIP(address)})
	}
	if len(found) == 0 {
		err = errors.New("no such host")
	}
	return found, errors.Join(err, d.fault)
}

func (d *directory) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	var found []*net.SRV
	for _, target := range d.srv["_"+service+"._"+proto+"."+name] {
		found = append(found, &net.SRV{Target: target, Port: 5060})
	}
	if len(found) == 0 {
		return "", nil, errors.New("no such record")
	}
	return "", found, d.fault
}

// A trunk may call from each address to which the dialer sends calls over this trunk's transport.
func TestInboundFilter_AdmitsTargetsOfSRVRecords(t *testing.T) {
	t.Parallel()
	names := &directory{
		hosts: map[string][]string{
			"trunk.test": {"203.0.113.1"}, "udp.test": {"203.0.113.2"}, "tls.test": {"203.0.113.3", "203.0.113.4"}, "tcp.test": {"203.0.113.5"},
		},
		srv: map[string][]string{"_sip._udp.trunk.test": {"udp.test.", "gone.test."}, "_sip._tcp.trunk.test": {"tcp.test."}, "_sips._tcp.trunk.test": {"tls.test."}, "_sip._udp.only.test": {"udp.test."}},
	}
	for _, tt := range []struct {
		name, host string
		transport  trunks.Transport
		port       uint16
		want       []string
	}{
		{
			name: "UDP, one SRV target has no address", host: "trunk.test", transport: trunks.UDP, port: 0,
			want: []string{"203.0.113.1", "203.0.113.2"},
		},
		{name: "TCP", host: "trunk.test", transport: trunks.TCP, port: 0, want: []string{"203.0.113.1", "203.0.113.5"}},
		{
			name: "TLS, SRV target with two addresses", host: "trunk.test", transport: trunks.TLS, port: 0,
			want: []string{"203.0.113.1", "203.0.113.3", "203.0.113.4"},
		},
		{
			name: "with a port, SRV records are not used", host: "trunk.test", transport: trunks.UDP, port: 5060,
			want: []string{"203.0.113.1"},
		},
		{
			name: "host with SRV records but without an address", host: "only.test", transport: trunks.UDP, port: 0,
			want: []string{"203.0.113.2"},
		},
		{name: "unknown host", host: "gone.test", transport: trunks.UDP, port: 0, want: nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			over := trunks.New(uuid.New())
			over.Host, over.Transport, over.Port = tt.host, tt.transport, tt.port
			d := NewInboundFilter(&list{trunks: []trunks.Trunk{over}})
			d.names = names
			if err := d.reload(t.Context()); err != nil {
				t.Fatal(err)
			}
			for last := range 7 {
				source := fmt.Sprintf("203.0.113.%d", last)
				if got := d.Admit(netip.MustParseAddr(source)); got != slices.Contains(tt.want, source) {
					t.Errorf("Admit(%s) = %v, want %v", source, got, tt.want)
				}
			}
		})
	}
}

func TestInboundFilter_AdmitsOnlyAddressesOfTrunks(t *testing.T) {
	t.Parallel()
	literal, named := trunks.New(uuid.UUID{1}), trunks.New(uuid.UUID{2})
	literal.Name, literal.Host, literal.InboundSources = "literal", "192.0.2.1", []string{"198.51.100.0/24"}
	named.Name, named.Host = "named", "sip.example.net"
	known := &list{trunks: []trunks.Trunk{literal, named}}
	d := NewInboundFilter(known)
	names := &directory{hosts: map[string][]string{"sip.example.net": {"203.0.113.9", "2001:db8::9"}}}
	d.names = names
	who := func(source string) string {
		found, _ := d.Trunk(netip.AddrPortFrom(netip.MustParseAddr(source), 5060), transport.UDP)
		return found.Name
	}
	if d.Admit(netip.MustParseAddr("192.0.2.1")) {
		t.Error("an address is admitted before the trunks are read")
	}
	look := func() {
		t.Helper()
		if err := d.reload(t.Context()); err != nil && known.err == nil {
			t.Fatal(err)
		}
	}
	look()
	for source, want := range map[string]string{
		"192.0.2.1": "literal", "::ffff:192.0.2.1": "literal", "198.51.100.77": "literal", "203.0.113.9": "named", "2001:db8::9": "named",
		"192.0.2.2": "", "203.0.113.10": "", "127.0.0.1": "", "::1": "",
	} {
		if got := who(source); got != want {
			t.Errorf("who: got = %v, want %v", got, want)
		} else if value := d.Admit(netip.MustParseAddr(source)); value != (want != "") {
			t.Errorf("who: d.Admit(netip.MustParseAddr(source)) = %v, want %v", value, want != "")
		}
	}
	known.err = errors.New("no database")
	look()
	if who("192.0.2.1") != "literal" {
		t.Error("a trunk is not admitted during an outage of the database")
	}
	known.err, names.fault = nil, errors.New("no resolver")
	// Reset the time of the last lookup, so that the host name is looked up again.
	d.last[named.TrunkID] = resolved{host: named.Host, addresses: d.last[named.TrunkID].addresses}
	look()
	if who("203.0.113.9") != "named" {
		t.Error("a trunk is not admitted during an outage of DNS")
	}
	known.trunks = []trunks.Trunk{literal}
	look()
	if who("203.0.113.9") != "" {
		t.Error("a removed trunk is still admitted")
	}
}

func TestInboundFilter_FindsATrunkAddedAfterTheLastRead(t *testing.T) {
	t.Parallel()
	added := trunks.New(uuid.New())
	added.Host = "192.0.2.1"
	known := &list{}
	d := NewInboundFilter(known)
	if err := d.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	known.trunks = []trunks.Trunk{added}
	source := netip.MustParseAddrPort("192.0.2.1:5060")
	found, ok := d.CallFrom(t.Context(), source, transport.UDP)
	if !ok {
		t.Errorf("CallFrom(%s) returned no trunk, want the added one", source)
	}
	if got, want := found.TrunkID, added.TrunkID; got != want {
		t.Errorf("trunk = %s, want %s", got, want)
	}
	unknownSource := netip.MustParseAddrPort("192.0.2.2:5060")
	if found, ok := d.CallFrom(t.Context(), unknownSource, transport.UDP); ok {
		t.Errorf("CallFrom(%s) = trunk %s, want none", unknownSource, found.TrunkID)
	}
}

// Providers use one host name for trunks with different transports.
func TestInboundFilter_PrefersATrunkWithTheTransportAndPortOfTheCall(t *testing.T) {
	t.Parallel()
	at := func(name string, transport trunks.Transport, port uint16) trunks.Trunk {
		one := trunks.New(uuid.New())
		one.Name, one.Host, one.Transport, one.Port = name, "192.0.2.1", transport, port
		return one
	}
	d := NewInboundFilter(&list{trunks: []trunks.Trunk{
		at("tls", trunks.TLS, 5061), at("udp", trunks.UDP, 5060), at("udp at 5070", trunks.UDP, 5070),
	}})
	if err := d.reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, source, transport, want string
	}{
		{name: "UDP from the port of the trunk", source: "192.0.2.1:5060", transport: transport.UDP, want: "udp"},
		{name: "UDP from the port of the second trunk", source: "192.0.2.1:5070", transport: transport.UDP,
			want: "udp at 5070"},
		{name: "UDP from an unknown port", source: "192.0.2.1:40000", transport: transport.UDP, want: "udp"},
		{name: "TLS from an unknown port", source: "192.0.2.1:40000", transport: transport.TLS, want: "tls"},
		{name: "transport that no trunk has", source: "192.0.2.1:40000", transport: transport.TCP, want: "tls"},
		{name: "unknown address", source: "192.0.2.2:5060", transport: transport.UDP, want: ""},
	}
	for _, tt := range tests {
		found, _ := d.Trunk(netip.MustParseAddrPort(tt.source), tt.transport)
		if found.Name != tt.want {
			t.Errorf("%s: trunk = %q, want %q", tt.name, found.Name, tt.want)
		}
	}
}
