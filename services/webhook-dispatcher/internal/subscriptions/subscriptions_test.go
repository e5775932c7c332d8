package subscriptions_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/ssrf"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/webhook-dispatcher/internal/subscriptions"
)

func code(err error) string {
	var refused *apierr.Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestCheckURL_RejectsAddressesThatAreNotPublic(t *testing.T) {
	t.Parallel()
	public := ssrf.New(nil).Reachable
	refused := map[string]string{
		"plain http":                        "http://example.com/hook",
		"no scheme":                         "example.com/hook",
		"Azure's platform address":          "https://168.63.129.16/machine",
		"empty":                             "",
		"not a URL":                         "https://exa mple.com/",
		"opaque":                            "https:example.com",
		"no host":                           "https:///hook",
		"user name":                         "https://user@example.com/hook",
		"user name and password":            "https://user:pw@example.com/hook",
		"fragment":                          "https://example.com/hook#part",
		"empty fragment":                    "https://example.com/hook#",
		"port zero":                         "https://example.com:0/",
		"port too large":                    "https://example.com:65536/",
		"colon without port":                "https://example.com:/",
		"one byte too long":                 "https://example.com/" + strings.Repeat("a", 2048-19),
		"loopback":                          "https://127.0.0.1/",
		"another address of 127.0.0.0/8":    "https://127.8.9.10:8443/",
		"localhost":                         "https://localhost/",
		"subdomain of localhost":            "https://api.localhost/",
		"localhost with a dot":              "https://LOCALHOST./",
		"private address of 10.0.0.0/8":     "https://10.1.2.3/",
		"private address of 172.16.0.0/12":  "https://172.16.0.1/",
		"private address of 192.168.0.0/16": "https://192.168.1.1/",
		"link-local and metadata":           "https://169.254.169.254/latest",
		"CGNAT":                             "https://100.64.0.1/",
		"unspecified":                       "https://0.0.0.0/",
		"broadcast":                         "https://255.255.255.255/",
		"IPv6 loopback":                     "https://[::1]/",
		"IPv6 unique local":                 "https://[fd00::1]/",
		"IPv6 metadata":                     "https://[fd00:ec2::254]/",
		"IPv6 link-local with zone":         "https://[fe80::1%25eth0]/",
		"IPv4-mapped loopback":              "https://[::ffff:127.0.0.1]/",
		"NAT64 of a private address":        "https://[64:ff9b::10.0.0.1]/",
		"short form of loopback":            "https://127.1/",
		"decimal form of loopback":          "https://2130706433/",
		"hexadecimal form of loopback":      "https://0x7f.0.0.1/",
		"hexadecimal number":                "https://0x7f000001/",
		"octal form of loopback":            "https://0177.0.0.1/",
		"empty label":                       "https://exa..mple.com/",
		"label over 63 characters":          "https://" + strings.Repeat("a", 64) + ".com/",
		"characters that no name may have":  "https://exa$mple.com/",
		"a space in the path":               "https://example.com/a b",
		"a placeholder in braces":           "https://example.com/{tenant}?key=x",
		"a bar in the query":                "https://example.com/?a|b",
	}
	for name, url := range refused {
		t.Run(name+" is refused", func(t *testing.T) {
			t.Parallel()
			if _, err := subscriptions.CheckURL(url, public); code(err) != "invalid_url" {
				t.Errorf("CheckURL(%q) = %v, want invalid_url", url, err)
			}
		})
	}
	accepted := map[string]string{
		"a host name":               "https://example.com/hook?x=1",
		"any port":                  "https://hooks.example.com:8443/a/b",
		"upper case":                "HTTPS://EXAMPLE.COM",
		"a public address":          "https://8.8.8.8/",
		"a public IPv6 address":     "https://[2606:4700:4700::1111]:443/",
		"a trailing dot":            "https://example.com./",
		"exactly 2048 long":         "https://example.com/" + strings.Repeat("a", 2048-20),
		"an underscore":             "https://my_host.example.com/",
		"a host name outside ASCII": "https://bücher.example/",
		"an encoded space":          "https://example.com/a%20b?c=%7Bd%7D",
	}
	for name, url := range accepted {
		t.Run(name+" is accepted", func(t *testing.T) {
			t.Parallel()
			got, err := subscriptions.CheckURL(url, public)
			if err != nil {
				t.Fatalf("CheckURL(%q): %v", url, err)
			}
			if want := "https" + url[len("https"):]; got != want {
				t.Errorf("CheckURL(%q) = %q, want %q", url, got, want)
			}
		})
	}
	t.Run("a private network that the operator allows is accepted", func(t *testing.T) {
		t.Parallel()
		local := ssrf.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}).Reachable
		for _, url := range []string{"https://127.0.0.1:9443/", "https://localhost:9443/"} {
			if _, err := subscriptions.CheckURL(url, local); err != nil {
				t.Errorf("CheckURL(%q) = %v, want nil", url, err)
			}
		}
		if _, err := subscriptions.CheckURL("https://10.0.0.1/", local); code(err) != "invalid_url" {
			t.Errorf("CheckURL of another private network = %v, want invalid_url", err)
		}
	})
}

