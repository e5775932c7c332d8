// Package signature owns the X-Service-Signature of what we send to customers' endpoints (specification 6.3): webhooks, and the opening of an agent's socket.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// Header is the header's name.
const Header = "X-Service-Signature"

// Sign is the header's value (spec 6.3): t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">, keyed by the whole
// secret string.
func Sign(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}
