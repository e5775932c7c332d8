package subscriptions

import (
	"net/netip"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/ssrf"
)

// MaxURL is the maximum length of a url in characters.
const MaxURL = ssrf.MaxURL

// CheckURL returns the url with a lower-case scheme, as the table subscriptions requires. If
// webhooks must not be sent to the url, it returns the error invalid_url. isReachable reports
// whether webhooks may be sent to an IP address in the url.
func CheckURL(text string, isReachable func(netip.Addr) bool) (string, error) {
	checked, err := ssrf.CheckURL(text, "https", isReachable)
	if err != nil {
		return "", apierr.Unprocessable("invalid_url", "url %s.", err)
	}
	return checked, nil
}
