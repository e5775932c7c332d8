package serviceauth

import (
	"testing"
	"time"
)

func TestTokenCache_UsesATokenForHalfItsValidity(t *testing.T) {
	t.Parallel()
	calls := keys(t, "calls")
	desk := &tokenCache{keys: calls, aud: "billing-wallet"}
	now := time.Now()
	show := func(after time.Duration) string {
		token, err := desk.at(now.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	first := show(0)
	if show(tokenLife/2-time.Second) != first {
		t.Error("a new token was signed before half of the validity")
	}
	second := show(tokenLife / 2)
	if second == first {
		t.Error("a token was used after half of its validity")
	}
	if show(-time.Hour) == second {
		t.Error("an old token was used after the clock was set back")
	}
}

func TestVerifyService_RejectsACachedTokenAfterItsExpiry(t *testing.T) {
	t.Parallel()
	calls := keys(t, "calls")
	wallet := keys(t, "billing-wallet", trusts(calls))
	now := time.Now().Truncate(time.Second)
	token, err := calls.sign("billing-wallet", claims{Use: forService}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name string
		at   time.Duration
		good bool
	}{
		{"first use", 0, true},
		{"second use", time.Second, true},
		{"expired within the leeway", tokenLife + leeway - time.Second, true},
		{"expired after the leeway", tokenLife + leeway, false},
		{"second use after the leeway", tokenLife + leeway + time.Second, false},
	} {
		if c, err := wallet.verifyService(token, now.Add(row.at)); (err == nil) != row.good {
			t.Errorf("%s: verifyService error = %v, want success = %v", row.name, err, row.good)
		} else if row.good && c.Issuer != "calls" {
			t.Errorf(`%s: c.Issuer = %q, want "calls"`, row.name, c.Issuer)
		}
	}
	forged := token[:len(token)-4] + "AAAA"
	if _, err := wallet.verifyService(forged, now); err == nil {
		t.Error("a token with another signature was accepted")
	}
	caller, err := calls.sign("billing-wallet", claims{Use: forCaller}, now)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := wallet.verifyService(caller, now); err == nil {
			t.Error("a caller's token was accepted as a service's token")
		}
	}
	if n := len(wallet.verified.tokens); n != 1 {
		t.Errorf("verified tokens = %d, want 1", n)
	}
}
