// Package seal owns secrets at rest: AES-256-GCM under keys from the environment, each ciphertext naming its key.
// It knows neither what a secret is for nor where it lies.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Config is the sealing part of a service's environment.
type Config struct {
	// Keys are "<id>=<base64 of 32 bytes>"; the first seals, all open.
	Keys []string `env:"SEALING_KEYS,required" envSeparator:"," help:"<id>=<base64 of 32 bytes>,…; the first seals, all open"`
}

// ErrUnknownKey says that the ciphertext names a key that is no longer configured.
var ErrUnknownKey = errors.New("sealed under a key that is not configured")

const (
	keyBytes = 32
	maxID    = 64
)

// Box seals and opens. It is safe for concurrent use.
type Box struct {
	first string
	keys  map[string]cipher.AEAD
}

// New parses the keys.
func New(cfg Config) (*Box, error) {
	box := &Box{keys: make(map[string]cipher.AEAD, len(cfg.Keys))}
	for i, entry := range cfg.Keys {
		id, text, found := strings.Cut(strings.TrimSpace(entry), "=")
		key, err := base64.StdEncoding.DecodeString(text)
		if !found || id == "" || len(id) > maxID || err != nil || len(key) != keyBytes {
			// Without an id, what stands before the = is the key itself: nothing of the entry is shown.
			return nil, fmt.Errorf("sealing key %d: want <id>=<base64 of %d bytes>", i+1, keyBytes)
		}
		if _, twice := box.keys[id]; twice {
			return nil, fmt.Errorf("sealing key %q stands twice", id)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("sealing key %q: %w", id, err)
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("sealing key %q: %w", id, err)
		}
		box.keys[id] = aead
		if box.first == "" {
			box.first = id
		}
	}
	if box.first == "" {
		return nil, errors.New("no sealing key")
	}
	return box, nil
}

// Seal encrypts; about is bound to the ciphertext and must be given again to Open.
func (b *Box) Seal(plain []byte, about string) (sealed []byte, err error) {
	aead := b.keys[b.first]
	nonce := make([]byte, aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("draw nonce: %w", err)
	}
	// length of the key's id | the id | nonce | ciphertext and tag
	sealed = make([]byte, 0, 1+len(b.first)+len(nonce)+len(plain)+aead.Overhead())
	sealed = append(sealed, byte(len(b.first)))
	sealed = append(sealed, b.first...)
	sealed = append(sealed, nonce...)
	return aead.Seal(sealed, nonce, plain, []byte(about)), nil
}

// Open decrypts.
func (b *Box) Open(sealed []byte, about string) ([]byte, error) {
	id, rest, err := split(sealed)
	if err != nil {
		return nil, err
	}
	aead, known := b.keys[id]
	if !known {
		return nil, fmt.Errorf("open with key %q: %w", id, ErrUnknownKey)
	}
	if len(rest) < aead.NonceSize() {
		return nil, errors.New("sealed text is too short")
	}
	plain, err := aead.Open(nil, rest[:aead.NonceSize()], rest[aead.NonceSize():], []byte(about))
	if err != nil {
		return nil, fmt.Errorf("open with key %q: %w", id, err)
	}
	return plain, nil
}

// Reseal opens a text and seals it again under the first key. A text that lies under that key comes back as it is, with current
// set, but is opened all the same: an error says that it cannot be read any more.
func (b *Box) Reseal(sealed []byte, about string) (again []byte, current bool, err error) {
	plain, err := b.Open(sealed, about)
	if err != nil {
		return nil, false, err
	}
	if KeyID(sealed) == b.first {
		return sealed, true, nil
	}
	again, err = b.Seal(plain, about)
	return again, false, err
}

// KeyID is the key that a text says it was sealed under; "" when it is no sealed text.
func KeyID(sealed []byte) string {
	id, _, err := split(sealed)
	if err != nil {
		return ""
	}
	return id
}

func split(sealed []byte) (id string, rest []byte, err error) {
	if len(sealed) == 0 || len(sealed) < 1+int(sealed[0]) {
		return "", nil, errors.New("sealed text is too short")
	}
	end := 1 + int(sealed[0])
	return string(sealed[1:end]), sealed[end:], nil
}
