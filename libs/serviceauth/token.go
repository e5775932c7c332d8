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
	// life is how long a token is good; leeway is what two clocks may differ (contract.md §9).
	life   = 60 * time.Second
	leeway = 30 * time.Second
)

// use keeps the two kinds of token apart: one must never pass for the other.
type use string

const (
	forCaller  use = "caller"
	forService use = "service"
)

type claims struct {
	jwt.RegisteredClaims
	Use       use       `json:"use"`
	RequestID uuid.UUID `json:"request_id,omitzero"`
	Workspace uuid.UUID `json:"workspace,omitzero"`
	Access    Access    `json:"access,omitempty"`
	Features  []string  `json:"features,omitempty"`
	Operator  string    `json:"operator,omitempty"`
}

// head is the first part of every token of ours: {"alg":"EdDSA","typ":"JWT"}.
const head = "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9."

// body is claims as sign writes them: its own four stand for the library's, which cost more to encode, by reflection and a map, than
// the signature does, and a caller's token is signed for every request.
type body struct {
	Issuer    string `json:"iss"`
	Audience  string `json:"aud"`
	IssuedAt  int64  `json:"iat"`
	ExpiresAt int64  `json:"exp"`
	claims
}

func (k *Keys) sign(aud string, c claims, now time.Time) (string, error) {
	payload, err := json.Marshal(body{Issuer: k.self, Audience: aud, IssuedAt: now.Unix(), ExpiresAt: now.Add(life).Unix(), claims: c})
	if err != nil {
		return "", fmt.Errorf("encode token for %s: %w", aud, err)
	}
	if len(k.private) != ed25519.PrivateKeySize {
		return "", fmt.Errorf("sign token for %s: there is no key", aud)
	}
	token := make([]byte, 0, 512)
	token = base64.RawURLEncoding.AppendEncode(append(token, head...), payload)
	signature := ed25519.Sign(k.private, token)
	return string(base64.RawURLEncoding.AppendEncode(append(token, '.'), signature)), nil
}

// verify checks signature, issuer, audience, life and kind, in the sense of contract.md §9.
func (k *Keys) verify(token string, want use, now time.Time) (claims, error) {
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, k.keysOf,
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithAudience(k.self),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(leeway),
		jwt.WithTimeFunc(func() time.Time { return now }), jwt.WithStrictDecoding())
	if err != nil {
		return claims{}, fmt.Errorf("verify token: %w", err)
	}
	if c.ExpiresAt.After(now.Add(life + leeway)) {
		return claims{}, errors.New("verify token: it lives longer than a token may")
	}
	if c.Use != want {
		return claims{}, fmt.Errorf("verify token: it is for %q, not %q", c.Use, want)
	}
	return c, nil
}

// familiar remembers service tokens whose signature was checked, which come again for half a minute. Only genuine ones get in.
type familiar struct {
	mu     sync.Mutex
	tokens map[string]claims
}

// mostFamiliar bounds the memory: a peer's replica shows two tokens a minute.
const mostFamiliar = 512

// recognise is verify for a service's token. One that was verified before is looked at for its end alone.
func (k *Keys) recognise(token string, now time.Time) (claims, error) {
	k.familiar.mu.Lock()
	known, ok := k.familiar.tokens[token]
	k.familiar.mu.Unlock()
	if ok && now.Before(known.ExpiresAt.Add(leeway)) {
		return known, nil
	}
	c, err := k.verify(token, forService, now)
	if err != nil {
		return claims{}, err
	}
	k.familiar.mu.Lock()
	defer k.familiar.mu.Unlock()
	if len(k.familiar.tokens) >= mostFamiliar {
		clear(k.familiar.tokens)
	}
	k.familiar.tokens[token] = c
	return c, nil
}

// keysOf gives the keys of the token's issuer, old and new.
func (k *Keys) keysOf(token *jwt.Token) (any, error) {
	issuer, err := token.Claims.GetIssuer()
	if err != nil {
		return nil, fmt.Errorf("read issuer: %w", err)
	}
	known := k.public[issuer]
	if len(known) == 0 {
		return nil, fmt.Errorf("issuer %q is not known here", issuer)
	}
	return jwt.VerificationKeySet{Keys: slices.Clone(known)}, nil
}
