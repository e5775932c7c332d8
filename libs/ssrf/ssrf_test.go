package ssrf_test

import (
	"net/netip"
	"strings"
	"testing"

	"ringfence.dev/libs/ssrf"
)

// The test calls only Control, so it opens no connection.
func TestGuard_RefusesAddressesThatAreNotPublic(t *testing.T) {
	t.Parallel()
	g := ssrf.New(nil)
	for _, address := range []string{
		"127.0.0.1:443", "127.255.255.254:443", "0.0.0.0:443", "10.0.0.1:443", "10.255.255.255:8443", "172.16.0.1:443", "172.31.255.255:443",
		"192.168.0.1:443", "169.254.169.254:80", "169.254.0.1:443", "100.64.0.1:443", "100.127.255.255:443", "192.0.0.8:443", "192.0.2.1:443",
		"198.18.0.1:443", "198.51.100.1:443", "203.0.113.1:443", "224.0.0.1:443", "240.0.0.1:443", "255.255.255.255:443",
		"[::]:443", "[::1]:443", "[::ffff:127.0.0.1]:443", "[::ffff:169.254.169.254]:443", "[::127.0.0.1]:443", "[64:ff9b::7f00:1]:443",
		"[64:ff9b:1::1]:443", "[2002:7f00:1::]:443", "[2001::1]:443", "[fd00:ec2::254]:443", "[fc00::1]:443", "[fe80::1]:443", "[fe80::1%eth0]:443",
		"[fec0::1]:443", "[ff02::1]:443", "[100::1]:443", "[5f00::1]:443", "[2001:db8::1]:443",
	} {
		network := "tcp4"
		if strings.HasPrefix(address, "[") {
			network = "tcp6"
		}
		if err := g.Control(network, address, nil); err == nil {
			t.Errorf("Control(%s) lets it through", address)
		}
	}
	for _, address := range []string{"8.8.8.8:443", "1.1.1.1:9443", "[2606:4700:4700::1111]:22"} {
		network := "tcp4"
		if strings.HasPrefix(address, "[") {
			network = "tcp6"
		}
		if err := g.Control(network, address, nil); err != nil {
			t.Errorf("Control(%s) = %v, want nil: public, any port", address, err)
		}
	}
	if g.Control("udp4", "8.8.8.8:443", nil) == nil {
		t.Error(`Control lets another network than TCP through: g.Control("udp4", "8.8.8.8:443", nil) = nil, want a value`)
	} else if g.Control("unix", "/run/x", nil) == nil {
		t.Error(`Control lets another network than TCP through: g.Control("unix", "/run/x", nil) = nil, want a value`)
	}
}

func TestGuard_AllowsOnlyTheGivenNetworks(t *testing.T) {
	t.Parallel()
	g := ssrf.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.1/8"), netip.MustParsePrefix("::1/128")})
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::2": false, "10.0.0.1": false, "169.254.169.254": false, "::ffff:127.0.0.1": false,
	} {
		if got := g.Reachable(netip.MustParseAddr(address)); got != want {
			t.Errorf("Reachable(%s) = %v, want %v", address, got, want)
		}
	}
}

func TestGuardDialing_RefusesAnAddressBeforeAPacketIsSent(t *testing.T) {
	t.Parallel()
	dial := ssrf.New(nil).Dialing(0)
	for _, address := range []string{"127.0.0.1:1", "[::1]:443", "169.254.169.254:80"} {
		if conn, err := dial(t.Context(), "tcp", address); !ssrf.Refused(err) {
			t.Errorf("Dialing(%s) = %v, %v, want the guard's no", address, conn, err)
		}
	}
}
