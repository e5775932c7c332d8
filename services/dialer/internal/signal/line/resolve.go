package line

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"
)

// lookupPatience bounds what finding an address may take.
const lookupPatience = 3 * time.Second

// address is where a hop is: as host:port of an address, so that what belongs to one request (CANCEL, the ACK of a refusal) goes to the same place whatever its name
// says later (RFC 3261 9.1). Over TLS the name stays: the certificate is for it. A hop without a port is asked for by SRV first (RFC 3263 4.2).
func (l *Line) address(hop, transport string) (string, error) {
	host, text, err := net.SplitHostPort(hop)
	if err != nil || host == "" {
		return "", &Unsent{fmt.Errorf("next hop %q is no address", hop)}
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", &Unsent{fmt.Errorf("next hop %q: %w", hop, err)}
	}
	known := port != 0
	if !known {
		port = uint64(sip.DefaultPort(transport)) //nolint:gosec // a port
	}
	at := func(host string, port uint64) string { return net.JoinHostPort(host, strconv.FormatUint(port, 10)) }
	if net.ParseIP(host) != nil || known && transport == TLS {
		return at(host, port), nil
	}
	ctx, done := context.WithTimeout(context.Background(), lookupPatience)
	defer done()
	if !known {
		if name, there, found := l.service(ctx, host, transport); found {
			host, port = name, there
		}
	}
	if transport == TLS {
		return at(host, port), nil
	}
	addrs, err := l.names.LookupIPAddr(ctx, host)
	if err != nil {
		return "", &Unsent{fmt.Errorf("find %s: %w", host, err)}
	}
	for _, addr := range addrs {
		if addr.IP.To4() != nil { // what we listen at
			return at(addr.IP.String(), port), nil
		}
	}
	return "", &Unsent{fmt.Errorf("find %s: it has no IPv4 address", host)}
}

// service is the best place that SRV records name; found is false when there are none.
func (l *Line) service(ctx context.Context, host, transport string) (name string, port uint64, found bool) {
	service, proto := "sip", strings.ToLower(transport)
	if transport == TLS {
		service, proto = "sips", "tcp"
	}
	_, records, err := l.names.LookupSRV(ctx, service, proto, host)
	if err != nil || len(records) == 0 {
		return "", 0, false
	}
	return strings.TrimSuffix(records[0].Target, "."), uint64(records[0].Port), true
}

// Names are what a line asks for addresses; a *net.Resolver is one.
type Names interface {
	LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}
