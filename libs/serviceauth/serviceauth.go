// Package serviceauth authenticates requests between services. The gateway signs a token that
// identifies the caller of a request. A service that calls another service signs a token that
// identifies itself. Tokens are Ed25519 JWTs. Public keys come from the configuration. During a
// rotation a service has two public keys.
package serviceauth

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// Gateway is the name of the only service whose tokens can identify an API caller.
const Gateway = "gateway"

// Config contains the keys of a service.
type Config struct {
	// SigningKey is the Ed25519 seed of this service, 32 bytes in base64.
	SigningKey string `env:"SIGNING_KEY,required" help:"Ed25519 seed with which this service signs its requests to other services, 32 bytes in base64."`
	// TrustedKeys are the public keys of the services that may call this one:
	// "gateway=<base64>,calls=<base64>". A name can occur twice.
	TrustedKeys []string `env:"TRUSTED_KEYS" envSeparator:"," help:"Public keys of the services that may call this service, as gateway=<base64>,calls=<base64>. For a rotation, list a name twice, with the old and the new key."`
}

// Keys signs tokens of this service and verifies tokens of other services.
type Keys struct {
	self    string
	private ed25519.PrivateKey
	public  map[string][]jwt.VerificationKey

	verified tokenSet
}

// New parses the keys. serviceName is the name of this service ("calls"). It is the issuer of the
// tokens that this service signs, and the audience of the tokens that it accepts. The error lists
// all faults.
func New(serviceName string, cfg Config) (*Keys, error) {
	var faults []error
	keys := &Keys{
		self: serviceName, public: map[string][]jwt.VerificationKey{}, verified: tokenSet{tokens: map[string]claims{}},
	}
	seed, err := decode(cfg.SigningKey)
	if err != nil || len(seed) != ed25519.SeedSize {
		faults = append(faults, fmt.Errorf("SIGNING_KEY must be %d bytes in base64", ed25519.SeedSize))
	} else {
		keys.private = ed25519.NewKeyFromSeed(seed)
	}
	for _, entry := range cfg.TrustedKeys {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		name, encoded, _ := strings.Cut(entry, "=")
		key, err := decode(encoded)
		if err != nil || len(key) != ed25519.PublicKeySize || name == "" {
			faults = append(faults, fmt.Errorf("TRUSTED_KEYS: the entry of %q must be name=<%d bytes in base64>", name, ed25519.PublicKeySize))
			continue
		}
		keys.public[name] = append(keys.public[name], ed25519.PublicKey(key))
	}
	return keys, errors.Join(faults...)
}

// Public returns the public key of this service in base64. Other services need it in TRUSTED_KEYS.
func (k *Keys) Public() string {
	public, _ := k.private.Public().(ed25519.PublicKey)
	return base64.StdEncoding.EncodeToString(public)
}

// decode accepts base64 with or without padding, in the standard and the URL alphabet.
func decode(text string) ([]byte, error) {
	text = strings.TrimRight(strings.TrimSpace(text), "=")
	text = strings.NewReplacer("-", "+", "_", "/").Replace(text)
	raw, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("decode key: %w", err)
	}
	return raw, nil
}
