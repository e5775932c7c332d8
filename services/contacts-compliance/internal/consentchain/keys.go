package consentchain

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

const (
	minKeyBytes = 32
	maxKeyID    = 64
)

// Keys are the keys of the chains. The first key signs; all keys verify.
type Keys struct {
	first string
	keys  map[string][]byte
}

// NewKeys parses entries of the form "<id>=<base64 of 32 bytes or more>". The key of the first
// entry signs. NewKeys also derives a key from fallbackSecret. This key verifies old signatures,
// and signs only if there is no entry.
func NewKeys(entries []string, fallbackSecret string) (*Keys, error) {
	k := &Keys{keys: map[string][]byte{}}
	for i, entry := range entries {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		id, text, found := strings.Cut(entry, "=")
		key, err := base64.StdEncoding.DecodeString(text)
		if !found || id == "" || len(id) > maxKeyID || err != nil || len(key) < minKeyBytes {
			// If the entry has no id, the text before "=" can be the key. The error must not show
			// it.
			return nil, fmt.Errorf("chain key %d: want <id>=<base64 of %d bytes or more>", i+1, minKeyBytes)
		}
		if _, twice := k.keys[id]; twice {
			return nil, fmt.Errorf("chain key %q is duplicated", id)
		}
		k.keys[id] = key
		if k.first == "" {
			k.first = id
		}
	}
	if fallbackSecret != "" {
		key := mac([]byte(fallbackSecret), []byte("consent chain"))
		id := "signing-" + hex.EncodeToString(mac(key, []byte("id"))[:4])
		k.keys[id] = key
		if k.first == "" {
			k.first = id
		}
	}
	if k.first == "" {
		return nil, errors.New("no chain key")
	}
	return k, nil
}

func mac(key, text []byte) []byte {
	sum := hmac.New(sha256.New, key)
	sum.Write(text)
	return sum.Sum(nil)
}

func (k *Keys) sum(id string, text []byte) []byte { return mac(k.keys[id], text) }

var (
	// ErrUnknownKey is returned if the signature names a key that is not in CONSENT_KEYS.
	ErrUnknownKey = errors.New("signed under a key that is not configured")
	// ErrForged is returned if the signature is not valid.
	ErrForged = errors.New("invalid signature")
)

func (k *Keys) check(id string, text, sum []byte) error {
	if _, known := k.keys[id]; !known {
		return fmt.Errorf("key %q: %w", id, ErrUnknownKey)
	}
	if !hmac.Equal(sum, k.sum(id, text)) {
		return ErrForged
	}
	return nil
}

// SignedLink is a link with its own signature: the head of a chain, or the start of a chain whose
// oldest rows were dropped. Without this signature, a person with access to the database could
// remove the newest rows and present an earlier row as the head.
type SignedLink struct {
	Link
	KeyID string
	Sum   []byte
}

// These constants are the purposes of a signed link. The purpose is part of the signed bytes, so a
// signed head is not valid as a start.
const (
	headPurpose  = "consent head 1"
	startPurpose = "consent start 1"
)

// SignHead signs the last row of a workspace's chain.
func (k *Keys) SignHead(workspace uuid.UUID, at Link) SignedLink {
	return k.signLink(headPurpose, workspace, at)
}

// SignStart signs the last dropped row of a workspace's chain.
func (k *Keys) SignStart(workspace uuid.UUID, at Link) SignedLink {
	return k.signLink(startPurpose, workspace, at)
}

func (k *Keys) signLink(use string, workspace uuid.UUID, at Link) SignedLink {
	return SignedLink{Link: at, KeyID: k.first, Sum: k.sum(k.first, linkBytes(use, workspace, at, k.first))}
}

// CheckHead returns an error unless the signature of the head is valid.
func (k *Keys) CheckHead(workspace uuid.UUID, m SignedLink) error {
	return k.check(m.KeyID, linkBytes(headPurpose, workspace, m.Link, m.KeyID), m.Sum)
}

// CheckStart returns an error unless the signature of the start is valid.
func (k *Keys) CheckStart(workspace uuid.UUID, m SignedLink) error {
	return k.check(m.KeyID, linkBytes(startPurpose, workspace, m.Link, m.KeyID), m.Sum)
}

func linkBytes(use string, workspace uuid.UUID, at Link, key string) []byte {
	var w fieldWriter
	w.text(use)
	w.raw(workspace[:])
	w.number(at.Seq)
	w.raw(at.MAC)
	w.text(key)
	return w.out
}
