package sipcarrier_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	sipmsg "github.com/emiago/sipgo/sip"
	"github.com/google/uuid"

	"ringfence.dev/libs/testkit/peertest"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/sip/transport"
	"ringfence.dev/services/dialer/internal/sipcarrier"
	"ringfence.dev/services/dialer/internal/trunks"
)

type directory map[string]string

func (d directory) LookupIPAddr(_ context.Context, host string) ([]net.IPAddr, error) {
	if address := net.ParseIP(d[host]); address != nil {
		return []net.IPAddr{{IP: address}}, nil
	}
	return nil, fmt.Errorf("lookup %s: no such host", host)
}

func (d directory) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	target := d["_"+service+"._"+proto+"."+name]
	if target == "" {
		return "", nil, errors.New("no such record")
	}
	return "", []*net.SRV{{Target: target, Port: 5090}}, nil
}

func certificate(t *testing.T, host string) (pair tls.Certificate, pem string) {
	t.Helper()
	key, cert, err := peertest.Certificate(host)
	if err != nil {
		t.Fatal(err)
	}
	pair, err = tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair, string(cert)
}

func silentPort(t *testing.T) uint16 {
	t.Helper()
	silent, err := net.ListenPacket("udp4", loopback)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	return silent.LocalAddr().(*net.UDPAddr).AddrPort().Port()
}

