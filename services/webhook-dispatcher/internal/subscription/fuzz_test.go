package subscription_test

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/services/webhook-dispatcher/internal/subscription"
)

// FuzzCheckURL: an accepted url is one that net/http can send to, over https, to a public address or a name, and is accepted again.
func FuzzCheckURL(f *testing.F) {
	for _, text := range []string{
		"https://example.com/hook", "HTTPS://EXAMPLE.com:8443/a?b=c", "http://example.com", "https://", "https:example.com", "https:///x", "https://user:pw@example.com", "https://example.com/#f",
		"https://10.0.0.1", "https://[::1]/", "https://[::ffff:10.0.0.1]", "https://169.254.169.254/latest", "https://2130706433/", "https://0x7f.1/", "https://127.1", "https://localhost.",
		"https://example.com:0", "https://example.com:99999", "https://example.com:", "https://exa mple.com", "https://example.com/a b", "https://example.com/\x00", "https://example.com\\@10.0.0.1/",
		"https://[fe80::1%25eth0]/", "https://é.example/", "https://１２７.0.0.1/", "https://example.com/%zz", "javascript:alert(1)", " https://example.com", "https://example.com/\r\nHost: x",
		"https://" + strings.Repeat("a.", 200) + "com", "https://example.com/" + strings.Repeat("é", 2028), "https://example.com/" + strings.Repeat("é", 2029),
	} {
		f.Add(text)
	}
	public := func(addr netip.Addr) bool { return addr.Unmap().IsGlobalUnicast() && !addr.Unmap().IsPrivate() }
	f.Fuzz(func(t *testing.T, text string) {
		accepted, err := subscription.CheckURL(text, public)
		if err != nil {
			var refused *apierr.Error
			if !errors.As(err, &refused) || refused.Code != "invalid_url" || !strings.HasPrefix(refused.Message, "url ") || len(refused.Message) > 1<<10 {
				t.Fatalf("%q: %v, want invalid_url", text, err)
			}
			return
		}
		if !strings.HasPrefix(accepted, "https://") || utf8.RuneCountInString(accepted) > subscription.MaxURL || strings.ContainsRune(accepted, 0) {
			t.Fatalf("%q is accepted as %q", text, accepted)
		}
		request, err := http.NewRequest(http.MethodPost, accepted, http.NoBody)
		if err != nil || request.URL.User != nil || request.URL.Hostname() == "" {
			t.Fatalf("%q cannot be sent to: %v", accepted, err)
		}
		if addr, err := netip.ParseAddr(request.URL.Hostname()); err == nil && !public(addr) {
			t.Fatalf("%q is sent to %s", text, addr)
		}
		if again, err := subscription.CheckURL(accepted, public); err != nil || again != accepted {
			t.Fatalf("%q is accepted as %q, then %q, %v", text, accepted, again, err)
		}
	})
}
