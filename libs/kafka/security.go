package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Security is how we speak to brokers that do not trust everybody.
type Security struct {
	TLS      bool   `env:"KAFKA_TLS" envDefault:"false" help:"speak TLS to the brokers"`
	CAFile   string `env:"KAFKA_CA_FILE" help:"PEM file of the authorities that the brokers' certificates come from; empty: the system's"`
	CertFile string `env:"KAFKA_CERT_FILE" help:"PEM file of our own certificate, where brokers ask for one; read anew for each connection"`
	KeyFile  string `env:"KAFKA_KEY_FILE" help:"PEM file of the key of KAFKA_CERT_FILE"`
	// Mechanism is empty where the brokers ask for no password.
	Mechanism string `env:"KAFKA_SASL_MECHANISM" help:"SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN; empty: no password"`
	User      string `env:"KAFKA_USER" help:"user of KAFKA_SASL_MECHANISM"`
	Password  string `env:"KAFKA_PASSWORD" help:"password of KAFKA_USER"`
}

// options fails on settings that no broker can mend.
func (s Security) options() ([]kgo.Opt, error) {
	var options []kgo.Opt
	switch {
	case s.TLS:
		config, err := s.tls()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	case s.CAFile != "" || s.CertFile != "" || s.KeyFile != "":
		return nil, errors.New("KAFKA_CA_FILE, KAFKA_CERT_FILE or KAFKA_KEY_FILE is set and KAFKA_TLS is not: set KAFKA_TLS=true, or unset them")
	}
	mechanism, err := s.sasl()
	if err != nil {
		return nil, err
	}
	if mechanism != nil {
		options = append(options, kgo.SASL(mechanism))
	}
	return options, nil
}

func (s Security) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CAFile != "" {
		authorities, err := os.ReadFile(s.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read KAFKA_CA_FILE: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("KAFKA_CA_FILE %s holds no certificate in PEM form", s.CAFile)
		}
	}
	if (s.CertFile == "") != (s.KeyFile == "") {
		return nil, errors.New("of KAFKA_CERT_FILE and KAFKA_KEY_FILE only one is set: a certificate needs its key")
	}
	if s.CertFile == "" {
		return config, nil
	}
	if _, err := s.own(); err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.own() }
	return config, nil
}

func (s Security) own() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read KAFKA_CERT_FILE and KAFKA_KEY_FILE: %w", err)
	}
	return &pair, nil
}

func (s Security) sasl() (sasl.Mechanism, error) {
	if s.Mechanism == "" {
		if s.User != "" || s.Password != "" {
			return nil, errors.New("KAFKA_USER or KAFKA_PASSWORD is set and KAFKA_SASL_MECHANISM is not: set it to SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN")
		}
		return nil, nil
	}
	if s.User == "" || s.Password == "" {
		return nil, fmt.Errorf("KAFKA_SASL_MECHANISM is %s, which needs KAFKA_USER and KAFKA_PASSWORD", s.Mechanism)
	}
	switch auth := (scram.Auth{User: s.User, Pass: s.Password}); s.Mechanism {
	case "SCRAM-SHA-512":
		return auth.AsSha512Mechanism(), nil
	case "SCRAM-SHA-256":
		return auth.AsSha256Mechanism(), nil
	case "PLAIN":
		return plain.Auth{User: s.User, Pass: s.Password}.AsMechanism(), nil
	}
	return nil, fmt.Errorf("KAFKA_SASL_MECHANISM is %q: set it to SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN", s.Mechanism)
}

// remedy is what a person can do about a connection that the broker, or we, refuse; "" when nothing is known.
func (s Security) remedy(err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var stale x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var host *net.DNSError
	var dial *net.OpError
	switch text := err.Error(); {
	case errors.As(err, &unknown):
		return "the brokers' certificate comes from an authority that is not in KAFKA_CA_FILE (empty: the system's): set it to theirs"
	case errors.As(err, &name):
		return "the brokers' certificate is for another name than KAFKA_BROKERS has: use the name that it has"
	case errors.As(err, &stale):
		return "the brokers' certificate is not valid: renew it, or mend the clock"
	case errors.As(err, &record):
		return "the brokers speak no TLS at this port: set KAFKA_TLS=false, or KAFKA_BROKERS to their TLS port"
	case strings.Contains(text, "remote error: tls:"):
		return "the brokers refuse our certificate: look at KAFKA_CERT_FILE and KAFKA_KEY_FILE"
	case errors.Is(err, kerr.SaslAuthenticationFailed), strings.Contains(text, "SASL_AUTHENTICATION_FAILED"):
		return "the brokers refuse KAFKA_USER with KAFKA_PASSWORD: set both to what the brokers know, for KAFKA_SASL_MECHANISM " + s.Mechanism
	case errors.Is(err, kerr.UnsupportedSaslMechanism), strings.Contains(text, "UNSUPPORTED_SASL_MECHANISM"):
		return "the brokers do not offer KAFKA_SASL_MECHANISM " + s.Mechanism + ": set it to one that they do"
	case errors.As(err, &host):
		return "no host is known here by the name " + host.Name + ": look at KAFKA_BROKERS, and at advertised.listeners of the brokers, which say where clients go on to"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "nobody answers there: look at KAFKA_BROKERS, at advertised.listeners of the brokers, which say where clients go on to, and at what stands in between"
	case errors.Is(err, kerr.UnsupportedVersion), strings.Contains(text, "broker is too old"):
		return "the brokers in KAFKA_BROKERS are too old to be asked this: have Kafka 2.4 or newer"
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.GroupAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return "KAFKA_USER may not do this: give it the right (docs/kafka.md lists them)"
	case !s.TLS && (hungUp(text) || strings.Contains(text, "invalid large response size")):
		return "the brokers hang up on us; unless they are only starting: if this is their TLS port, set KAFKA_TLS=true; if they ask for a password, set KAFKA_SASL_MECHANISM"
	case s.Mechanism == "" && hungUp(text):
		return "the brokers hang up on us; unless they are only starting: if they ask for a password, set KAFKA_SASL_MECHANISM, KAFKA_USER and KAFKA_PASSWORD"
	case s.Mechanism != "" && hungUp(text):
		return "the brokers hang up on us; unless they are only starting: look at KAFKA_SASL_MECHANISM, KAFKA_USER and KAFKA_PASSWORD"
	}
	return ""
}

// hungUp tells a connection that the broker closed before it said anything.
func hungUp(text string) bool {
	return strings.HasSuffix(text, "EOF") || strings.Contains(text, "closed the connection immediately")
}

// Explain adds the remedy to an error of the brokers' where one is known, and to an end of the patience why no broker was reached.
func (c *Client) Explain(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		if why := c.log.lately(); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
	}
	if remedy := c.cfg.remedy(err); remedy != "" {
		return fmt.Errorf("%w: %s", err, remedy)
	}
	return err
}
