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

// Header returns the headers of an attempt that is signed at the given time. They must not contain
// Idempotency-Key. With this header, net/http would repeat the POST itself, and the repetition
// would not count as an attempt.
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
