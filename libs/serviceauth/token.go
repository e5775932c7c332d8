package serviceauth

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

const (
	// tokenLife is the validity of a token. leeway is the allowed difference between two clocks.
	tokenLife = 60 * time.Second
	leeway    = 30 * time.Second
)

// tokenUse is the purpose of a token: to identify a service, or an API caller. A token for one
// purpose is not accepted for the other.
type tokenUse string

const (
	forCaller  tokenUse = "caller"
	forService tokenUse = "service"
)

type claims struct {
	jwt.RegisteredClaims
	Use       tokenUse  `json:"use"`
	RequestID uuid.UUID `json:"request_id,omitzero"`
	Workspace uuid.UUID `json:"workspace,omitzero"`
	Access    Access    `json:"access,omitempty"`
	Features  []string  `json:"features,omitempty"`
	Key       uuid.UUID `json:"key,omitzero"`
	Operator  string    `json:"operator,omitempty"`
	// PersonName is not checked, because other services only display it.
	PersonName string `json:"person,omitempty"`
	// Destinations is a pointer, because an empty list differs from an absent one.
	Destinations *[]string `json:"destinations,omitempty"`
}

// tokenHead is the first part of every token: {"alg":"EdDSA","typ":"JWT"}.
const tokenHead = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9."

// tokenBody is the form in which sign encodes the claims. It declares four fields of
// jwt.RegisteredClaims again. The library encodes its own fields with reflection, which takes
// longer than the signature, and every request needs a token.
type tokenBody struct {
	Issuer    string `json:"iss"`
	Audience  string `json:"aud"`
	IssuedAt  int64  `json:"iat"`
	ExpiresAt int64  `json:"exp"`
	claims
}

func (k *Keys) sign(aud string, c claims, now time.Time) (string, error) {
	payload, err := json.Marshal(tokenBody{
		Issuer: k.self, Audience: aud, IssuedAt: now.Unix(), ExpiresAt: now.Add(tokenLife).Unix(), claims: c,
	})
	if err != nil {
		return "", fmt.Errorf("encode token for %s: %w", aud, err)
	}
	if len(k.private) != ed25519.PrivateKeySize {
		return "", fmt.Errorf("sign token for %s: there is no key", aud)
	}
	token := make([]byte, 0, 512)
	token = base64.RawURLEncoding.AppendEncode(append(token, tokenHead...), payload)
	signature := ed25519.Sign(k.private, token)
	return string(base64.RawURLEncoding.AppendEncode(append(token, '.'), signature)), nil
}

// verify checks the signature, the issuer, the audience, the validity and the purpose of a token.
func (k *Keys) verify(token string, want tokenUse, now time.Time) (claims, error) {
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, k.keysOf,
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithAudience(k.self),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(leeway),
		jwt.WithTimeFunc(func() time.Time { return now }), jwt.WithStrictDecoding())
	if err != nil {
		return claims{}, fmt.Errorf("verify token: %w", err)
	}
	if c.ExpiresAt.After(now.Add(tokenLife + leeway)) {
		return claims{}, errors.New("verify token: its validity is too long")
	}
	if c.Use != want {
		return claims{}, fmt.Errorf("verify token: it is for %q, not %q", c.Use, want)
	}
	return c, nil
}

// tokenSet contains service tokens whose signature was verified. A service uses each token for half
// a minute.
type tokenSet struct {
	mu     sync.Mutex
	tokens map[string]claims
}

// maxVerified is the maximum number of tokens in a tokenSet. It is sufficient, because each replica
// of a calling service uses only two tokens a minute.
const maxVerified = 512

// verifyService verifies the token of a service. If the token was verified before, it checks only
// the expiry.
func (k *Keys) verifyService(token string, now time.Time) (claims, error) {
	k.verified.mu.Lock()
	known, ok := k.verified.tokens[token]
	k.verified.mu.Unlock()
	if ok && now.Before(known.ExpiresAt.Add(leeway)) {
		return known, nil
	}
	c, err := k.verify(token, forService, now)
	if err != nil {
		return claims{}, err
	}
	k.verified.mu.Lock()
	defer k.verified.mu.Unlock()
	if len(k.verified.tokens) >= maxVerified {
		clear(k.verified.tokens)
	}
	k.verified.tokens[token] = c
	return c, nil
}

func (k *Keys) keysOf(token *jwt.Token) (any, error) {
	issuer, err := token.Claims.GetIssuer()
	if err != nil {
		return nil, fmt.Errorf("read issuer: %w", err)
	}
	known := k.public[issuer]
	if len(known) == 0 {
		return nil, fmt.Errorf("issuer %q is not configured", issuer)
	}
	return jwt.VerificationKeySet{Keys: slices.Clone(known)}, nil
}
