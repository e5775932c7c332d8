package deliveries

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/signature"
)

// UserAgent is the User-Agent header of every request.
const UserAgent = "Ringfence-Webhooks/1.0"

// Sign returns the X-Service-Signature header
// (docs/reference/api/webhooks.md#signature).
func Sign(secret string, at time.Time, body []byte) string { return signature.Sign(secret, at, body) }

// Header returns the headers of an attempt that is signed at the given time. They must not contain
// Idempotency-Key. With this header, net/http could send the POST twice within one attempt.
func Header(w Work, at time.Time) http.Header {
	header := http.Header{}
	for name, value := range headers(w.EventID, w.DeliveryID, w.Attempt, Sign(w.Secret, at, w.Body)) {
		header[name] = []string{value}
	}
	return header
}

// MaskedHeaders returns the headers of an attempt with a masked signature. The headers are not
// stored but computed from the stored attempt. If a later version changes a header, MaskedHeaders
// must still return the old header for earlier attempts.
func MaskedHeaders(eventID, deliveryID uuid.UUID, attempt int, at time.Time) map[string]string {
	return headers(eventID, deliveryID, attempt, fmt.Sprintf("t=%d,v1=…", at.Unix()))
}

func headers(eventID, deliveryID uuid.UUID, attempt int, signed string) map[string]string {
	return map[string]string{
		"Content-Type":               "application/json",
		"User-Agent":                 UserAgent,
		"X-Service-Signature":        signed,
		"X-Service-Event-Id":         eventID.String(),
		"X-Service-Delivery-Id":      deliveryID.String(),
		"X-Service-Delivery-Attempt": strconv.Itoa(attempt),
	}
}
