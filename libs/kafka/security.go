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

// Security contains the settings of TLS and SASL.
type Security struct {
	TLS      bool   `env:"KAFKA_TLS" envDefault:"false" help:"true to connect to the brokers with TLS."`
	CAFile   string `env:"KAFKA_CA_FILE" help:"PEM file of the certificate authorities of the brokers. If empty, the authorities of the system are trusted."`
	CertFile string `env:"KAFKA_CERT_FILE" help:"PEM file of the client certificate. It is read again for each connection. If empty, the service sends no certificate."`
	KeyFile  string `env:"KAFKA_KEY_FILE" help:"PEM file of the private key of KAFKA_CERT_FILE."`
	// Mechanism is empty if the brokers require no password.
	Mechanism string `env:"KAFKA_SASL_MECHANISM" help:"SASL mechanism for KAFKA_USER and KAFKA_PASSWORD: SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN. If empty, the service sends no password."`
	User      string `env:"KAFKA_USER" help:"User name for KAFKA_SASL_MECHANISM."`
	Password  string `env:"KAFKA_PASSWORD" help:"Password of KAFKA_USER."`
}

// clientOptions returns the client's options. The error names the invalid setting.
func (s Security) clientOptions() ([]kgo.Opt, error) {
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
			return nil, fmt.Errorf("KAFKA_CA_FILE %s contains no certificate in PEM form", s.CAFile)
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

// findRemedy returns a sentence that explains to an operator how to repair a failed connection. It
// returns "" if the cause is not known.
func (s Security) findRemedy(err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var stale x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var host *net.DNSError
	var dial *net.OpError
	switch text := err.Error(); {
	case errors.As(err, &unknown):
		return "the brokers' certificate is signed by an authority that is not in KAFKA_CA_FILE (empty: those of the system): add it"
	case errors.As(err, &name):
		return "the brokers' certificate is for another name than KAFKA_BROKERS: use the name in the certificate"
	case errors.As(err, &stale):
		return "the brokers' certificate is not valid: renew it, or correct the clock"
	case errors.As(err, &record):
		return "the brokers do not use TLS at this port: set KAFKA_TLS=false, or KAFKA_BROKERS to their TLS port"
	case strings.Contains(text, "remote error: tls:"):
		return "the brokers reject the client certificate: check KAFKA_CERT_FILE and KAFKA_KEY_FILE"
	case errors.Is(err, kerr.SaslAuthenticationFailed), strings.Contains(text, "SASL_AUTHENTICATION_FAILED"):
		return "the brokers reject KAFKA_USER and KAFKA_PASSWORD: check both, for KAFKA_SASL_MECHANISM " + s.Mechanism
	case errors.Is(err, kerr.UnsupportedSaslMechanism), strings.Contains(text, "UNSUPPORTED_SASL_MECHANISM"):
		return "the brokers do not offer KAFKA_SASL_MECHANISM " + s.Mechanism + ": set it to one that they offer"
	case errors.As(err, &host):
		return "the host name " + host.Name + " cannot be resolved: check KAFKA_BROKERS, and advertised.listeners of the brokers, which clients use after the first connection"
	case errors.As(err, &dial) && dial.Op == "dial":
		return "the connection failed: check KAFKA_BROKERS, advertised.listeners of the brokers, which clients use after the first connection, and firewalls"
	case errors.Is(err, kerr.UnsupportedVersion), strings.Contains(text, "broker is too old"):
		return "the brokers in KAFKA_BROKERS are too old: use Kafka 2.8 or newer"
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.GroupAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return "KAFKA_USER has no permission for this: grant it (docs/kafka.md lists the permissions)"
	case !s.TLS && (isHangup(text) || strings.Contains(text, "invalid large response size")):
		return "the brokers close the connection; unless they are starting: if this is their TLS port, set KAFKA_TLS=true; if they require a password, set KAFKA_SASL_MECHANISM"
	case s.Mechanism == "" && isHangup(text):
		return "the brokers close the connection; unless they are starting: if they require a password, set KAFKA_SASL_MECHANISM, KAFKA_USER and KAFKA_PASSWORD"
	case s.Mechanism != "" && isHangup(text):
		return "the brokers close the connection; unless they are starting: check KAFKA_SASL_MECHANISM, KAFKA_USER and KAFKA_PASSWORD"
	}
	return ""
}

// isHangup reports whether the error text means that the broker closed the connection without a
// response.
func isHangup(text string) bool {
	return strings.HasSuffix(text, "EOF") || strings.Contains(text, "closed the connection immediately")
}

// Explain adds the remedy to an error of Kafka. If the error is a timeout, it also adds the
// connection's last error.
func (c *Client) Explain(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		if why := c.log.recentError(); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
	}
	if remedy := c.cfg.findRemedy(err); remedy != "" {
		return fmt.Errorf("%w: %s", err, remedy)
	}
	return err
}
