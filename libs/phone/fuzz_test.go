package phone_test

import (
	"strings"
	"testing"

	"ringfence.dev/libs/phone"
)

// FuzzParse: what is accepted is a plus and 7 to 15 ASCII digits, and every question about it has an answer.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"+14155550123", "+1234567", "+123456789012345", "+0234567", "+1415555\n", "+١٤١٥٥٥٥", "+999999999999", "+80012345678", "+19005550100", "+870123456789"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := phone.Parse(text)
		digits, plus := strings.CutPrefix(text, "+")
		good := plus && len(digits) >= 7 && len(digits) <= 15 && strings.Trim(digits, "0123456789") == "" && digits[0] != '0'
		if ok != good || ok && string(n) != text {
			t.Fatalf("Parse(%q) = %q, %v, want %v", text, n, ok, good)
		}
		if !ok {
			return
		}
		for _, zone := range n.Zones() {
			if zone == nil || zone.String() == "" {
				t.Errorf("%s has a zone without a name", n)
			}
		}
		n.Forbidden()
		if masked := n.Masked(); !strings.HasSuffix(text, masked[len("…"):]) || len(masked) != len("…")+4 {
			t.Errorf("%s is masked as %s", n, masked)
		}
	})
}
