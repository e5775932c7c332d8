package contract

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/test/kit/sharedstack"
)

// holdOfOneCall is the credit that is held for one call of the maximum duration: 600 s at 0.05 a
// minute.
const holdOfOneCall = "0.50"

func TestIdempotency_FiftyRequestsWithOneKeyCreateOneCall(t *testing.T) {
	w := workspace(t)
	w.topUp(t, holdOfOneCall)
	to := number(1)
	answers := runParallel(newClients(t, w.write.key, 50), func(_ int, c *client) answer {
		return c.send(t, "POST", "/v1/calls", w.order(to, "idempotency_key", "order-1042"))
	})
	sharedstack.Equal(t, "answers", countAnswers(answers), map[string]int{"202": 1, "200": 49})
	id := answers[0].text("id")
	for _, a := range answers {
		if a.text("id") != id {
			t.Fatalf("ids %s and %s, want the same request", id, a.text("id"))
		}
	}
	w.mustHaveCalledOnce(t, to, id)
}

func TestIdempotency_FiftyKeysWithCreditForOneCallCreateOneCall(t *testing.T) {
	w := workspace(t)
	w.topUp(t, holdOfOneCall)
	answers := runParallel(newClients(t, w.write.key, 50), func(i int, c *client) answer {
		return c.send(t, "POST", "/v1/calls", w.order(number(1), "idempotency_key", fmt.Sprint("order-", i)))
	})
	sharedstack.Equal(t, "answers", countAnswers(answers), map[string]int{"202": 1, "402 insufficient_credits": 49})
	taken := slices.IndexFunc(answers, func(a answer) bool { return a.status == 202 || a.status == 200 })
	if taken < 0 {
		t.Fatal("no request was accepted")
	}
	w.mustHaveCalledOnce(t, answers[taken].text("to"), answers[taken].text("id"))

	// A refused request does not use up its idempotency key. An accepted request does.
	w.topUp(t, holdOfOneCall)
	again := w.write.want(t, 200, "POST", "/v1/calls", w.order(number(1), "idempotency_key", fmt.Sprint("order-", taken)))
	if again.text("id") != answers[taken].text("id") {
		t.Errorf(`the accepted key again: again.text("id") = %q, want %q; again.body = %s`,
			again.text("id"), answers[taken].text("id"), again.body)
	} else if again.text("status") != "completed" {
		t.Errorf(`the accepted key again: again.text("status") = %q, want "completed"; again.body = %s`,
			again.text("status"), again.body)
	}
	w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "idempotency_key", fmt.Sprint("order-", (taken+1)%50)))
}

// mustHaveCalledOnce requires one call request, one dial, one call and one charge after all work
// has ended.
func (w *tenant) mustHaveCalledOnce(t *testing.T, to, id string) {
	t.Helper()
	ended := w.ended(t, id)
	if ended.text("status") != "completed" {
		t.Fatalf("request = %s, want completed", ended.body)
	}
	requests, calls := w.read.want(t, 200, "GET", "/v1/call-requests", nil).ids(), w.read.want(t, 200, "GET", "/v1/calls", nil).ids()
	sharedstack.Equal(t, "len(requests)", len(requests), 1)
	if len(calls) != 1 {
		t.Fatalf("length of calls = %v, want %v", len(calls), 1)
	}
	sharedstack.Equal(t, "calls[0]", calls[0], ended.text("call_id"))
	log, err := stack(t).CarrierLog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dials := 0
	for _, line := range log {
		if line.Kind == "originate" && line.To == to {
			dials++
		}
	}
	if dials != 1 {
		t.Errorf("originate requests = %d, want 1", dials)
	}
	var charged, balance string
	until(t, "the call is charged", func() bool {
		charged = w.read.want(t, 200, "GET", "/v1/calls/"+calls[0], nil).text("credits_charged")
		balance = w.read.want(t, 200, "GET", "/v1/wallet", nil).text("balance")
		return charged != ""
	})
	if sum := new(big.Rat).Add(decimal(t, charged), decimal(t, balance)); sum.Cmp(decimal(t, holdOfOneCall)) != 0 {
		t.Errorf("Add: sum.Cmp(decimal(t, oneCall)) = %v, want 0; balance = %s; sum.FloatString(6) = %s",
			sum.Cmp(decimal(t, holdOfOneCall)), balance, sum.FloatString(6))
	} else if charged == "0" {
		t.Errorf(`Add: charged = "0", want another value; balance = %s; sum.FloatString(6) = %s`,
			balance, sum.FloatString(6))
	}
	entries := w.operator.want(t, 200, "GET", w.admin+"/wallet/transactions", nil).body
	if n := strings.Count(entries, `"capture"`); n != 1 {
		t.Errorf("%d captures in %s, want one", n, entries)
	}
}

func decimal(t *testing.T, text string) *big.Rat {
	t.Helper()
	value, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Fatalf("%q is no number", text)
	}
	return value
}

