// Package seal encrypts secrets for storage with AES-256-GCM. The keys come from the environment. A
// ciphertext contains the id of its key.
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

// Config contains the keys.
type Config struct {
	// Keys has entries of the form "<id>=<base64 of 32 bytes>". The first key encrypts, and all
	// keys decrypt.
	Keys []string `env:"SEALING_KEYS,required" envSeparator:"," help:"Keys that encrypt secrets in the database, as <id>=<base64 of 32 bytes>. The first key encrypts, and all keys decrypt. If a key that is still in use is removed, its secrets cannot be read."`
}

// ErrUnknownKey means that the key of the ciphertext is not configured.
var ErrUnknownKey = errors.New("the key that encrypted the text is not in SEALING_KEYS")

const (
	keyBytes = 32
	maxID    = 64
)

// Box encrypts and decrypts. It can be used concurrently.
type Box struct {
	first string
	keys  map[string]cipher.AEAD
}

// New parses the keys. Its error does not contain key material.
func New(cfg Config) (*Box, error) {
	box := &Box{keys: make(map[string]cipher.AEAD, len(cfg.Keys))}
	for i, entry := range cfg.Keys {
		id, text, found := strings.Cut(strings.TrimSpace(entry), "=")
		key, err := base64.StdEncoding.DecodeString(text)
		if !found || id == "" || len(id) > maxID || err != nil || len(key) != keyBytes {
			// If the id is missing, the part before "=" is key material. For this reason the error
			// contains no part of the entry.
			return nil, fmt.Errorf("sealing key %d: want <id>=<base64 of %d bytes>", i+1, keyBytes)
		}
		if _, twice := box.keys[id]; twice {
			return nil, fmt.Errorf("sealing key %q is configured twice", id)
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

// Seal encrypts plaintext with the first key. secretName is a text that identifies the secret. It
// is authenticated but not stored: the caller must pass the same text to Open.
func (b *Box) Seal(plaintext []byte, secretName string) (sealed []byte, err error) {
	aead := b.keys[b.first]
	nonce := make([]byte, aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("generate nonce: %w", err)
	}
	// The format is: length of the key id, key id, nonce, ciphertext with tag.
	sealed = make([]byte, 0, 1+len(b.first)+len(nonce)+len(plaintext)+aead.Overhead())
	sealed = append(sealed, byte(len(b.first)))
	sealed = append(sealed, b.first...)
	sealed = append(sealed, nonce...)
	return aead.Seal(sealed, nonce, plaintext, []byte(secretName)), nil
}

// Open decrypts a ciphertext of Seal. It returns an error if secretName differs from the text that
// was passed to Seal, or if the ciphertext was changed.
func (b *Box) Open(sealed []byte, secretName string) ([]byte, error) {
	id, rest, err := split(sealed)
	if err != nil {
		return nil, err
	}
	aead, known := b.keys[id]
	if !known {
		return nil, fmt.Errorf("open with key %q: %w", id, ErrUnknownKey)
	}
	if len(rest) < aead.NonceSize() {
		return nil, errors.New("encrypted text is too short")
	}
	plain, err := aead.Open(nil, rest[:aead.NonceSize()], rest[aead.NonceSize():], []byte(secretName))
	if err != nil {
		return nil, fmt.Errorf("open with key %q: %w", id, err)
	}
	return plain, nil
}

// Reseal decrypts a ciphertext and encrypts the secret with the first key. If the first key already
// encrypted it, Reseal returns the ciphertext unchanged, and current is true. It decrypts in both
// cases, so an unreadable ciphertext causes an error.
func (b *Box) Reseal(sealed []byte, secretName string) (again []byte, current bool, err error) {
	plain, err := b.Open(sealed, secretName)
	if err != nil {
		return nil, false, err
	}
	if KeyID(sealed) == b.first {
		return sealed, true, nil
	}
	again, err = b.Seal(plain, secretName)
	return again, false, err
}

// KeyID returns the id of the key of a ciphertext, or "" if Seal did not create the bytes.
func KeyID(sealed []byte) string {
	id, _, err := split(sealed)
	if err != nil {
		return ""
	}
	return id
}

func split(sealed []byte) (id string, rest []byte, err error) {
	if len(sealed) == 0 || len(sealed) < 1+int(sealed[0]) {
		return "", nil, errors.New("encrypted text is too short")
	}
	end := 1 + int(sealed[0])
	return string(sealed[1:end]), sealed[end:], nil
}
