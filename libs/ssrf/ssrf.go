// Package ssrf prevents server-side request forgery. URLs of customers may lead only to public
// addresses and to networks that the operator allows. The address is checked after the DNS lookup,
// when a connection is opened.
package ssrf

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// Guard decides which addresses Ringfence may connect to. It checks the address after the DNS
// lookup, so a name whose address has changed is also checked.
type Guard struct{ guardian *ssrf.Guardian }

// New returns a guard that allows public addresses and the given networks.
func New(allowed []netip.Prefix) *Guard {
	var v4, v6 []netip.Prefix
	for _, prefix := range allowed {
		if prefix.Addr().Is4() {
			v4 = append(v4, prefix.Masked())
		} else {
			v6 = append(v6, prefix.Masked())
		}
	}
	// Azure serves the settings and certificates of virtual machines at this public address.
	azure := netip.PrefixFrom(netip.AddrFrom4([4]byte{168, 63, 129, 16}), 32)
	return &Guard{ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...), ssrf.WithDeniedV4Prefixes(azure))}
}

// Reachable reports whether the address may be reached.
func (g *Guard) Reachable(addr netip.Addr) bool { return g.guardian.SafeAddr(addr) == nil }

// Control is used as the Control function of net.Dialer. It returns an error before the first
// packet is sent.
func (g *Guard) Control(network, address string, conn syscall.RawConn) error {
	return g.guardian.Safe(network, address, conn)
}

// Refused reports whether err means that the guard refused the address. It returns false for an
// error of the network.
func Refused(err error) bool {
	return errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) ||
		errors.Is(err, ssrf.ErrProhibitedPort) || errors.Is(err, ssrf.ErrInvalidHostPort)
}

// Dialing opens a connection, like the DialContext function of an http.Transport.
type Dialing func(ctx context.Context, network, address string) (net.Conn, error)

// Dialing returns a function that connects only to addresses that the guard allows. timeout limits
// one attempt to connect. If it is 0, only the context limits the attempt.
func (g *Guard) Dialing(timeout time.Duration) Dialing {
	return (&net.Dialer{Timeout: timeout, Control: g.Control}).DialContext
}

// Unguarded returns a function that connects to any address. Use it only for URLs that the operator
// configured, and with a separate HTTP client. A shared client could reuse its open connection for
// a customer's URL, and the guard would not check the address.
func Unguarded(timeout time.Duration) Dialing { return (&net.Dialer{Timeout: timeout}).DialContext }
