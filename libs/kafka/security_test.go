package kafka_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/testkit"
)

// startSecureBroker starts a broker that requires TLS and a password.
func startSecureBroker(t *testing.T, mechanism string) kafka.Config {
	t.Helper()
	return guardedAs(t, mechanism, net.IPv4(127, 0, 0, 1), time.Hour)
}

func guardedAs(t *testing.T, mechanism string, address net.IP, until time.Duration) kafka.Config {
	t.Helper()
	certificate, file := certifyFor(t, address, until)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(mechanism, "ringfence", "right"),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return kafka.Config{Brokers: cluster.ListenAddrs(), Security: kafka.Security{
		TLS: true, CAFile: file, Mechanism: mechanism, User: "ringfence", Password: "right",
	}}
}

func certify(t *testing.T) (certificate tls.Certificate, file string) {
	t.Helper()
	return certifyFor(t, net.IPv4(127, 0, 0, 1), time.Hour)
}

func certifyFor(t *testing.T, address net.IP, until time.Duration) (certificate tls.Certificate, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	like := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "broker"}, IPAddresses: []net.IP{address},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(until), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, like, like, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func TestSecurity_ConnectsWithTLSAndPassword(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			client, err := kafka.NewClient(startSecureBroker(t, mechanism), "test", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if err := kafka.EnsureTopics(t.Context(), client, []kafka.Topic{kafka.Agents}); err != nil {
				t.Fatal(err)
			}
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: kafka.Agents.Name, Key: []byte("k"), Value: []byte("v")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSecurity_ConnectionErrorNamesTheSetting(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(t *testing.T, cfg *kafka.Config)
		want   string
	}{
		{"a wrong password", func(_ *testing.T, cfg *kafka.Config) { cfg.Password = "wrong" }, "KAFKA_PASSWORD"},
		{
			"a mechanism that the brokers do not accept", func(_ *testing.T, cfg *kafka.Config) { cfg.Mechanism = "PLAIN" },
			"KAFKA_SASL_MECHANISM",
		},
		{
			"an unknown certificate authority", func(t *testing.T, cfg *kafka.Config) { _, cfg.CAFile = certify(t) },
			"KAFKA_CA_FILE",
		},
		{"a client without TLS", func(_ *testing.T, cfg *kafka.Config) { cfg.TLS, cfg.CAFile = false, "" }, "KAFKA_TLS"},
		{
			"a client without a password",
			func(_ *testing.T, cfg *kafka.Config) { cfg.Mechanism, cfg.User, cfg.Password = "", "", "" },
			"KAFKA_SASL_MECHANISM",
		},
		{"a certificate for another host", func(t *testing.T, cfg *kafka.Config) {
			*cfg = guardedAs(t, "SCRAM-SHA-512", net.IPv4(127, 0, 0, 9), time.Hour)
		}, "another name than KAFKA_BROKERS"},
		{"an expired certificate", func(t *testing.T, cfg *kafka.Config) {
			*cfg = guardedAs(t, "SCRAM-SHA-512", net.IPv4(127, 0, 0, 1), -time.Hour)
		}, "renew it"},
		{"no broker at the address", func(_ *testing.T, cfg *kafka.Config) { cfg.Brokers = []string{"127.0.0.1:1"} }, "check KAFKA_BROKERS"},
		{
			"an unknown host name",
			func(_ *testing.T, cfg *kafka.Config) { cfg.Brokers = []string{"no-such-host.invalid:9092"} },
			"check KAFKA_BROKERS",
		},
		{"brokers of an old version", func(t *testing.T, cfg *kafka.Config) {
			*cfg = clusterOf(t, 1, kfake.MaxVersions(kversion.V0_10_0()))
		}, "too old"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := startSecureBroker(t, "SCRAM-SHA-512")
			test.change(t, &cfg)
			client, err := kafka.NewClient(cfg, "test", nil)
			if err != nil {
				t.Fatalf("settings that a broker can mend ended it at the start: %v", err)
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Timeout)
			defer cancel()
			err = kafka.EnsureTopics(ctx, client, []kafka.Topic{kafka.Agents})
			if err == nil {
				t.Error("err: EnsureTopics = nil, want an error")
			} else if !strings.Contains(err.Error(), test.want) {
				t.Errorf("err = %q, want it to contain %q", err.Error(), test.want)
			}
		})
	}
}