func TestIdempotency_KeyInTheBodyTakesPrecedenceOverTheHeader(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	// The scheduled time is so late that no call request is dialed during the test.
	ahead := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	order := func(members ...any) set { return w.order(number(1), append(members, "scheduled_for", ahead)...) }
	first := w.write.want(t, 202, "POST", "/v1/calls", order("idempotency_key", "a"))
	second := w.write.want(t, 202, "POST", "/v1/calls", order(), "Idempotency-Key", "b")
	long := strings.Repeat("~", 255)
	longest := w.write.want(t, 202, "POST", "/v1/calls", order("idempotency_key", long))
	for _, row := range []struct {
		name   string
		body   any
		header string
		want   answer
	}{
		{"the key in the body", order("idempotency_key", "a"), "", first},
		{"the key in the header, first sent in the body", order(), "a", first},
		{"the key in the body, first sent in the header", order("idempotency_key", "b"), "", second},
		{"the key in the body precedes the header", order("idempotency_key", "a"), "b", first},
		{"the key in the body precedes an invalid header", order("idempotency_key", "a"), strings.Repeat("x", 256), first},
		{"the key in the header if the body has null", order("idempotency_key", nil), "b", second},
		{"255 characters in the header", order(), long, longest},
		{"another number and agent", set{"idempotency_key": "a", "to": number(2), "agent_id": uuid.NewString()}, "", first},
		{"an invalid phone number", set{"idempotency_key": "a", "to": "112", "agent_id": w.agent}, "", first},
		{"no other fields", set{"idempotency_key": "a"}, "", first},
		{"other fields of the wrong type",
			set{"idempotency_key": "a", "to": 5, "agent_id": []int{1}, "variables": "x", "scheduled_for": false,
				"contact_id": 7}, "", first},
	} {
		var header []string
		if row.header != "" {
			header = []string{"Idempotency-Key", row.header}
		}
		if got := w.write.send(t, "POST", "/v1/calls", row.body, header...); got.status != 200 {
			t.Errorf("%s: got.status = %v, want 200", row.name, got.status)
		} else if got.body != row.want.body {
			t.Errorf("%s: got.body = %v, want %v", row.name, got.body, row.want.body)
		}
	}
	for name, key := range map[string]string{"empty": "", "256 characters": strings.Repeat("k", 256), "an umlaut": "schlüssel", "a line feed": "a\nb", "DEL": "a\x7f"} {
		for _, got := range []answer{
			w.write.refused(t, 422, "validation_error", "POST", "/v1/calls", order("idempotency_key", key)),
			w.write.refused(t, 422, "validation_error", "POST", "/v1/calls", order("idempotency_key", key), "Idempotency-Key", "a"),
		} {
			if !strings.Contains(got.body, "idempotency_key") {
				t.Errorf("%s: %s does not name idempotency_key", name, got.body)
			}
		}
	}
	for name, key := range map[string]string{"empty": "", "256 characters": strings.Repeat("k", 256), "an umlaut": "schlüssel"} {
		if got := w.write.refused(t, 422, "validation_error", "POST", "/v1/calls", order(), "Idempotency-Key", key); !strings.Contains(got.body, "Idempotency-Key") {
			t.Errorf("%s: %s does not name Idempotency-Key", name, got.body)
		}
	}
	if n := len(w.read.want(t, 200, "GET", "/v1/call-requests?limit=100", nil).ids()); n != 3 {
		t.Errorf("%d requests, want 3", n)
	}
}

func TestIdempotency_KeyBelongsToTheWorkspace(t *testing.T) {
	one, two := workspace(t), workspace(t)
	one.topUp(t, holdOfOneCall)
	two.topUp(t, holdOfOneCall)
	another, _ := one.key(t, "write")
	first := one.write.want(t, 202, "POST", "/v1/calls", one.order(number(1), "idempotency_key", "k"))
	if got := another.want(t, 200, "POST", "/v1/calls", one.order(number(1), "idempotency_key", "k")); got.text("id") != first.text("id") {
		t.Errorf("through another API key of the workspace = %s, want %s", got.text("id"), first.text("id"))
	}
	if got := two.write.want(t, 202, "POST", "/v1/calls", two.order(number(1), "idempotency_key", "k")); got.text("id") == first.text("id") {
		t.Error("two workspaces share a request")
	}
}

func TestIdempotency_RefusalDoesNotUseUpTheKey(t *testing.T) {
	w := workspace(t)
	to := number(1)
	order := w.order(to, "idempotency_key", "k")
	w.write.refused(t, 402, "insufficient_credits", "POST", "/v1/calls", order)
	w.topUp(t, holdOfOneCall)
	w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to})
	w.write.refused(t, 422, "recipient_dnd", "POST", "/v1/calls", order)
	w.write.want(t, 200, "DELETE", "/v1/opt-outs/"+to, nil)
	w.write.refused(t, 422, "invalid_agent", "POST", "/v1/calls", w.order(to, "idempotency_key", "k", "agent_id", uuid.NewString()))
	w.write.refused(t, 422, "invalid_contact", "POST", "/v1/calls", w.order(to, "idempotency_key", "k", "contact_id", uuid.NewString()))
	w.write.refused(t, 422, "invalid_phone", "POST", "/v1/calls", w.order("112", "idempotency_key", "k"))
	w.read.refused(t, 403, "missing_scope", "POST", "/v1/calls", order)
	if got := w.read.want(t, 200, "GET", "/v1/call-requests", nil).ids(); len(got) != 0 {
		t.Errorf("refusals left requests %v", got)
	}
	accepted := w.write.want(t, 202, "POST", "/v1/calls", order)
	if again := w.write.want(t, 200, "POST", "/v1/calls", order); again.text("id") != accepted.text("id") {
		t.Errorf("replay = %s, want %s", again.text("id"), accepted.text("id"))
	}
}
