package secrets

import (
	"net/http"
	"strings"
	"testing"
)

func TestGenerateAPIKey_ReturnsDifferentWellFormedKeys(t *testing.T) {
	t.Parallel()
	key, prefix := GenerateAPIKey(false)
	other, _ := GenerateAPIKey(true)
	if !IsAPIKey(key) {
		t.Errorf("key: IsAPIKey(key) = false, want true")
	}
	if !strings.HasPrefix(key, prefix+"_") {
		t.Errorf("key = %q, want it to begin with %q", key, prefix+"_")
	}
	if !IsAPIKey(other) {
		t.Errorf("key of a test workspace: IsAPIKey(%q) = false, want true", other)
	}
	if !strings.HasPrefix(other, "rf_test_") {
		t.Errorf("key of a test workspace = %q, want it to begin with rf_test_", other)
	}
	if key == other {
		t.Errorf("key = %v, want another value", key)
	}
	for _, bad := range []string{"", "rf_live_", key[1:], key + "x", strings.ToUpper(key), operatorLike,
		"rf_live_" + other, "rf_test_" + key, "rf_live_rf_test_" + key[16:]} {
		if IsAPIKey(bad) {
			t.Errorf("%q is well formed", bad)
		}
	}
}

const operatorLike = "a-token-of-an-operator"

func TestBearer_RequiresExactlyOneHeader(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		values []string
		want   string
	}{
		{"scheme Bearer", []string{"Bearer abc"}, "abc"},
		{"scheme in lower case", []string{"bearer abc"}, "abc"},
		{"no header", nil, ""},
		{"two headers", []string{"Bearer abc", "Bearer abc"}, ""},
		{"another scheme", []string{"Basic abc"}, ""},
		{"no scheme", []string{"abc"}, ""},
		{"scheme without a secret", []string{"Bearer  "}, ""},
		{"secret above the maximum length", []string{"Bearer " + strings.Repeat("x", maxSecret+1)}, ""},
	} {
		got, ok := Bearer(http.Header{"Authorization": row.values})
		if got != row.want && ok {
			t.Errorf("%s: got = %v, want %v", row.name, got, row.want)
		} else if ok != (row.want != "") {
			t.Errorf("%s: ok = %v, want %v", row.name, ok, row.want != "")
		}
	}
}

func TestNewPepper_RequiresSixteenBytes(t *testing.T) {
	t.Parallel()
	if _, err := NewPepper("short"); err == nil {
		t.Error("a short pepper was taken")
	}
	one, _ := NewPepper("pepper-of-the-test-0001")
	two, _ := NewPepper("pepper-of-the-test-0002")
	hash := one.Hash("secret")
	again, other := one.Hash("secret"), two.Hash("secret")
	if !hash.Equal(again[:]) {
		t.Errorf("hash.Equal(again[:]) = false, want true")
	}
	if hash.Equal(other[:]) {
		t.Errorf("hash.Equal(other[:]) = true, want false")
	}
	if hash.Equal(nil) {
		t.Errorf("hash.Equal(nil) = true, want false")
	}
}
