// Package webhook verifies the signature of a webhook of Ringfence (docs/webhooks.md). Copy this
// file; it uses the standard library only.
package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"
	"time"
)

// tolerance is how far the time of a signature can be before or after the current time.
const tolerance = 300 // seconds

var signatureForm = regexp.MustCompile(`^t=([0-9]{1,12}),v1=([0-9a-f]{64})$`)

// Verify returns nil if the webhook is authentic, and otherwise an error with the reason. secret is
// the whole signing_secret with the prefix whsec_. header is the value of the header
// X-Service-Signature. body is the request body before any decoder has changed it.
func Verify(secret, header string, body []byte, now time.Time) error {
	parts := signatureForm.FindStringSubmatch(header)
	if parts == nil {
		return errors.New("the signature is not of the form t=<unix seconds>,v1=<64 lowercase hex digits>")
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(parts[1] + "."))
	mac.Write(body)
	if !hmac.Equal([]byte(hex.EncodeToString(mac.Sum(nil))), []byte(parts[2])) { // constant time
		return errors.New("the signature does not match the body")
	}
	signedAt, err := strconv.ParseInt(parts[1], 10, 64)
	if age := now.Unix() - signedAt; err != nil || age > tolerance || age < -tolerance {
		return errors.New("the signature's time is more than 300 s from now")
	}
	return nil
}