func TestCheckEvents_RejectsUnknownTypesAndRemovesDuplicates(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		events []openapi.EventType
		want   string
	}{
		"none":            {events: nil, want: "no_events"},
		"an empty list":   {events: []openapi.EventType{}, want: "no_events"},
		"an unknown type": {events: []openapi.EventType{"call.completed", "call.exploded"}, want: "invalid_event_type"},
		"an empty type":   {events: []openapi.EventType{""}, want: "invalid_event_type"},
		"every documented type": {events: []openapi.EventType{
			"call.ringing", "call.answered", "call.completed", "call.failed", "call.no_answer", "call.busy", "webhook.test",
		}, want: ""},
		"webhook.test": {events: []openapi.EventType{"webhook.test"}, want: ""},
		"upper case":   {events: []openapi.EventType{"CALL.COMPLETED"}, want: "invalid_event_type"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := subscriptions.CheckEvents(tt.events); code(err) != tt.want {
				t.Errorf("CheckEvents(%q) = %q, want %q", tt.events, code(err), tt.want)
			}
		})
	}
	got, err := subscriptions.CheckEvents([]openapi.EventType{"call.busy", "call.failed", "call.busy"})
	if err != nil {
		t.Fatalf("CheckEvents with a repeated type: %v", err)
	}
	if want := []openapi.EventType{"call.busy", "call.failed"}; !slices.Equal(got, want) {
		t.Errorf("CheckEvents with a repeated type = %q, want %q", got, want)
	}
}

func TestParseStatus_AcceptsActiveAndPausedOnly(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, json string
		want       subscriptions.Status
		wantCode   string
	}{
		{name: "active", json: `"active"`, want: subscriptions.Active},
		{name: "paused", json: `"paused"`, want: subscriptions.Paused},
		{name: "failed", json: `"failed"`, wantCode: "invalid_action"},
		{name: "unknown string", json: `"deleted"`, wantCode: "invalid_status"},
		{name: "empty string", json: `""`, wantCode: "invalid_status"},
		{name: "wrong case", json: `"Active"`, wantCode: "invalid_status"},
		{name: "null", json: `null`, wantCode: "invalid_status"},
		{name: "number", json: `7`, wantCode: "invalid_status"},
		{name: "boolean", json: `true`, wantCode: "invalid_status"},
		{name: "object", json: `{"status":"active"}`, wantCode: "invalid_status"},
		{name: "array", json: `["active"]`, wantCode: "invalid_status"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := subscriptions.ParseStatus([]byte(tt.json))
			if got != tt.want {
				t.Errorf("ParseStatus(%s) = %q, want %q", tt.json, got, tt.want)
			}
			if code(err) != tt.wantCode {
				t.Errorf("ParseStatus(%s) error code = %q, want %q", tt.json, code(err), tt.wantCode)
			}
		})
	}
}

func TestMaskedSecret_ShowsOnlyTheLastFourCharacters(t *testing.T) {
	t.Parallel()
	secret, err := subscriptions.NewSecret()
	if err != nil {
		t.Fatalf("NewSecret: %v", err)
	}
	if !strings.HasPrefix(secret, "whsec_") {
		t.Errorf("NewSecret = %q, want the prefix whsec_", secret)
	}
	if len(secret) < 40 {
		t.Errorf("NewSecret has %d characters, want at least 40", len(secret))
	}
	if again, _ := subscriptions.NewSecret(); again == secret {
		t.Fatal("two secrets are equal")
	}
	sub := subscriptions.Subscription{SecretLast4: secret[len(secret)-4:]}
	if got, want := sub.MaskedSecret(), "whsec_\u2026"+secret[len(secret)-4:]; got != want {
		t.Errorf("MaskedSecret = %q, want %q", got, want)
	}
}

func TestCreatedAt_ReturnsTheTimeInTheID(t *testing.T) {
	t.Parallel()
	sub := subscriptions.Subscription{ID: uuid.MustParse("019aa2e4-9c00-7000-8000-000000000000")}
	if got, want := sub.CreatedAt(), time.UnixMilli(0x019aa2e49c00).UTC(); !got.Equal(want) {
		t.Errorf("CreatedAt = %s, want %s", got, want)
	}
}
