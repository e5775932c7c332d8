// Package serviceauth owns who is asking: the caller a gateway signs for, and the token one service shows
// another (contract.md §9). Ed25519 JWTs; public keys are given by configuration, two at a time for rotation.
package serviceauth

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// Gateway is the only service whose word about callers counts.
const Gateway = "gateway"

// Config is the key part of every service's environment.
type Config struct {
	// SigningKey is this service's own Ed25519 seed, base64 (32 bytes).
	SigningKey string `env:"SIGNING_KEY,required" help:"this service's own Ed25519 seed: 32 bytes in base64"`
	// TrustedKeys are the public keys of those who may ask: "gateway=<base64>,calls=<base64>"; a name may stand twice.
	TrustedKeys []string `env:"TRUSTED_KEYS" envSeparator:"," help:"public keys of those who may ask: gateway=<base64>,calls=<base64>; a name may stand twice for rotation"`
}

// Keys signs as one service and verifies others.
type Keys struct {
	self    string
	private ed25519.PrivateKey
	public  map[string][]jwt.VerificationKey

	familiar familiar
}

// New parses the keys; self is the service's name ("calls"), used as iss and expected as aud. All faults are listed together.
func New(self string, cfg Config) (*Keys, error) {
	var faults []error
	keys := &Keys{self: self, public: map[string][]jwt.VerificationKey{}, familiar: familiar{tokens: map[string]claims{}}}
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

// Public is the public key of the signing key in base64: what the others are given as "<self>=<public>".
func (k *Keys) Public() string {
	public, _ := k.private.Public().(ed25519.PublicKey)
	return base64.StdEncoding.EncodeToString(public)
}

// decode reads base64 with or without padding, in either alphabet.
func decode(text string) ([]byte, error) {
	text = strings.TrimRight(strings.TrimSpace(text), "=")
	text = strings.NewReplacer("-", "+", "_", "/").Replace(text)
	raw, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("decode key: %w", err)
	}
	return raw, nil
}
