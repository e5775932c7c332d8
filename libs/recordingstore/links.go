package recordingstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Path is the URL path of links on the gateway. The key of the recording is appended to Path.
const Path = "/recordings/"

// ErrBadLink means that the signature of a link is invalid or the link has expired.
var ErrBadLink = errors.New("the signature of the link is invalid, or the link has expired")

// Links signs and checks links to recordings in a local directory. A link gives access to one
// recording.
type Links struct {
	keys [][]byte
	base string
}

// NewLinks returns Links that sign with the first key of the storage settings and check signatures
// with all of those keys.
func NewLinks(s Storage) (*Links, error) {
	l := &Links{base: strings.TrimRight(s.LinkURL, "/")}
	for i, text := range s.LinkKeys {
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil || len(key) != sha256.Size {
			return nil, fmt.Errorf("RECORDINGS_LINK_KEYS: entry %d must be base64 of 32 bytes", i+1)
		}
		l.keys = append(l.keys, key)
	}
	if len(l.keys) == 0 {
		return nil, errors.New("RECORDINGS_LINK_KEYS is empty")
	}
	return l, nil
}

// Sign returns a link to the recording. The link is valid for LinkLife.
func (l *Links) Sign(key string, now time.Time) string {
	ends := strconv.FormatInt(now.Add(LinkLife).Unix(), 10)
	query := url.Values{"expires": {ends}, "signature": {hex.EncodeToString(mac(l.keys[0], key, ends))}}
	return l.base + Path + key + "?" + query.Encode()
}

// Check returns ErrBadLink unless the link has a valid signature for the key and has not expired.
func (l *Links) Check(key string, query url.Values, now time.Time) error {
	ends := query.Get("expires")
	at, err := strconv.ParseInt(ends, 10, 64)
	given, fault := hex.DecodeString(query.Get("signature"))
	if err != nil || fault != nil || !IsKey(key) || now.Unix() >= at {
		return ErrBadLink
	}
	for _, known := range l.keys {
		if hmac.Equal(given, mac(known, key, ends)) {
			return nil
		}
	}
	return ErrBadLink
}

func mac(key []byte, name, ends string) []byte {
	sum := hmac.New(sha256.New, key)
	_, _ = sum.Write([]byte("recording\n" + name + "\n" + ends)) // writing to a hash returns no error
	return sum.Sum(nil)
}
