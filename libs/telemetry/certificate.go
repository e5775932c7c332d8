package telemetry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Certificate registers a metric with the earliest expiry in the chain of a certificate. variable
// is the environment variable with the certificate's file name. loadCertificate is called at each
// scrape; if it fails, the metric is 0. If the variable already has a metric, that metric is kept.
func Certificate(
	metrics prometheus.Registerer, variable string, loadCertificate func() (*tls.Certificate, error),
) error {
	gauge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ringfence_certificate_expires_timestamp_seconds", Help: "When a certificate that this process holds expires, by the variable that names its file.",
		ConstLabels: prometheus.Labels{"certificate": variable},
	}, func() float64 {
		ends, err := earliestExpiry(loadCertificate)
		if err != nil {
			return 0
		}
		return float64(ends.Unix())
	})
	var twice prometheus.AlreadyRegisteredError
	if err := metrics.Register(gauge); err != nil && !errors.As(err, &twice) {
		return fmt.Errorf("register the expiry of %s: %w", variable, err)
	}
	return nil
}

func earliestExpiry(loadCertificate func() (*tls.Certificate, error)) (first time.Time, err error) {
	pair, err := loadCertificate()
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
