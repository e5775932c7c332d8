package sipcarrier

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/transport"
	"ringfence.dev/services/dialer/internal/trunks"
)

// stepTimeout limits each step of Check.
const stepTimeout = 5 * time.Second

// Check tests a trunk in steps: DNS, transport, TLS, OPTIONS and digest. Each step takes at most 5
// s. Check places no call and changes no registration. After a failed step, Check skips the
// remaining steps.
func (c *Carrier) Check(ctx context.Context, t trunks.Trunk) []trunks.CheckStep {
	k := &trunkCheck{carrier: c, trunk: t}
	var done []trunks.CheckStep
	failed := ""
	for _, step := range []struct {
		name string
		run  func(context.Context) trunks.CheckStep
	}{
		{name: "dns", run: k.checkDNS}, {name: "transport", run: k.checkTransport}, {name: "tls", run: k.checkTLS},
		{name: "options", run: k.checkOptions}, {name: "digest", run: k.checkDigest},
	} {
		if failed != "" {
			done = append(done, named(step.name, skipped("not tried, because the step %s failed", failed)))
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, stepTimeout)
		one := named(step.name, step.run(bounded))
		cancel()
		if one.Result == trunks.CheckFailed {
			failed = step.name
		}
		done = append(done, one)
	}
	return done
}

func named(name string, step trunks.CheckStep) trunks.CheckStep {
	step.Name = name
	return step
}

func ok(format string, args ...any) trunks.CheckStep {
	return trunks.CheckStep{Result: trunks.CheckOK, Seen: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) trunks.CheckStep {
	return trunks.CheckStep{Result: trunks.CheckSkipped, Seen: fmt.Sprintf(format, args...)}
}

func failed(remedy, format string, args ...any) trunks.CheckStep {
	return trunks.CheckStep{Result: trunks.CheckFailed, Seen: fmt.Sprintf(format, args...), Remedy: remedy}
}

type trunkCheck struct {
	carrier *Carrier
	trunk   trunks.Trunk
	// addresses contains the addresses of the trunk's host, as host:port.
	addresses []string
	reply     sip.Reply // the response to OPTIONS
}

// checkDNS resolves the host or proxy of the trunk. SRV records are read if the trunk has no port.
func (k *trunkCheck) checkDNS(ctx context.Context) trunks.CheckStep {
	host, port := k.trunk.Address()
	host = strings.Trim(host, "[]")
	if address, err := netip.ParseAddr(host); err == nil {
		k.addresses = []string{hostPort(address.String(), port)}
		return skipped("%s is an address", host)
	}
	targets, seen := []transport.Target{{Host: host, Port: port}}, []string(nil)
	if k.trunk.Port == 0 && k.trunk.OutboundProxy == "" {
		found := transport.Targets(ctx, k.carrier.cfg.Names, host, transports()[k.trunk.Transport])
		for _, one := range found {
			seen = append(seen, fmt.Sprintf("SRV %s:%d", one.Host, one.Port))
		}
		if len(found) > 0 {
			targets = found
		} else {
			seen = append(seen, "no SRV records")
		}
	}
	var faults error
	for _, target := range targets {
		found, err := k.carrier.cfg.Names.LookupIPAddr(ctx, target.Host)
		faults = errors.Join(faults, err)
		for _, one := range found {
			seen = append(seen, target.Host+" "+one.String())
			// Calls use only addresses of the same family as the advertised address.
			if transport.SameFamily(one.IP.String(), k.carrier.agent.Advertised()) {
				k.addresses = append(k.addresses, hostPort(one.String(), target.Port))
			}
		}
	}
	switch {
	case len(k.addresses) > 0:
		return ok("%s", strings.Join(seen, ", "))
	case faults != nil:
		return failed("Correct host or outbound_proxy, or the DNS server of the dialer.", "%v", faults)
	}
	family := k.addressFamily()
	return failed("Use a name that has an "+family+" address, or change SIP_ADVERTISED_ADDR of the dialer.",
		"%s: no %s address", strings.Join(seen, ", "), family)
}

// addressFamily returns the address family of SIP_ADVERTISED_ADDR. Calls use only this family.
func (k *trunkCheck) addressFamily() string {
	if transport.SameFamily(k.carrier.agent.Advertised(), "::") {
		return "IPv6"
	}
	return "IPv4"
}

// listenerVariable returns the name of the environment variable that sets the listener of the
// trunk's transport.
func (k *trunkCheck) listenerVariable() string {
	return "SIP_" + strings.ToUpper(string(k.trunk.Transport)) + "_ADDR"
}

// checkTransport opens a TCP connection to the trunk. UDP has no connection, so for UDP it checks
// only that the dialer has a listener.
func (k *trunkCheck) checkTransport(ctx context.Context) trunks.CheckStep {
	transport := transports()[k.trunk.Transport]
	ours := k.carrier.agent.Address(transport)
	if ours == "" {
		return failed("Set "+k.listenerVariable()+" of the dialer.", "the dialer does not listen over %s", transport)
	}
	if k.trunk.Transport == trunks.UDP {
		return ok("the trunk reaches the dialer at %s; UDP has no connection, so the step options tests the way", ours)
	}
	conn, err := k.connect(ctx)
	if err != nil {
		return failed("Check host, port and transport, and the firewall between the dialer and the trunk.", "%v", err)
	}
	defer func() { _ = conn.Close() }()
	return ok("connected to %s; the trunk reaches the dialer at %s", conn.RemoteAddr(), ours)
}

// connect opens a TCP connection to the first address that accepts a connection.
func (k *trunkCheck) connect(ctx context.Context) (net.Conn, error) {
	var faults error
	for _, place := range k.addresses {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", place)
		if err == nil {
			return conn, nil
		}
		faults = errors.Join(faults, err)
	}
	return nil, faults
}

// checkTLS checks the trunk's certificate in the same way as calls do.
func (k *trunkCheck) checkTLS(ctx context.Context) trunks.CheckStep {
	if k.trunk.Transport != trunks.TLS {
		return skipped("the transport is %s", k.trunk.Transport)
	}
	host, _ := k.trunk.Address()
	settings := &tls.Config{ServerName: strings.Trim(host, "[]"), MinVersion: tls.VersionTLS12}
	if k.trunk.CACertificates != "" {
		settings.RootCAs = x509.NewCertPool()
		settings.RootCAs.AppendCertsFromPEM([]byte(k.trunk.CACertificates))
	}
	conn, err := k.connect(ctx)
	if err != nil {
		return failed("Check the firewall between the dialer and the trunk.", "%v", err)
	}
	defer func() { _ = conn.Close() }()
	secured := tls.Client(conn, settings)
	if err := secured.HandshakeContext(ctx); err != nil {
		return tlsFault(err)
	}
	state := secured.ConnectionState()
	return ok("%s, %s", tls.VersionName(state.Version), certificate(state.PeerCertificates[0]))
}

// tlsFault returns the failed step for a TLS handshake error.
func tlsFault(err error) trunks.CheckStep {
	remedy := "The port must accept TLS 1.2 or newer. Check port and transport."
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		remedy = "The trunk must renew its certificate. Also check the clock of the dialer."
	case errors.As(err, &name):
		remedy = "Set host to a name that the certificate has."
	case errors.As(err, &unknown):
		remedy = "Put the certificate of the authority that signed it into ca_certificates."
	}
	var unverified *tls.CertificateVerificationError
	if errors.As(err, &unverified) && len(unverified.UnverifiedCertificates) > 0 {
		return failed(remedy, "%v; %s", err, certificate(unverified.UnverifiedCertificates[0]))
	}
	return failed(remedy, "%v", err)
}

