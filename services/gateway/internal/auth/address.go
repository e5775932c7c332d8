package auth

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Proxies are the networks of the trusted proxies. X-Forwarded-For is used only in requests from
// these networks.
type Proxies []netip.Prefix

// ParseProxies parses TRUSTED_PROXIES, a list of addresses and networks.
func ParseProxies(entries []string) (Proxies, error) {
	var proxies Proxies
	for _, entry := range entries {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		if address, err := netip.ParseAddr(entry); err == nil {
			address = address.Unmap()
			proxies = append(proxies, netip.PrefixFrom(address, address.BitLen()))
			continue
		}
		network, err := netip.ParsePrefix(entry)
		if err != nil {
			return nil, fmt.Errorf("TRUSTED_PROXIES: %q is neither an address nor a network like 10.0.0.0/8", entry)
		}
		proxies = append(proxies, network.Masked())
	}
	return proxies, nil
}

// Client returns the client's address. This is the address of the connection. If a trusted proxy
// sent the request, it is the last address in X-Forwarded-For that is not a trusted proxy. For an
// IPv6 client it is the /64 network, because one client usually has a whole /64 network.
func (p Proxies) Client(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	client, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0 && p.list(client); i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		client = hop
	}
	client = client.Unmap().WithZone("")
	if client.Is6() {
		network, err := client.Prefix(64)
		if err == nil {
			return network.String()
		}
	}
	return client.String()
}

func (p Proxies) list(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	for _, network := range p {
		if network.Contains(address) {
			return true
		}
	}
	return false
}
