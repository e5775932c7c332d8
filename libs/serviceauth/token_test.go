package serviceauth

import (
	"testing"
	"time"
)

func TestShown_OneTokenServesHalfItsLife(t *testing.T) {
	t.Parallel()
	calls := keys(t, "calls")
	desk := &shown{keys: calls, aud: "billing-wallet"}
	now := time.Now()
	show := func(after time.Duration) string {
		token, err := desk.at(now.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	first := show(0)
	if show(life/2-time.Second) != first {
		t.Error("a token is signed anew before half its life is over")
	}
	second := show(life / 2)
	if second == first {
		t.Error("a token is shown when half its life is over")
	}
	if show(-time.Hour) == second {
		t.Error("a clock that was set back keeps an old token in use")
	}
}

func TestRecognise_AFamiliarTokenEndsInTime(t *testing.T) {
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
		{"at first", 0, true},
		{"again", time.Second, true},
		{"in the leeway", life + leeway - time.Second, true},
		{"after it", life + leeway, false},
		{"and not again", life + leeway + time.Second, false},
	} {
		if c, err := wallet.recognise(token, now.Add(row.at)); (err == nil) != row.good {
			t.Errorf("%s: recognise error = %v, want success = %v", row.name, err, row.good)
		} else if row.good && c.Issuer != "calls" {
			t.Errorf(`%s: c.Issuer = %q, want "calls"`, row.name, c.Issuer)
		}
	}
	if forged := token[:len(token)-4] + "AAAA"; wallet.recogniseOK(forged, now) {
		t.Error("a token with another signature passes for one that is known")
	}
	caller, err := calls.sign("billing-wallet", claims{Use: forCaller}, now)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if wallet.recogniseOK(caller, now) {
			t.Error("a caller's token passes for a service's")
		}
	}
	if n := len(wallet.familiar.tokens); n != 1 {
		t.Errorf("%d tokens are remembered, want the genuine one", n)
	}
}

func (k *Keys) recogniseOK(token string, now time.Time) bool {
	_, err := k.recognise(token, now)
	return err == nil
}