func certificate(c *x509.Certificate) string {
	names := slices.Clone(c.DNSNames)
	for _, address := range c.IPAddresses {
		names = append(names, address.String())
	}
	if len(names) == 0 {
		names = []string{c.Subject.CommonName}
	}
	until := c.NotAfter.UTC().Format(time.RFC3339)
	return fmt.Sprintf("certificate for %s, valid until %s", strings.Join(names, ", "), until)
}

func (k *trunkCheck) checkOptions(ctx context.Context) trunks.CheckStep {
	begun := time.Now()
	reply, err := k.carrier.agent.Options(ctx, sipTrunk(k.trunk))
	k.reply = reply
	took := time.Since(begun).Milliseconds()
	if err != nil && reply.Status == 0 {
		ours := k.carrier.agent.Address(transports()[k.trunk.Transport])
		return failed("Check host, port, transport and firewall. The trunk must accept requests from "+ours+".", "%v", err)
	}
	seen := fmt.Sprintf("%d %s in %d ms", reply.Status, reply.Reason, took)
	if err != nil {
		return failed("The trunk says that it is out of service. Ask the provider.", "%s", seen)
	}
	return ok("%s", seen)
}

// checkDigest checks whether the trunk accepts the credentials. If the trunk did not challenge the
// OPTIONS request, checkDigest sends a REGISTER that only reads the registrations.
func (k *trunkCheck) checkDigest(ctx context.Context) trunks.CheckStep {
	const remedy = "Correct username and password of the trunk."
	switch {
	case k.trunk.Username == "" && k.reply.Challenged:
		return failed("Set username and password of the trunk.", "the trunk asks for credentials, and no username is set")
	case k.trunk.Username == "":
		return skipped("no username is set: the trunk must know the address of the dialer")
	case k.trunk.Password == "" && k.trunk.Sealed != nil:
		return failed("Set the password again, or add its key to SEALING_KEYS.", "the stored password cannot be opened")
	}
	method, reply := "OPTIONS", k.reply
	if !reply.Challenged {
		var err error
		method = "REGISTER"
		if reply, err = k.carrier.agent.Bindings(ctx, sipTrunk(k.trunk)); err != nil && k.trunk.Register {
			return failed("The trunk must accept registrations, or set register to false.", "%v", err)
		}
	}
	if !reply.Challenged {
		return skipped("not challenged; credentials are tested by the first call")
	}
	switch reply.Status {
	case http.StatusUnauthorized, http.StatusProxyAuthRequired, http.StatusForbidden:
		return failed(remedy, "the trunk answered the credentials with %d %s to %s", reply.Status, reply.Reason, method)
	}
	return ok("credentials accepted: %d %s to %s", reply.Status, reply.Reason, method)
}
