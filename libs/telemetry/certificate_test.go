package telemetry_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/telemetry"
)

func TestCertificate_ReportsTheEarliestExpiryOfTheChain(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	pair, fault := &tls.Certificate{Certificate: [][]byte{until(t, now.Add(90*24*time.Hour)), until(t, now.Add(time.Hour))}}, error(nil)
	registry := prometheus.NewRegistry()
	for range 2 { // two clients of one process can use the same file
		err := telemetry.Certificate(registry, "KAFKA_CERT_FILE", func() (*tls.Certificate, error) { return pair, fault })
		if err != nil {
			t.Fatal(err)
		}
	}
	expiry := func() float64 {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if len(families) != 1 {
			t.Fatalf("length of families = %v, want 1", len(families))
		}
		if len(families[0].GetMetric()) != 1 {
			t.Fatalf("length of families[0].GetMetric() = %v, want 1", len(families[0].GetMetric()))
		}
		if families[0].GetMetric()[0].GetLabel()[0].GetValue() != "KAFKA_CERT_FILE" {
			t.Fatalf("families[0].GetMetric()[0].GetLabel()[0].GetValue() = %q, want \"KAFKA_CERT_FILE\"",
				families[0].GetMetric()[0].GetLabel()[0].GetValue())
		}
		return families[0].GetMetric()[0].GetGauge().GetValue()
	}
	if got := expiry(); got != float64(now.Add(time.Hour).Unix()) {
		t.Errorf("it expires at %v, want that of the intermediate", got)
	}
	pair = &tls.Certificate{Certificate: [][]byte{until(t, now.Add(180*24*time.Hour))}}
	if got := expiry(); got != float64(now.Add(180*24*time.Hour).Unix()) {
		t.Errorf("renewed, it expires at %v", got)
	}
	fault = errors.New("no such file")
	if got := expiry(); got != 0 {
		t.Errorf("a file that is gone expires at %v, want long ago", got)
	}
}

func until(t *testing.T, end time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	like := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, like, like, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
