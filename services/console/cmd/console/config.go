package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/telemetry"
)

// Config contains the settings of the console.
type Config struct {
	HTTP      httpserver.Config
	Telemetry telemetry.Config

	GatewayURL          string   `env:"GATEWAY_CONSOLE_URL,required" help:"URL of the listener CONSOLE_ADDR of the gateway, without a path."`
	URL                 string   `env:"CONSOLE_URL,required" help:"URL of the console in the browser, the same as in the gateway. It must begin with https://, unless the host is this machine."`
	AllowedHosts        []string `env:"ALLOWED_HOSTS" envSeparator:"," help:"Further values of the Host header that are accepted, as host or host:port. Requests with other values are refused. If empty, only the host of CONSOLE_URL is accepted."`
	PublishedOnLoopback bool     `env:"PUBLISHED_ON_LOOPBACK" help:"true if HTTP_ADDR is in a container whose port is published only on a loopback address, as in docker-compose.yml. It permits a CONSOLE_URL that begins with http://."`
}

// isPrivateToThisMachine reports whether only programs on this machine can connect to HTTP_ADDR.
func (c Config) isPrivateToThisMachine() bool {
	return c.PublishedOnLoopback || isLoopback(hostOf(c.HTTP.Addr))
}

// parsedConfig contains the parsed form of the settings that Config contains as text.
type parsedConfig struct {
	gateway, url *url.URL
	hosts        []string
}

// parse returns the parsed settings. If several settings are invalid, the error joins all errors.
func (c Config) parse() (p parsedConfig, err error) {
	var errs [3]error
	p.gateway, errs[0] = parseAddress("GATEWAY_CONSOLE_URL", c.GatewayURL)
	p.url, errs[1] = parseAddress("CONSOLE_URL", c.URL)
	if errs[1] == nil {
		p.hosts = append(p.hosts, p.url.Host)
		if p.url.Scheme == "http" && (!isLoopback(p.url.Hostname()) || !c.isPrivateToThisMachine()) {
			errs[2] = errors.New("CONSOLE_URL must begin with https://: plain HTTP is permitted only if CONSOLE_URL and " +
				"HTTP_ADDR are both on this machine (localhost, 127.0.0.1 or ::1)")
		}
	}
	for _, host := range c.AllowedHosts {
		if host = strings.TrimSpace(host); host != "" {
			p.hosts = append(p.hosts, host)
		}
	}
	return p, errors.Join(errs[:]...)
}

func parseAddress(variable, text string) (*url.URL, error) {
	address, err := url.Parse(text)
	if err != nil || address.Host == "" || (address.Scheme != "https" && address.Scheme != "http") ||
		strings.Trim(address.Path, "/") != "" || address.RawQuery != "" || address.User != nil {
		return nil, fmt.Errorf("%s must be like https://console.example.com, not %q", variable, text)
	}
	return &url.URL{Scheme: address.Scheme, Host: strings.ToLower(address.Host)}, nil
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || (err == nil && address.IsLoopback())
}
