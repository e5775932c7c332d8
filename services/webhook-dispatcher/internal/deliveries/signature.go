package deliveries

import (
	"net/http"
	"strconv"
	"time"

	"ringfence.dev/libs/signature"
)

// UserAgent is sent with every attempt.
const UserAgent = "Ringfence-Webhooks/1.0"

// Sign is the value of X-Service-Signature (spec 6.3).
func Sign(secret string, at time.Time, body []byte) string { return signature.Sign(secret, at, body) }

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
