package subscriptions_test

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

// net/http must be able to send to every accepted url. CheckURL must accept its own result and
// return it unchanged.
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
		accepted, err := subscriptions.CheckURL(text, public)
		if err != nil {
			var refused *apierr.Error
			if !errors.As(err, &refused) {
				t.Fatalf("CheckURL(%q) = %v, want an apierr.Error", text, err)
			}
			if refused.Code != "invalid_url" {
				t.Errorf("CheckURL(%q): code = %q, want invalid_url", text, refused.Code)
			}
			if !strings.HasPrefix(refused.Message, "url ") {
				t.Errorf("CheckURL(%q): message = %q, want it to name the field", text, refused.Message)
			}
			if len(refused.Message) > 1<<10 {
				t.Errorf("CheckURL(%q): message has %d bytes, want at most 1024", text, len(refused.Message))
			}
			return
		}
		if !strings.HasPrefix(accepted, "https://") {
			t.Errorf("CheckURL(%q) = %q, want https", text, accepted)
		}
		if n := utf8.RuneCountInString(accepted); n > subscriptions.MaxURL {
			t.Errorf("CheckURL(%q) accepts %d characters, want at most %d", text, n, subscriptions.MaxURL)
		}
		if strings.ContainsRune(accepted, 0) {
			t.Errorf("CheckURL(%q) = %q, want no NUL", text, accepted)
		}
		request, err := http.NewRequest(http.MethodPost, accepted, http.NoBody)
		if err != nil {
			t.Fatalf("request to %q: %v", accepted, err)
		}
		if request.URL.User != nil {
			t.Errorf("user info of %q = %v, want none", accepted, request.URL.User)
		}
		if request.URL.Hostname() == "" {
			t.Errorf("host of %q is empty", accepted)
		}
		if addr, err := netip.ParseAddr(request.URL.Hostname()); err == nil && !public(addr) {
			t.Fatalf("%q is sent to %s", text, addr)
		}
		again, err := subscriptions.CheckURL(accepted, public)
		if err != nil {
			t.Fatalf("CheckURL(%q), which it returned for %q: %v", accepted, text, err)
		}
		if again != accepted {
			t.Errorf("CheckURL(%q) = %q, want it unchanged", accepted, again)
		}
	})
}
