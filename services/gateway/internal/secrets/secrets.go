// Package secrets creates and hashes API keys and operator tokens. Only the HMAC-SHA256 of a key or
// token is stored. The key of this HMAC is called pepper. The pepper is not in the database.
// Package auth finds the holder of a key, and package store creates and revokes keys.
package secrets

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/serviceauth"
)

const (
	keyPrefix     = "rf_live_"
	testKeyPrefix = "rf_test_" // has the same length as keyPrefix
	minPepper     = 16
	maxSecret     = 512
)

// APIKey is a stored API key without its secret. Only the response that creates the key contains
// the secret.
type APIKey struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	Name        string
	Access      serviceauth.Access
	// Prefix is the beginning of the key, by which people recognize the key.
	Prefix    string
	CreatedAt time.Time
	RevokedAt *time.Time
}

// Hash is the HMAC-SHA256 of a secret.
type Hash [sha256.Size]byte

// Equal compares two hashes in constant time.
func (h Hash) Equal(other []byte) bool { return subtle.ConstantTimeCompare(h[:], other) == 1 }

// Pepper is the HMAC key with which secrets are hashed.
type Pepper struct{ key []byte }

// NewPepper returns the pepper from the value of API_KEY_PEPPER, which must have at least 16 bytes.
func NewPepper(value string) (Pepper, error) {
	if len(value) < minPepper {
		return Pepper{}, errors.New("API_KEY_PEPPER must be at least 16 bytes long")
	}
	return Pepper{[]byte(value)}, nil
}

// Hash returns the hash of a secret. The database stores this hash.
func (p Pepper) Hash(secret string) Hash {
	mac := hmac.New(sha256.New, p.key)
	mac.Write([]byte(secret))
	return Hash(mac.Sum(nil))
}

// GenerateAPIKey returns a new key and its prefix. A key has the form rf_live_<8 hex digits>_<52
// characters>, or rf_test_… for a test workspace. The 52 characters encode 256 random bits.
func GenerateAPIKey(test bool) (key, prefix string) {
	var public [4]byte
	var secret [32]byte
	_, _ = rand.Read(public[:]) // rand.Read never returns an error since Go 1.24
	_, _ = rand.Read(secret[:])
	kind := keyPrefix
	if test {
		kind = testKeyPrefix
	}
	prefix = kind + hex.EncodeToString(public[:])
	encoded := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret[:])
	return prefix + "_" + strings.ToLower(encoded), prefix
}

// Bearer returns the secret in the Authorization header. ok is true only if there is exactly one
// such header and its scheme is Bearer.
func Bearer(header http.Header) (secret string, ok bool) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, secret, found := strings.Cut(values[0], " ")
	secret = strings.TrimSpace(secret)
	if !found || !strings.EqualFold(scheme, "Bearer") || secret == "" || len(secret) > maxSecret {
		return "", false
	}
	return secret, true
}

// IsAPIKey reports whether a secret has the form of an API key. A secret with another form is not
// looked up in the database.
func IsAPIKey(secret string) bool {
	rest, live := strings.CutPrefix(secret, keyPrefix)
	rest, test := strings.CutPrefix(rest, testKeyPrefix)
	return live != test && len(rest) == 8+1+52 && rest[8] == '_'
}
