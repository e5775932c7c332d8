// Package signature signs requests that Ringfence sends to servers of customers: webhooks, and the
// WebSocket handshake with an agent (docs/reference/api/webhooks.md#signature).
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"
)

// Header is the name of the header that contains the signature.
const Header = "X-Service-Signature"

// Sign returns the value of the header: t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">. The key
// of the HMAC is the whole secret string.
func Sign(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}
