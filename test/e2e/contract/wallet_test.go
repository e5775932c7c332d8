package contract

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"testing"
	"time"
)

func TestWallet_AmountsAreExactToSixDecimals(t *testing.T) {
	w := workspace(t, set{"currency": "EUR"})
	if got := w.read.want(t, 200, "GET", "/v1/wallet", nil).body; got != `{"balance":0,"currency":"EUR","last_transaction_at":null}`+"\n" {
		t.Errorf("a new wallet = %s", got)
	}
	shown := regexp.MustCompile(`^\{"balance":(-?[0-9]+(?:\.[0-9]{1,6})?),"currency":"EUR","last_transaction_at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"\}\n$`)
	for i, row := range []struct{ kind, amount, balance string }{
		{"top_up", "0.000001", "0.000001"},
		{"top_up", "0.1", "0.100001"},
		{"top_up", "0.2", "0.300001"},
		{"adjustment", "-0.300001", "0"},
		{"top_up", "987654321.123457", "987654321.123457"},
		{"adjustment", "-0.000007", "987654321.12345"},
		{"adjustment", "0.000014", "987654321.123464"},
	} {
		w.operator.want(t, 201, "POST", w.admin+"/wallet/transactions", set{"type": row.kind, "amount": row.amount, "reference": fmt.Sprint(i)})
		got := w.read.want(t, 200, "GET", "/v1/wallet", nil).body
		if match := shown.FindStringSubmatch(got); match == nil {
			t.Errorf("after %s of %s: match = nil, want a value; got = %s", row.kind, row.amount, got)
		} else if match[1] != row.balance {
			t.Errorf("after %s of %s: match[1] = %v, want %v; got = %s", row.kind, row.amount, match[1], row.balance, got)
		}
	}
	before := w.read.want(t, 200, "GET", "/v1/wallet", nil).body
	w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "scheduled_for", time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	if after := w.read.want(t, 200, "GET", "/v1/wallet", nil).body; after != before {
		t.Errorf("with a hold = %s, want %s: a hold does not lower the balance", after, before)
	}
}

func TestWallet_ChargeIsTheTalkTimeRoundedUp(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "10")
	w.operator.want(t, 200, "PUT", w.admin+"/rates", []set{{"prefix": "+1", "per_minute": "0.070007", "increment_seconds": 7}})
	ids := []string{}
	// 01: the person talks. 95: the person hangs up immediately. 90: the number is busy.
	for _, digits := range []int{1, 95, 90} {
		ids = append(ids, w.write.want(t, 202, "POST", "/v1/calls", w.order(number(digits))).text("id"))
	}
	left := int64(10_000_000)
	for _, id := range ids {
		var call answer
		call = w.read.want(t, 200, "GET", "/v1/calls/"+w.ended(t, id).text("call_id"), nil)
		timings, _ := call.members()["timings"].(map[string]any)
		talked, _ := timings["talk_seconds"].(json.Number)
		if talked == "" {
			if call.text("credits_charged") != "" {
				t.Errorf("a call without talk = %s", call.body)
			}
			continue
		}
		seconds, err := talked.Int64()
		if err != nil {
			t.Fatalf("talk_seconds: Int64: %v", err)
		}
		if seconds < 1 {
			t.Fatalf("talk_seconds: seconds = %v, want at least 1; talked = %q", seconds, talked)
		}
		billed := (seconds + 6) / 7 * 7
		want := (billed*70_007 + 59) / 60
		until(t, "the call is charged", func() bool {
			call = w.read.want(t, 200, "GET", "/v1/calls/"+call.text("call_id"), nil)
			return call.text("credits_charged") != ""
		})
		if got := call.text("credits_charged"); got != micro(want) {
			t.Errorf("%d s of talk cost %s, want %s for %d s", seconds, got, micro(want), billed)
		}
		left -= want
	}
	if got := w.read.want(t, 200, "GET", "/v1/wallet", nil).text("balance"); got != micro(left) {
		t.Errorf("balance = %s, want %s", got, micro(left))
	}
}

// micro formats micro-credits as the API does: the shortest exact decimal.
func micro(n int64) string {
	text := regexp.MustCompile(`\.?0+$`).ReplaceAllString(fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000), "")
	if text == "" {
		return "0"
	}
	return text
}

func TestOptOuts_PlusInThePathCanBeRawOrEncoded(t *testing.T) {
	w := workspace(t)
	to := number(1)
	spellings := []string{to, "%2B" + to[1:], "%2b" + to[1:], url.QueryEscape(to)}
	for _, path := range spellings {
		w.read.refused(t, 404, "not_found", "GET", "/v1/opt-outs/"+path, nil)
		w.write.refused(t, 404, "not_found", "DELETE", "/v1/opt-outs/"+path, nil)
	}
	w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to, "reason": "asked"})
	want := fmt.Sprintf(`{"phone_e164":%s,"dnd_status":"%%s","consent_status":"unknown"}`+"\n", strconv.Quote(to))
	for _, path := range spellings {
		if got := w.read.want(t, 200, "GET", "/v1/opt-outs/"+path, nil).body; got != fmt.Sprintf(want, "dnd") {
			t.Errorf("GET %s = %s", path, got)
		}
		if got := w.write.want(t, 200, "DELETE", "/v1/opt-outs/"+path, nil).body; got != fmt.Sprintf(want, "clean") {
			t.Errorf("DELETE %s = %s", path, got)
		}
		w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to})
	}
	for _, path := range []string{to[1:], "%20" + to[1:], "++" + to[1:], to + "%00", to + "%20", "+0" + to[2:], "x", "%2525", to + "12345", "%EF%BC%8B" + to[1:]} {
		w.read.refused(t, 422, "invalid_phone", "GET", "/v1/opt-outs/"+path, nil)
		w.write.refused(t, 422, "invalid_phone", "DELETE", "/v1/opt-outs/"+path, nil)
	}
	for _, query := range []string{"?phone=" + to, "?phone=%2B" + to[1:]} {
		if got := w.read.want(t, 200, "GET", "/v1/contacts"+query, nil).ids(); len(got) != 1 {
			t.Errorf("contacts%s = %v, want the one", query, got)
		}
	}
}
