package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
)

// requireDownloads skips the test unless `make test-kafka` runs it.
func requireDownloads(t *testing.T) downloads {
	t.Helper()
	if os.Getenv("KAFKA_BROKERS") == "" {
		t.Skip("SKIPPED: make test-kafka runs this")
	}
	kept := downloads{dir: os.Getenv("RINGFENCE_KAFKA_JARS")}
	if kept.dir == "" {
		kept.dir = filepath.Join(os.Getenv("RINGFENCE_BIN"), "apachekafka")
	}
	if err := kept.checkDownloads(); err != nil {
		t.Fatal(err)
	}
	return kept
}

type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.sign(t, "ca", true)
	return a
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name+".pem") }

// sign writes name.pem (the certificate) and name-both.pem (key and certificate). Kafka's PEM key
// stores have the format of name-both.pem.
func (a *authority) sign(t *testing.T, name string, isCA bool) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	like := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: isCA, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if isCA {
		parent, signer = like, key
	}
	der, err := x509.CreateCertificate(rand.Reader, like, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, private := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	for file, content := range map[string][]byte{name: public, name + "-key": private, name + "-both": append(private, public...)} {
		if err := os.WriteFile(a.file(file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

const longPassword = "right and long enough"

// startSecured starts a broker whose second listener requires TLS, a client certificate and a
// password.
func startSecured(t *testing.T) (kafka.Config, *authority) {
	t.Helper()
	kept, trusted := requireDownloads(t), newAuthority(t)
	trusted.sign(t, "broker", false)
	trusted.sign(t, "service", false)
	inner, outer := port(t), port(t)
	controller := port(t)
	b := broker{downloads: kept, jvm: smallHeap, dir: t.TempDir(), port: inner,
		scram: []string{"SCRAM-SHA-512=[name=ringfence,password=" + longPassword + "]", "SCRAM-SHA-256=[name=ringfence,password=" + longPassword + "]"},
		properties: []string{
			fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", controller),
			fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,SASL_SSL://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", inner, outer, controller),
			fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d,SASL_SSL://127.0.0.1:%d", inner, outer),
			"sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
			"listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
			"listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
			`listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_ringfence="` + longPassword + `";`,
			"ssl.keystore.type=PEM", "ssl.keystore.location=" + trusted.file("broker-both"),
			"ssl.truststore.type=PEM", "ssl.truststore.location=" + trusted.file("ca"),
			"listener.name.sasl_ssl.ssl.client.auth=required",
		}}
	if err := launch(t, &b).ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return kafka.Config{Brokers: []string{fmt.Sprintf("127.0.0.1:%d", outer)}, Security: kafka.Security{
		TLS: true, CAFile: trusted.file("ca"), CertFile: trusted.file("service"), KeyFile: trusted.file("service-key"),
		Mechanism: "SCRAM-SHA-512", User: "ringfence", Password: longPassword,
	}}, trusted
}

func launch(t *testing.T, b *broker) *throwaway {
	t.Helper()
	java, args, err := b.prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(java)
	cmd.Args, cmd.Stdout, cmd.Stderr = args, t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	running := &throwaway{address: fmt.Sprintf("127.0.0.1:%d", b.port), dir: b.dir, cmd: cmd, done: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(running.done) }()
	t.Cleanup(running.stop)
	return running
}

func port(t *testing.T) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestApacheKafka_ErrorForWrongCredentialsContainsTheSetting(t *testing.T) {
	t.Parallel()
	cfg, trusted := startSecured(t)
	tests := []struct {
		name   string
		change func(t *testing.T, cfg *kafka.Config)
		want   string
	}{
		{"SCRAM-SHA-512", func(*testing.T, *kafka.Config) {}, ""},
		{"SCRAM-SHA-256", func(_ *testing.T, cfg *kafka.Config) { cfg.Mechanism = "SCRAM-SHA-256" }, ""},
		{"PLAIN", func(_ *testing.T, cfg *kafka.Config) { cfg.Mechanism = "PLAIN" }, ""},
		{"a wrong password", func(_ *testing.T, cfg *kafka.Config) { cfg.Password = "wrong" }, "KAFKA_PASSWORD"},
		{"a wrong password with PLAIN",
			func(_ *testing.T, cfg *kafka.Config) { cfg.Mechanism, cfg.Password = "PLAIN", "wrong" }, "KAFKA_PASSWORD"},
		{"an unknown user", func(_ *testing.T, cfg *kafka.Config) { cfg.User = "nobody" }, "KAFKA_USER"},
		{"an unknown certificate authority",
			func(t *testing.T, cfg *kafka.Config) { cfg.CAFile = newAuthority(t).file("ca") }, "KAFKA_CA_FILE"},
		{"no client certificate", func(_ *testing.T, cfg *kafka.Config) { cfg.CertFile, cfg.KeyFile = "", "" },
			"KAFKA_CERT_FILE"},
		{"no TLS", func(_ *testing.T, cfg *kafka.Config) { cfg.Security = kafka.Security{} }, "KAFKA_TLS"},
		{"no password", func(_ *testing.T, cfg *kafka.Config) { cfg.Mechanism, cfg.User, cfg.Password = "", "", "" }, "KAFKA_SASL_MECHANISM"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := cfg
			test.change(t, &cfg)
			client, err := kafka.NewClient(cfg, "test", nil)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
			defer cancel()
			err = kafka.EnsureTopics(ctx, client, []kafka.Topic{kafka.Agents})
			if test.want != "" {
				if err == nil {
					t.Error("err: error = nil, want an error")
				} else if !strings.Contains(err.Error(), test.want) {
					t.Errorf("err = %q, want it to contain %q", err.Error(), test.want)
				}
				return
			}
			if err == nil {
				err = client.ProduceSync(ctx, &kgo.Record{Topic: kafka.Agents.Name, Key: []byte("k"), Value: []byte("v")}).FirstErr()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a client uses a certificate that is replaced later",
		func(t *testing.T) { replaceClientCertificate(t, cfg, trusted) })
}

// replaceClientCertificate starts a client with a certificate that the broker rejects, and replaces
// the certificate file. The same client must then connect.
func replaceClientCertificate(t *testing.T, cfg kafka.Config, trusted *authority) {
	untrusted := newAuthority(t)
	untrusted.sign(t, "untrusted", false)
	place := t.TempDir()
	cfg.CertFile, cfg.KeyFile = filepath.Join(place, "cert.pem"), filepath.Join(place, "key.pem")
	put := func(from *authority, name string) {
		for file, source := range map[string]string{cfg.CertFile: from.file(name), cfg.KeyFile: from.file(name + "-key")} {
			content, err := os.ReadFile(source)
			if err := errors.Join(err, os.WriteFile(file, content, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(untrusted, "untrusted")
	client, err := kafka.NewClient(cfg, "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	first, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := kafka.EnsureTopics(first, client, []kafka.Topic{kafka.Agents}); err == nil {
		t.Fatal("a certificate of an unknown authority was let in")
	}
	put(trusted, "service")
	second, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := kafka.EnsureTopics(second, client, []kafka.Topic{kafka.Agents}); err != nil {
		t.Errorf("after the right certificate was put in place: %v", err)
	}
}
