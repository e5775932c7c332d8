// Package ssrf prevents server-side request forgery: a URL that a customer configured may lead to public
// addresses and to the networks that the operator allows, and nowhere else. The address is checked when
// a connection is opened, after the name was resolved.
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

// Guard decides which addresses may be reached: public ones, and the networks the operator allows. It judges the
// address that is about to be connected to, after DNS, so a name that changes its mind does not help.
type Guard struct{ guardian *ssrf.Guardian }

// New makes a guard that allows the networks given besides the public ones.
func New(allowed []netip.Prefix) *Guard {
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

// Reachable says whether the address may be reached.
func (g *Guard) Reachable(addr netip.Addr) bool { return g.guardian.SafeAddr(addr) == nil }

// Control is the net.Dialer's: it refuses before the first packet leaves.
func (g *Guard) Control(network, address string, conn syscall.RawConn) error {
	return g.guardian.Safe(network, address, conn)
}

// Refused says that err is the guard's no, and not a fault of the network.
func Refused(err error) bool {
	return errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) ||
		errors.Is(err, ssrf.ErrProhibitedPort) || errors.Is(err, ssrf.ErrInvalidHostPort)
}

// Dialing opens connections, like the DialContext of an http.Transport.
type Dialing func(ctx context.Context, network, address string) (net.Conn, error)

// Dialing returns a function that connects only to addresses that the guard allows. timeout bounds one
// connect; 0 means that only the context bounds it.
func (g *Guard) Dialing(timeout time.Duration) Dialing {
	return (&net.Dialer{Timeout: timeout, Control: g.Control}).DialContext
}

// Unguarded returns a function that connects to any address. Use it only for URLs that the operator
// configured, and never with the HTTP client that is used for URLs of customers: a customer's URL with
// the operator's host must be judged by the guard.
func Unguarded(timeout time.Duration) Dialing { return (&net.Dialer{Timeout: timeout}).DialContext }
