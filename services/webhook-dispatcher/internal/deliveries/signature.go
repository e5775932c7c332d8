package deliveries

import (
	"net/http"
	"strconv"
	"time"

	"ringfence.dev/libs/signature"
)

// UserAgent is the User-Agent header of every request.
const UserAgent = "Ringfence-Webhooks/1.0"

// Sign returns the X-Service-Signature header
// (docs/reference/api/webhooks.md#signature).
func Sign(secret string, at time.Time, body []byte) string { return signature.Sign(secret, at, body) }

// Header returns the headers of an attempt that is signed at the given time. It must not contain
// Idempotency-Key: net/http would then repeat the POST itself, and the attempt would not be
// counted.
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
