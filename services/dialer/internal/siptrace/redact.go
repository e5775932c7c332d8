package siptrace

import (
	"bytes"
	"regexp"
)

// secretPatterns match secrets in SIP messages: digest values, from which a password can be guessed
// (RFC 3261 section 22.4), and SRTP keys in the SDP (RFC 4568, RFC 4567, RFC 4566 section 5.12).
// The first group of each pattern is the secret.
var secretPatterns = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b(?:response|rspauth)[ \t\r\n]*=[ \t\r\n]*"?([^",;\s]+)`),
	regexp.MustCompile(`(?im)^(?:proxy-)?authorization[ \t]*:[ \t]*basic[ \t]+(\S+)`),
	regexp.MustCompile(`(?i)inline:[ \t]*([^\s;|]+)`),
	regexp.MustCompile(`(?im)^a=key-mgmt:\S+[ \t]+(\S+)`),
	regexp.MustCompile(`(?m)^k=([^\r\n]+)`),
}

// Redact returns a copy of a message in which each byte of a secret is replaced by x. The length
// does not change, so that Content-Length stays right.
func Redact(message []byte) []byte {
	redacted := bytes.Clone(message)
	for _, secret := range secretPatterns {
		for _, at := range secret.FindAllSubmatchIndex(redacted, -1) {
			for i := at[2]; i < at[3]; i++ {
				redacted[i] = 'x'
			}
		}
	}
	return redacted
}