func TestCheck_ReportsTheFailedStepAndItsRemedy(t *testing.T) {
	t.Parallel()
	const ours = "127.0.0.1"
	pair, authority := certificate(t, ours)
	_, otherAuthority := certificate(t, ours)
	names := directory{
		"a.test": ours, "six.test": "2001:db8::1", "_sip._udp.srv.test": "six.test.", "other.test": ours,
	}
	agent, err := sip.New(sip.Config{
		UDP: loopback, TLS: loopback, Certificate: &pair, Admit: func(netip.Addr) bool { return true }, Names: names,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(agent.Close)
	carrier := sipcarrier.New(agent, nil, nil, nil, nil, sipcarrier.Config{Names: names})
	open := siptest.New(t, transport.Config{UDP: loopback, TLS: loopback, Certificate: &pair})
	asking := siptest.New(t, transport.Config{UDP: loopback})
	asking.Challenge(401, "account", "secret")
	registrar := siptest.New(t, transport.Config{UDP: loopback})
	registrar.Challenge(407, "account", "secret")
	registrar.HandleOutside(func(req *sipmsg.Request, tx *sipmsg.ServerTx) bool {
		if req.Method == sipmsg.OPTIONS {
			_ = tx.Respond(sipmsg.NewResponseFromRequest(req, 200, "OK", nil))
			return true
		}
		if req.GetHeader("Contact") != nil {
			t.Error("REGISTER of the check has a Contact, want none")
		}
		return false
	})
	leaving := siptest.New(t, transport.Config{UDP: loopback})
	leaving.HandleOutside(func(req *sipmsg.Request, tx *sipmsg.ServerTx) bool {
		_ = tx.Respond(sipmsg.NewResponseFromRequest(req, 503, "Maintenance", nil))
		return true
	})
	udp := func(x *siptest.Trunk) func(*trunks.Trunk) {
		return func(t *trunks.Trunk) { t.Host, t.Port = ours, uint16(x.Port(transport.UDP)) }
	}
	account := func(password string) func(*trunks.Trunk) {
		return func(t *trunks.Trunk) { t.Username, t.Password = "account", password }
	}
	secure := func(host, authorities string) func(*trunks.Trunk) {
		return func(t *trunks.Trunk) {
			t.Host, t.Port, t.Transport, t.CACertificates = host, uint16(open.Port(transport.TLS)), trunks.TLS, authorities
		}
	}
	tests := []struct {
		name   string
		change []func(*trunks.Trunk)
		// want contains the expected results of the steps. seen and remedy must be part of the texts of
		// the last step that ran.
		want, seen, remedy string
	}{
		{
			name: "trunk needs no credentials", change: []func(*trunks.Trunk){udp(open)},
			want: "dns skipped, transport ok, tls skipped, options ok, digest skipped",
			seen: "no username is set",
		},
		{
			name: "trunk never requests the configured credentials", change: []func(*trunks.Trunk){udp(open), account("secret")},
			want: "dns skipped, transport ok, tls skipped, options ok, digest skipped",
			seen: "tested by the first call",
		},
		{
			name: "right password", change: []func(*trunks.Trunk){udp(asking), account("secret")},
			want: "dns skipped, transport ok, tls skipped, options ok, digest ok",
			seen: "credentials accepted: 200 OK to OPTIONS",
		},
		{
			name: "wrong password", change: []func(*trunks.Trunk){udp(asking), account("wrong")},
			want: "dns skipped, transport ok, tls skipped, options ok, digest failed",
			seen: "401", remedy: "username and password",
		},
		{
			name: "no username, but the trunk requests credentials", change: []func(*trunks.Trunk){udp(asking)},
			want: "dns skipped, transport ok, tls skipped, options ok, digest failed",
			seen: "no username", remedy: "Set username",
		},
		{
			name: "credentials requested only at REGISTER", change: []func(*trunks.Trunk){udp(registrar), account("secret")},
			want: "dns skipped, transport ok, tls skipped, options ok, digest ok",
			seen: "200 OK to REGISTER",
		},
		{
			name: "wrong password at REGISTER", change: []func(*trunks.Trunk){udp(registrar), account("wrong")},
			want: "dns skipped, transport ok, tls skipped, options ok, digest failed",
			seen: "407", remedy: "username and password",
		},
		{
			name: "password that cannot be decrypted", change: []func(*trunks.Trunk){udp(open), func(t *trunks.Trunk) {
				t.Username, t.Sealed = "account", []byte("sealed")
			}},
			want: "dns skipped, transport ok, tls skipped, options ok, digest failed",
			seen: "cannot be opened", remedy: "SEALING_KEYS",
		},
		{
			name: "trunk sends 503", change: []func(*trunks.Trunk){udp(leaving)},
			want:   "dns skipped, transport ok, tls skipped, options failed, digest skipped",
			seen:   "503 Maintenance",
			remedy: "Ask the provider",
		},
		{
			name:   "no response to OPTIONS",
			change: []func(*trunks.Trunk){func(one *trunks.Trunk) { one.Host, one.Port = ours, silentPort(t) }},
			want:   "dns skipped, transport ok, tls skipped, options failed, digest skipped",
			seen:   "deadline",
			remedy: "The trunk must accept requests from " + agent.Address(transport.UDP),
		},
		{
			name: "host name", change: []func(*trunks.Trunk){udp(open), func(t *trunks.Trunk) { t.Host = "a.test" }},
			want: "dns ok, transport ok, tls skipped, options ok, digest skipped",
			seen: "no username is set",
		},
		{
			name: "unknown host name", change: []func(*trunks.Trunk){func(t *trunks.Trunk) { t.Host = "none.test" }},
			want:   "dns failed, transport skipped, tls skipped, options skipped, digest skipped",
			seen:   "no such host",
			remedy: "Correct host",
		},
		{
			name:   "SRV record with only an IPv6 address",
			change: []func(*trunks.Trunk){func(t *trunks.Trunk) { t.Host = "srv.test" }},
			want:   "dns failed, transport skipped, tls skipped, options skipped, digest skipped",
			seen:   "SRV six.test:5090, six.test 2001:db8::1: no IPv4 address", remedy: "IPv4",
		},
		{
			name:   "dialer has no TCP listener",
			change: []func(*trunks.Trunk){udp(open), func(t *trunks.Trunk) { t.Transport = trunks.TCP }},
			want:   "dns skipped, transport failed, tls skipped, options skipped, digest skipped",
			seen:   "does not listen over TCP",
			remedy: "SIP_TCP_ADDR",
		},
		{
			name: "trunk has no TLS listener", change: []func(*trunks.Trunk){secure(ours, authority), func(one *trunks.Trunk) {
				one.Port = silentPort(t)
			}},
			want: "dns skipped, transport failed, tls skipped, options skipped, digest skipped",
			seen: "refused", remedy: "firewall",
		},
		{
			name: "TLS with a trusted certificate", change: []func(*trunks.Trunk){secure(ours, authority)},
			want: "dns skipped, transport ok, tls ok, options ok, digest skipped",
			seen: "no username is set",
		},
		{
			name: "TLS with an unknown authority", change: []func(*trunks.Trunk){secure(ours, otherAuthority)},
			want: "dns skipped, transport ok, tls failed, options skipped, digest skipped",
			seen: "valid until", remedy: "ca_certificates",
		},
		{
			name: "TLS with a certificate for another name", change: []func(*trunks.Trunk){secure("other.test", authority)},
			want: "dns ok, transport ok, tls failed, options skipped, digest skipped",
			seen: "wanted to match other.test", remedy: "Set host",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			one := trunks.New(uuid.New())
			one.Name = "main"
			for _, change := range tt.change {
				change(&one)
			}
			ctx := t.Context()
			if tt.seen == "deadline" {
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				ctx = short
			}
			var got []string
			var last trunks.CheckStep
			for _, step := range carrier.Check(ctx, one) {
				got = append(got, step.Name+" "+string(step.Result))
				if !strings.HasPrefix(step.Seen, "not tried") {
					last = step
				}
			}
			if got := strings.Join(got, ", "); got != tt.want {
				t.Errorf("results = %q, want %q", got, tt.want)
			}
			if !strings.Contains(last.Seen, tt.seen) {
				t.Errorf("Seen of the last step = %q, want it to contain %q", last.Seen, tt.seen)
			}
			if !strings.Contains(last.Remedy, tt.remedy) {
				t.Errorf("remedy = %q, want it to contain %q", last.Remedy, tt.remedy)
			}
		})
	}
}

// Calls use only addresses of the same family as SIP_ADVERTISED_ADDR, so Check must use the same.
func TestCheck_UsesTheAddressFamilyOfTheAdvertisedAddress(t *testing.T) {
	t.Parallel()
	names := directory{"four.test": "192.0.2.1", "six.test": "2001:db8::1"}
	tests := []struct {
		name, advertised, host, want, remedy string
	}{
		{name: "IPv4 trunk, IPv4 advertised", advertised: "192.0.2.10", host: "four.test", want: "dns ok"},
		{name: "IPv6 trunk, IPv4 advertised", advertised: "192.0.2.10", host: "six.test", want: "dns failed",
			remedy: "an IPv4 address"},
		{name: "IPv6 trunk, IPv6 advertised", advertised: "2001:db8::10", host: "six.test", want: "dns ok"},
		{name: "IPv4 trunk, IPv6 advertised", advertised: "2001:db8::10", host: "four.test", want: "dns failed",
			remedy: "an IPv6 address"},
		{name: "IPv4 trunk, host name advertised", advertised: "sip.example.com", host: "four.test", want: "dns ok"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			agent, err := sip.New(sip.Config{UDP: loopback, Advertised: tt.advertised, Names: names})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(agent.Close)
			carrier := sipcarrier.New(agent, nil, nil, nil, nil, sipcarrier.Config{Names: names})
			one := trunks.New(uuid.New())
			// This process has no TCP listener, so Check sends nothing over TCP.
			one.Name, one.Host, one.Port, one.Transport = "main", tt.host, 5060, trunks.TCP
			step := carrier.Check(t.Context(), one)[0]
			if got := step.Name + " " + string(step.Result); got != tt.want {
				t.Errorf("first step = %q, want %q", got, tt.want)
			}
			if !strings.Contains(step.Remedy, tt.remedy) {
				t.Errorf("remedy = %q, want it to contain %q", step.Remedy, tt.remedy)
			}
		})
	}
}
