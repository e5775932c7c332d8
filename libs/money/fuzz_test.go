package money_test

import (
	"encoding/json"
	"errors"
	"testing"

	"ringfence.dev/libs/money"
)

// FuzzParse checks that printing and parsing do not change an amount, as text and as JSON.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"12.5", "-0", "-0.000001", "0.0000001", "1e5", "1e999999", "0.1e-400", ".5", "5.", "+1", " 1", "9223372036854.775807",
		"9223372036854.775808", "-9223372036854.775808", "00000000000000000000000001.5", "١", "0x1", "1_000", "NaN", "--1", "1.-5", "\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		amount, err := money.Parse(text)
		if err != nil {
			if !errors.Is(err, money.ErrAmount) {
				t.Errorf("Parse(%q) = %v, want ErrAmount", text, err)
			}
			return
		}
		again, err := money.Parse(amount.String())
		if err != nil {
			t.Errorf("%q: Parse: %v", text, err)
		} else if again != amount {
			t.Errorf("%q: again = %v, want %v", text, again, amount)
		}
		encoded, err := json.Marshal(amount)
		var read money.Micro
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(encoded, &read); err != nil {
			t.Fatalf("json.Unmarshal: %v", err)
		}
		if read != amount {
			t.Errorf("read = %v, want %v", read, amount)
		}
		for _, seconds := range []int32{-1, 0, 1, 1<<31 - 1} {
			if price := money.Price(amount, seconds, 6); price < 0 {
				t.Errorf("Price: price = %v, want at least 0", price)
			} else if (price > 0) != (amount > 0 && seconds > 0) {
				t.Errorf("Price: price is above 0 = %v, want %v", price > 0, amount > 0 && seconds > 0)
			}
		}
	})
}
