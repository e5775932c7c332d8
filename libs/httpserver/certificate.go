package httpserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

const (
	// certificateInterval is the time between two checks whether the files of a certificate changed.
	certificateInterval = time.Second
	// expiryNotice is how long before the expiry of a certificate the warnings begin. One warning
	// is logged per expiryInterval.
	expiryNotice   = 14 * 24 * time.Hour
	expiryInterval = time.Hour
)

// TLSConfig contains the names of the files with the certificate for HTTPS. The service reads the
// names from TLS_CERT_FILE and TLS_KEY_FILE.
type TLSConfig struct {
	// CertFile contains the certificate of the server, then its intermediate certificates (PEM).
	CertFile string
	// KeyFile contains the private key (PEM).
	KeyFile string
}

// Load reads the files. Without files it returns nil: the service serves HTTP. The error names the
// variable, the file and the remedy.
func (c TLSConfig) Load() (*Certificate, error) {
	switch {
	case c.CertFile == "" && c.KeyFile == "":
		return nil, nil //nolint:nilnil // nil is the documented value for HTTP
	case c.CertFile == "":
		return nil, errors.New("TLS_KEY_FILE is set and TLS_CERT_FILE is not: set both, or neither for HTTP")
	case c.KeyFile == "":
		return nil, errors.New("TLS_CERT_FILE is set and TLS_KEY_FILE is not: set both, or neither for HTTP")
	}
	loaded := &Certificate{config: c}
	files, err := c.read()
	if err != nil {
		return nil, err
	}
	pair, err := c.parse(files)
	if err != nil {
		return nil, err
	}
	loaded.seen = files
	loaded.current.Store(pair)
	return loaded, nil
}

// keyPair contains the bytes of the two files.
type keyPair struct{ cert, key []byte }

func (p keyPair) equal(other keyPair) bool {
	return bytes.Equal(p.cert, other.cert) && bytes.Equal(p.key, other.key)
}

func (c TLSConfig) read() (files keyPair, err error) {
	if files.cert, err = os.ReadFile(c.CertFile); err != nil {
		return keyPair{}, fmt.Errorf("read TLS_CERT_FILE: %w: check the path and the rights of the file", err)
	}
	if files.key, err = os.ReadFile(c.KeyFile); err != nil {
		return keyPair{}, fmt.Errorf("read TLS_KEY_FILE: %w: check the path and the rights of the file", err)
	}
	return files, nil
}

func (c TLSConfig) parse(files keyPair) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(files.cert, files.key)
	if err != nil {
		return nil, fmt.Errorf("TLS_CERT_FILE %s and TLS_KEY_FILE %s are not a certificate and its key: %w: "+
			"write both in PEM form, the certificate of the server first", c.CertFile, c.KeyFile, err)
	}
	return &pair, nil
}

// Certificate is a certificate that is replaced when its files change. Open connections continue
// with the earlier certificate.
type Certificate struct {
	config  TLSConfig
	current atomic.Pointer[tls.Certificate]
	// seen is the last content of the files, and failure is the last read error. With these values,
	// Run logs each change once. Only Load and Run use them.
	seen    keyPair
	failure string
}

// Current returns the certificate for new connections. The error is always nil.
func (c *Certificate) Current() (*tls.Certificate, error) { return c.current.Load(), nil }

// Run checks the files each second until ctx ends. If they are not a certificate and its key, the
// current certificate stays in use and a warning is logged. A warning is also logged each hour if
// the certificate has expired or expires soon. A nil Certificate has no files.
func (c *Certificate) Run(ctx context.Context) error {
	if c == nil {
		<-ctx.Done()
		return nil
	}
	c.warnIfExpired(ctx)
	ticker, expiry := time.NewTicker(certificateInterval), time.NewTicker(expiryInterval)
	defer ticker.Stop()
	defer expiry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			c.reload(ctx)
		case <-expiry.C:
			c.warnIfExpired(ctx)
		}
	}
}

func (c *Certificate) reload(ctx context.Context) {
	files, err := c.config.read()
	if err != nil {
		if c.failure != err.Error() {
			c.failure = err.Error()
			slog.WarnContext(ctx, "TLS certificate not loaded; the current one stays in use", "error", err)
		}
		return
	}
	c.failure = ""
	if files.equal(c.seen) {
		return
	}
	c.seen = files
	pair, err := c.config.parse(files)
	if err != nil {
		slog.WarnContext(ctx, "TLS certificate not loaded; the current one stays in use", "error", err)
		return
	}
	c.current.Store(pair)
	slog.InfoContext(ctx, "TLS certificate loaded", "file", c.config.CertFile, "expires_at", pair.Leaf.NotAfter)
	c.warnIfExpired(ctx)
}

func (c *Certificate) warnIfExpired(ctx context.Context) {
	message := "TLS certificate has expired; write a new one to the files"
	switch leaf, now := c.current.Load().Leaf, time.Now(); {
	case now.Before(leaf.NotAfter.Add(-expiryNotice)):
		return
	case now.Before(leaf.NotAfter):
		message = "TLS certificate expires soon; write a new one to the files"
	}
	slog.WarnContext(ctx, message, "file", c.config.CertFile, "expires_at", c.current.Load().Leaf.NotAfter)
}
