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
	leastKey = 32 // bytes
	mostID   = 64
)

// Keys are the keys of the chains: the first signs, all check.
type Keys struct {
	first string
	keys  map[string][]byte
}

// NewKeys reads "<id>=<base64 of 32 bytes or more>" entries; the first signs. stand is a secret of the service that is in no database:
// a key made from it checks too, and signs when there is no entry, so that chains exist before anybody made keys for them.
func NewKeys(entries []string, stand string) (*Keys, error) {
	k := &Keys{keys: map[string][]byte{}}
	for i, entry := range entries {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		id, text, found := strings.Cut(entry, "=")
		key, err := base64.StdEncoding.DecodeString(text)
		if !found || id == "" || len(id) > mostID || err != nil || len(key) < leastKey {
			// Without an id, what stands before the = is the key itself: nothing of the entry is shown.
			return nil, fmt.Errorf("chain key %d: want <id>=<base64 of %d bytes or more>", i+1, leastKey)
		}
		if _, twice := k.keys[id]; twice {
			return nil, fmt.Errorf("chain key %q stands twice", id)
		}
		k.keys[id] = key
		if k.first == "" {
			k.first = id
		}
	}
	if stand != "" {
		key := mac([]byte(stand), []byte("consent chain"))
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

// What can be wrong with something signed.
var (
	// ErrUnknownKey: it names a key that is not configured; put the key back among CONSENT_KEYS.
	ErrUnknownKey = errors.New("signed under a key that is not configured")
	// ErrForged: nobody who has the key signed this.
	ErrForged = errors.New("not what was signed")
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

// Mark is a link with a signature of its own, under another name than a row's: the head of a chain, or where a chain starts once its
// oldest rows were dropped. Without it, who cuts a chain short could make an earlier row its end.
type Mark struct {
	Link
	KeyID string
	Sum   []byte
}

// The two uses of a mark.
const (
	headOf  = "consent head 1"
	startOf = "consent start 1"
)

// Head signs the end of a workspace's chain.
func (k *Keys) Head(workspace uuid.UUID, at Link) Mark { return k.mark(headOf, workspace, at) }

// Start signs the place behind which a workspace's chain goes on after its older rows were dropped.
func (k *Keys) Start(workspace uuid.UUID, at Link) Mark { return k.mark(startOf, workspace, at) }

func (k *Keys) mark(use string, workspace uuid.UUID, at Link) Mark {
	return Mark{Link: at, KeyID: k.first, Sum: k.sum(k.first, marked(use, workspace, at, k.first))}
}

// CheckHead and CheckStart say whether the mark is what was signed.
func (k *Keys) CheckHead(workspace uuid.UUID, m Mark) error {
	return k.check(m.KeyID, marked(headOf, workspace, m.Link, m.KeyID), m.Sum)
}

// CheckStart is CheckHead for a start.
func (k *Keys) CheckStart(workspace uuid.UUID, m Mark) error {
	return k.check(m.KeyID, marked(startOf, workspace, m.Link, m.KeyID), m.Sum)
}

func marked(use string, workspace uuid.UUID, at Link, key string) []byte {
	var w writer
	w.text(use)
	w.raw(workspace[:])
	w.number(at.Seq)
	w.raw(at.MAC)
	w.text(key)
	return w.out
}
