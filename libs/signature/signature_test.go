package signature_test

import (
	"testing"
	"time"

	"ringfence.dev/libs/signature"
)

// The expected value comes from OpenSSL: printf '1767225600.body'
// openssl dgst -sha256 -hmac whsec_test.
func TestSign_EqualsTheSignatureOfOpenSSL(t *testing.T) {
	t.Parallel()
	const want = "t=1767225600,v1=ee39436a5f3aa6d5fa5216cfbdaa271af82fe36f0fbadbec8393383f79b0f68a"
	if got := signature.Sign("whsec_test", time.Unix(1767225600, 0), []byte("body")); got != want {
		t.Errorf("Sign = %s, want %s", got, want)
	}
}
