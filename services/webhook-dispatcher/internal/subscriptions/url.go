package subscriptions

import (
	"net/netip"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/ssrf"
)

// MaxURL is the maximum length of a url in characters.
const MaxURL = ssrf.MaxURL

// CheckURL returns the url with a lower-case scheme, as the table subscriptions requires. It
// returns the error invalid_url if webhooks must not be sent to the url
// (docs/reference/api/webhooks.md#endpoint-addresses). The function `reachable` reports whether
// webhooks may be sent to an IP address in the url.
func CheckURL(text string, isReachable func(netip.Addr) bool) (string, error) {
	checked, err := ssrf.CheckURL(text, "https", isReachable)
	if err != nil {
		return "", apierr.Unprocessable("invalid_url", "url %s.", err)
	}
	return checked, nil
}
