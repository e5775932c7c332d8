package subscriptions

import (
	"net/netip"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/ssrf"
)

// MaxURL bounds a url in characters (contract.md §6).
const MaxURL = ssrf.MaxURL

// CheckURL refuses every url that must not receive webhooks, by the rule of libs/ssrf. What it returns has its scheme in
// small letters, as the table wants it.
func CheckURL(text string, reachable func(netip.Addr) bool) (string, error) {
	checked, err := ssrf.CheckURL(text, "https", reachable)
	if err != nil {
		return "", apierr.Unprocessable("invalid_url", "url %s.", err)
	}
	return checked, nil
}
