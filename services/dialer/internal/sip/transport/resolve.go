package transport

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"
)

// lookupTimeout limits one DNS query.
const lookupTimeout = 3 * time.Second

// maxAddresses is the maximum number of addresses that are tried for one request.
const maxAddresses = 8

// resolveAddress returns the first address of a route's hop that is not excluded, as host:port. If
// the hop has no port, SRV records are looked up first (RFC 3263 section 4.2). The CANCEL of a
// request is sent to the same address (RFC 3261 section 9.1).
func (l *Transport) resolveAddress(to Route, transport string) (string, error) {
	host, text, err := net.SplitHostPort(to.Hop)
	if err != nil || host == "" {
		return "", &NotSent{fmt.Errorf("next hop %q is not a valid address", to.Hop)}
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", &NotSent{fmt.Errorf("next hop %q: %w", to.Hop, err)}
	}
	targets := []Target{{host, uint16(port)}}
	if port == 0 {
		targets[0].Port = uint16(sip.DefaultPort(transport)) //nolint:gosec // a port has 16 bits
		if net.ParseIP(host) == nil {
			if named := Targets(context.Background(), l.names, host, transport); len(named) > 0 {
				targets = named
			}
		}
	}
	fault := fmt.Errorf("all addresses of %s were tried", host)
	for _, target := range targets {
		hosts, err := l.lookUpHosts(target.Host)
		if err != nil {
			fault = err
			continue
		}
		for _, one := range hosts {
			at := net.JoinHostPort(one, strconv.Itoa(int(target.Port)))
			if len(to.Excluded) < maxAddresses && !slices.Contains(to.Excluded, at) {
				return at, nil
			}
		}
	}
	return "", &NotSent{fault}
}

// lookUpHosts returns the addresses of a host, in the address family of Config.Advertised.
func (l *Transport) lookUpHosts(host string) (hosts []string, err error) {
	if net.ParseIP(host) != nil {
		return []string{host}, nil
	}
	ctx, done := context.WithTimeout(context.Background(), lookupTimeout)
	defer done()
	addrs, err := l.names.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", host, err)
	}
	for _, addr := range addrs {
		if SameFamily(addr.IP.String(), l.cfg.Advertised) { // the peer must be able to respond over the same address family
			hosts = append(hosts, addr.IP.String())
		}
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("find %s: it has no address of the same family as %s", host, l.cfg.Advertised)
	}
	return hosts, nil
}

// Target is the target of an SRV record.
type Target struct {
	Host string
	Port uint16
}

// Targets returns the targets of a host's SRV records, in the order in which they must be tried. It
// returns none if there are no records or the query fails.
func Targets(ctx context.Context, names Names, host, transport string) (targets []Target) {
	service, proto := "sip", strings.ToLower(transport)
	if transport == TLS {
		service, proto = "sips", "tcp"
	}
	ctx, done := context.WithTimeout(ctx, lookupTimeout)
	defer done()
	_, records, err := names.LookupSRV(ctx, service, proto, host)
	if err != nil {
		return nil
	}
	for _, record := range records {
		targets = append(targets, Target{strings.TrimSuffix(record.Target, "."), record.Port})
	}
	return targets
}

// Names resolves host names. A *net.Resolver implements it.
type Names interface {
	LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}
