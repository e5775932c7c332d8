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

// lookupTimeout bounds what one question to the resolver may take.
const lookupTimeout = 3 * time.Second

// maxAddresses bounds the places that one request tries.
const maxAddresses = 8

// address is the first place that a route's hop leads to and that was not tried: as host:port of an address, so that what belongs to one request (CANCEL, the ACK of a refusal) goes to the same
// place whatever its name says later (RFC 3261 9.1). A hop without a port is asked for by SRV first (RFC 3263 4.2). Over TLS it is the line's ServerName that a certificate must be for, not what
// the DNS makes of it (RFC 5922 4).
func (l *Transport) address(to Route, transport string) (string, error) {
	host, text, err := net.SplitHostPort(to.Hop)
	if err != nil || host == "" {
		return "", &NotSent{fmt.Errorf("next hop %q is no address", to.Hop)}
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", &NotSent{fmt.Errorf("next hop %q: %w", to.Hop, err)}
	}
	targets := []Target{{host, uint16(port)}}
	if port == 0 {
		targets[0].Port = uint16(sip.DefaultPort(transport)) //nolint:gosec // a port
		if net.ParseIP(host) == nil {
			if named := Targets(context.Background(), l.names, host, transport); len(named) > 0 {
				targets = named
			}
		}
	}
	fault := fmt.Errorf("%s leads nowhere else", host)
	for _, target := range targets {
		hosts, err := l.hosts(target.Host)
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

// hosts are a host's addresses.
func (l *Transport) hosts(host string) (hosts []string, err error) {
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
		if SameFamily(addr.IP.String(), l.cfg.Advertised) { // a peer must be able to reach us
			hosts = append(hosts, addr.IP.String())
		}
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("find %s: it has no address of the same family as %s", host, l.cfg.Advertised)
	}
	return hosts, nil
}

// Target is a place that SRV records name.
type Target struct {
	Host string
	Port uint16
}

// Targets are where SRV records say that a host is, in the order in which they are to be tried; none when there are none, or nobody can say.
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

// Names are what a line asks for addresses; a *net.Resolver is one.
type Names interface {
	LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}
