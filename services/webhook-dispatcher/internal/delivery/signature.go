package delivery

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"
)

// UserAgent is sent with every attempt.
const UserAgent = "Ringfence-Webhooks/1.0"

// Sign is the value of X-Service-Signature (spec 6.3): t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">, keyed by the whole
// secret string.
func Sign(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(t))
	mac.Write([]byte{'.'})
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// Header is what one attempt sends (contract.md §5). There must never be an Idempotency-Key: net/http would repeat the
// POST by itself, outside our count.
func Header(w Work, at time.Time) http.Header {
	return http.Header{
		"Content-Type":               {"application/json"},
		"User-Agent":                 {UserAgent},
		"X-Service-Signature":        {Sign(w.Secret, at, w.Body)},
		"X-Service-Event-Id":         {w.EventID.String()},
		"X-Service-Delivery-Id":      {w.DeliveryID.String()},
		"X-Service-Delivery-Attempt": {strconv.Itoa(w.Attempt)},
	}
}
