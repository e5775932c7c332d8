// The certificate authority of one local stack. The webhook dispatcher trusts it, so endpoints on
// this machine can use HTTPS. `ringfence demo` signs the certificate of its endpoint with the key
// of the authority.

package stack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// The names of the certificate file and of the key file in the stack's home folder.
const (
	CertFile = "ca.pem"
	KeyFile  = "ca-key.pem"
)

// validYears is the validity of the certificate in years. A certificate that expires within a month
// is replaced.
const validYears = 10

// EnsureAuthority creates the authority unless a valid one exists, and returns the path of the
// certificate.
func EnsureAuthority(dir string) (string, error) {
	certPath, keyPath := filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile)
	if validAuthority(certPath, keyPath) {
		return certPath, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", fmt.Errorf("make authority key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return "", fmt.Errorf("make authority serial: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Ringfence local stack"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(validYears, 0, 0),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return "", fmt.Errorf("sign authority: %w", err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", fmt.Errorf("render authority key: %w", err)
	}
	// Write the key first, so that the certificate file never exists without the key file.
	if err := WriteFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600); err != nil {
		return "", err
	}
	return certPath, WriteFile(certPath, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// validAuthority reports whether both files exist, belong together and stay valid for a month.
func validAuthority(certPath, keyPath string) bool {
	certPEM, errCert := os.ReadFile(certPath)
	keyPEM, errKey := os.ReadFile(keyPath)
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if errCert != nil || errKey != nil || certBlock == nil || keyBlock == nil {
		return false
	}
	cert, errCert := x509.ParseCertificate(certBlock.Bytes)
	key, errKey := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if errCert != nil || errKey != nil {
		return false
	}
	private, ok := key.(*ecdsa.PrivateKey)
	return ok && private.PublicKey.Equal(cert.PublicKey) && time.Now().AddDate(0, 1, 0).Before(cert.NotAfter)
}