func TestNewClient_RejectsInvalidSettings(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		cfg  kafka.Config
		want string
	}{
		{"a certificate authority without TLS", kafka.Config{Security: kafka.Security{CAFile: empty}}, "KAFKA_TLS=true"},
		{
			"a missing file of the certificate authority",
			kafka.Config{Security: kafka.Security{TLS: true, CAFile: empty + "x"}}, "KAFKA_CA_FILE",
		},
		{
			"an empty file of the certificate authority", kafka.Config{Security: kafka.Security{TLS: true, CAFile: empty}},
			"KAFKA_CA_FILE",
		},
		{"a certificate without its key", kafka.Config{Security: kafka.Security{TLS: true, CertFile: empty}}, "KAFKA_KEY_FILE"},
		{
			"a file without a certificate and key",
			kafka.Config{Security: kafka.Security{TLS: true, CertFile: empty, KeyFile: empty}}, "KAFKA_CERT_FILE",
		},
		{"a user without a mechanism", kafka.Config{Security: kafka.Security{User: "u", Password: "p"}}, "KAFKA_SASL_MECHANISM"},
		{
			"an unknown mechanism", kafka.Config{Security: kafka.Security{Mechanism: "GSSAPI", User: "u", Password: "p"}},
			"KAFKA_SASL_MECHANISM",
		},
		{"a mechanism without a password", kafka.Config{Security: kafka.Security{Mechanism: "PLAIN", User: "u"}}, "KAFKA_PASSWORD"},
		{"an unknown value of KAFKA_TOPICS", kafka.Config{Making: kafka.Making{Topics: "no"}}, "KAFKA_TOPICS"},
		{
			"more in-sync replicas than replicas", kafka.Config{Making: kafka.Making{Replication: 2, MinInsync: 3}},
			"KAFKA_MIN_INSYNC",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.cfg.Brokers = []string{"127.0.0.1:1"}
			client, err := kafka.NewClient(test.cfg, "test", nil)
			if err == nil {
				client.Close()
			}
			if err == nil {
				t.Error("err: NewClient = nil, want an error")
			} else if !strings.Contains(err.Error(), test.want) {
				t.Errorf("err = %q, want it to contain %q", err.Error(), test.want)
			}
		})
	}
}

// This test is not parallel, because it replaces the default logger.
func TestClient_LogsARepeatedWarningRarely(t *testing.T) {
	var output logBuffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&output, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	cfg := startSecureBroker(t, "SCRAM-SHA-512")
	_, cfg.CAFile = certify(t)
	client, err := kafka.NewClient(cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 5 {
		_ = client.Ping(t.Context())
	}
	if count := output.with("KAFKA_CA_FILE"); count != 1 {
		t.Errorf("logged %d times, want once:\n%s", count, &output.text)
	}
}

// logBuffer is a log output for concurrent reads and writes.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) with(word string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, word) {
			n++
		}
	}
	return n
}

func TestSecurity_ReportsWhenTheCertificateExpires(t *testing.T) {
	t.Parallel()
	pair, file := certify(t)
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	for _, name := range []string{"calls", "calls-consumer"} {
		client, err := kafka.NewClient(kafka.Config{Brokers: []string{"127.0.0.1:1"}, Security: kafka.Security{TLS: true, CertFile: file, KeyFile: key}}, name, registry)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
	}
	expiry := func() float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range families {
			if family.GetName() == "ringfence_certificate_expires_timestamp_seconds" {
				return family.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatal("no metric")
		return 0
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if got, want := expiry(), float64(leaf.NotAfter.Unix()); got != want {
		t.Errorf("ringfence_certificate_expires_timestamp_seconds = %v, want %v", got, want)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := expiry(); got != 0 {
		t.Errorf("metrics of a deleted file = %v, want none", got)
	}
}
