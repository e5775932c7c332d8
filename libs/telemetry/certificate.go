package telemetry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Certificate tells when the certificate of the file that a variable names expires, and with it the first of its chain. read is asked at each scrape; what
// cannot be read counts as expired. A variable that is told of already stays as it is.
func Certificate(metrics prometheus.Registerer, variable string, read func() (*tls.Certificate, error)) error {
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ringfence_certificate_expires_timestamp_seconds", Help: "When a certificate that this process holds expires, by the variable that names its file.",
		ConstLabels: prometheus.Labels{"certificate": variable},
	}, func() float64 {
		ends, err := expires(read)
		if err != nil {
			return 0
		}
		return float64(ends.Unix())
	})
	var twice prometheus.AlreadyRegisteredError
	if err := metrics.Register(gauge); err != nil && !errors.As(err, &twice) {
		return fmt.Errorf("tell when %s expires: %w", variable, err)
	}
	return nil
}

func expires(read func() (*tls.Certificate, error)) (first time.Time, err error) {
	pair, err := read()
	if err != nil {
		return first, err
	}
	for _, der := range pair.Certificate {
		one, err := x509.ParseCertificate(der)
		if err != nil {
			return first, fmt.Errorf("parse a certificate: %w", err)
		}
		if first.IsZero() || one.NotAfter.Before(first) {
			first = one.NotAfter
		}
	}
	return first, nil
}
