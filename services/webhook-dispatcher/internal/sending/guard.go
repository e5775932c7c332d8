package sending

import (
	"errors"
	"net/netip"
	"syscall"

	"code.dny.dev/ssrf"
)

// Guard decides which addresses webhooks may reach: public ones, and the networks the operator allows. It judges the
// address that is about to be connected to, after DNS, so a name that changes its mind does not help.
type Guard struct{ guardian *ssrf.Guardian }

// NewGuard makes a guard that allows the networks given besides the public ones.
func NewGuard(allowed []netip.Prefix) *Guard {
	var v4, v6 []netip.Prefix
	for _, prefix := range allowed {
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix.Masked())
		} else {
			v6 = append(v6, prefix.Masked())
		}
	}
	// Azure answers its machines there with their settings and certificates: as good as a metadata address, though it looks public.
	azure := netip.PrefixFrom(netip.AddrFrom4([4]byte{168, 63, 129, 16}), 32)
	return &Guard{ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...), ssrf.WithDeniedV4Prefixes(azure))}
}

// Reachable says whether webhooks may be sent to the address.
func (g *Guard) Reachable(addr netip.Addr) bool { return g.guardian.SafeAddr(addr) == nil }

// Control is the net.Dialer's: it refuses before the first packet leaves.
func (g *Guard) Control(network, address string, conn syscall.RawConn) error {
	return g.guardian.Safe(network, address, conn)
}

func refused(err error) bool {
	return errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) ||
		errors.Is(err, ssrf.ErrProhibitedPort) || errors.Is(err, ssrf.ErrInvalidHostPort)
}
