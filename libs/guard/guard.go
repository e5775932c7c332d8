// Package guard owns the one answer to where a URL that a customer named may lead (the SSRF guard): to public addresses, and to the networks and hosts that the
// operator allows. It judges what is about to be connected to; how a connection is used is its caller's.
package guard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strings"
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

// Dialing is how connections are opened, as http.Transport's DialContext has it.
type Dialing func(ctx context.Context, network, address string) (net.Conn, error)

// Dialing connects behind the guard. Only the hosts of the URLs given, which the operator put in the environment, are connected to wherever they are; a URL counts with its
// host and port, and an empty one is none. timeout bounds one connect; zero is as long as ctx lets it.
func (g *Guard) Dialing(timeout time.Duration, operators ...string) Dialing {
	guarded := &net.Dialer{Timeout: timeout, Control: g.Control}
	return dialing(operators, (&net.Dialer{Timeout: timeout}).DialContext, guarded.DialContext)
}

func dialing(operators []string, free, guarded Dialing) Dialing {
	trusted := map[string]bool{}
	for _, operator := range operators {
		if host := hostPort(operator); host != "" {
			trusted[host] = true
		}
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if trusted[strings.ToLower(address)] {
			return free(ctx, network, address)
		}
		return guarded(ctx, network, address)
	}
}

// hostPort is the address that net/http connects to for a URL; "" when it names no host.
func hostPort(text string) string {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Hostname() == "" {
		return ""
	}
	port := parsed.Port()
	if port == "" {
		switch parsed.Scheme {
		case "https", "wss":
			port = "443"
		default:
			port = "80"
		}
	}
	return strings.ToLower(net.JoinHostPort(parsed.Hostname(), port))
}
