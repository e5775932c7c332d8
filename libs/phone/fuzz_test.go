package phone_test

import (
	"strings"
	"testing"

	"ringfence.dev/libs/phone"
)

// FuzzParse checks that accepted numbers match the pattern and that no method panics for them.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"+14155550123", "+1234567", "+123456789012345", "+0234567", "+1415555\n", "+١٤١٥٥٥٥", "+999999999999", "+80012345678", "+19005550100", "+870123456789"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := phone.Parse(text)
		digits, plus := strings.CutPrefix(text, "+")
		good := plus && len(digits) >= 7 && len(digits) <= 15 && strings.Trim(digits, "0123456789") == "" && digits[0] != '0'
		if ok != good {
			t.Fatalf("Parse: ok = %v, want %v", ok, good)
		}
		if ok && string(n) != text {
			t.Fatalf("Parse: n = %q, want %q", string(n), text)
		}
		if !ok {
			return
		}
		for _, zone := range n.Zones() {
			if zone == nil {
				t.Errorf("zone = nil, want a value; n = %s", n)
			} else if zone.String() == "" {
				t.Errorf("zone is empty, want a value; n = %s", n)
			}
		}
		n.Forbidden()
		if masked := n.Masked(); !strings.HasSuffix(text, masked[len("…"):]) {
			t.Errorf("Masked: text = %q, want it to end with %q; n = %s", text, masked[len("…"):], n)
		} else if len(masked) != len("…")+4 {
			t.Errorf("Masked: length of masked = %d, want %d; n = %s", len(masked), len("…")+4, n)
		}
	})
}
