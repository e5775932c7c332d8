// Package apikeys owns what a secret of ours looks like and how it is kept: a customer's key and an operator's
// token are stored only as HMAC-SHA256 under a pepper that the database does not hold.
package apikeys

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
	mark       = "rf_live_"
	minPepper  = 16
	maxCarried = 512
)

// Key is a key as it is kept. The key itself is shown once and never again.
type Key struct {
	ID          uuid.UUID
	WorkspaceID uuid.UUID
	Name        string
	Access      serviceauth.Access
	// Prefix is the part by which a person recognises the key.
	Prefix    string
	CreatedAt time.Time
	RevokedAt *time.Time
}

// Hash stands for a secret.
type Hash [sha256.Size]byte

// Equal compares in constant time.
func (h Hash) Equal(other []byte) bool { return subtle.ConstantTimeCompare(h[:], other) == 1 }

// Pepper turns secrets into hashes.
type Pepper struct{ key []byte }

// NewPepper takes the value of API_KEY_PEPPER: 16 bytes at least.
func NewPepper(value string) (Pepper, error) {
	if len(value) < minPepper {
		return Pepper{}, errors.New("API_KEY_PEPPER must be at least 16 bytes long")
	}
	return Pepper{[]byte(value)}, nil
}

// Hash is the secret as the database keeps it.
func (p Pepper) Hash(secret string) Hash {
	mac := hmac.New(sha256.New, p.key)
	mac.Write([]byte(secret))
	return Hash(mac.Sum(nil))
}

// Generate makes a key: rf_live_<8 hex>_<52 characters, 256 bits>, and the prefix by which it is recognised.
func Generate() (key, prefix string) {
	var public [4]byte
	var secret [32]byte
	_, _ = rand.Read(public[:]) // never fails since Go 1.24
	_, _ = rand.Read(secret[:])
	prefix = mark + hex.EncodeToString(public[:])
	encoded := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret[:])
	return prefix + "_" + strings.ToLower(encoded), prefix
}

// Bearer is the secret of an Authorization header: exactly one, of the scheme Bearer. ok is false otherwise.
func Bearer(header http.Header) (secret string, ok bool) {
	values := header.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, secret, found := strings.Cut(values[0], " ")
	secret = strings.TrimSpace(secret)
	if !found || !strings.EqualFold(scheme, "Bearer") || secret == "" || len(secret) > maxCarried {
		return "", false
	}
	return secret, true
}

// WellFormed says whether a secret can be a customer's key at all, so that nonsense costs no look-up.
func WellFormed(secret string) bool {
	rest, ok := strings.CutPrefix(secret, mark)
	return ok && len(rest) == 8+1+52 && rest[8] == '_'
}
