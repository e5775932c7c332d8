package contract

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/test/kit"
)

// mustBeBornWithItsID checks that the time in the UUIDv7 is the value of created_at.
func mustBeBornWithItsID(t *testing.T, id, createdAt string) {
	t.Helper()
	parsed, err := uuid.Parse(id)
	if err != nil {
		t.Errorf("uuid.Parse: %v", err)
		return
	}
	if parsed.Version() != 7 {
		t.Errorf("parsed.Version() = %v, want 7; id = %s", parsed.Version(), id)
		return
	}
	seconds, nanos := parsed.Time().UnixTime()
	if born := time.Unix(seconds, nanos).Truncate(time.Millisecond); !born.Equal(instant(t, createdAt)) {
		t.Errorf("id %s is of %s, created_at %s", id, born.UTC(), createdAt)
	}
}

func TestInbound_IsStoredDeliveredAndNotCharged(t *testing.T) {
	w := workspace(t)
	hears := w.subscribeAll(t)
	line, known, unknown := number(1), number(1), number(1)
	w.operator.want(t, 201, "POST", w.admin+"/numbers", set{"phone_e164": line, "agent_id": w.agent})
	contact := w.write.want(t, 201, "POST", "/v1/contacts", set{"phone_e164": known, "name": "Ada"})
	// An opt-out does not block inbound calls.
	w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": known})
	carrier := &client{base: stack(t).Demo.SimURL, http: w.operator.http}
	for _, row := range []struct{ name, from, shown, contact string }{
		{"from a contact, who opted out", known, known, contact.text("id")},
		{"from an unknown number creates no contact", unknown, unknown, ""},
		{"from a withheld number", "", "anonymous", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := carrier.send(t, "POST", "/inbound", set{"from": row.from, "to": line}); got.status/100 != 2 {
				t.Fatalf("POST /inbound = %d %s", got.status, got.body)
			}
			var id string
			until(t, "the call ends", func() bool {
				for _, item := range w.read.want(t, 200, "GET", "/v1/calls?direction=inbound&status=completed", nil).members()["data"].([]any) {
					if light := item.(map[string]any); light["from"] == row.shown {
						id = light["id"].(string)
					}
				}
				return id != ""
			})
			var types []string
			until(t, "its last event arrives", func() bool {
				types = nil
				for _, d := range hears() {
					if d.CallID == id {
						types = append(types, d.Type)
					}
				}
				return slices.Contains(types, "call.completed")
			})
			if want := []string{"call.ringing", "call.answered", "call.completed"}; !slices.Equal(types, want) {
				t.Errorf("events = %v, want %v", types, want)
			}
			call := w.read.want(t, 200, "GET", "/v1/calls/"+id, nil)
			for name, want := range map[string]string{
				"direction": "inbound", "from": row.shown, "to": line, "agent_id": w.agent, "contact_id": row.contact, "status": "completed",
				"credits_charged": "", "hangup_cause": "normal_clearing", "external_ref": "",
			} {
				if got := call.text(name); got != want {
					t.Errorf("%s = %q, want %q", name, got, want)
				}
			}
			request, present := call.members()["call_request_id"]
			if !present || request != nil {
				t.Errorf("call_request_id = %v, present %t, want null", request, present)
			}
			for _, d := range hears() {
				if d.CallID != id {
					continue
				}
				request, present := dataOf(t, []kit.Delivery{d}, d.Type)["call_request_id"]
				if !present || request != nil {
					t.Errorf("call_request_id of %s = %v, present %t, want null", d.Type, request, present)
				}
			}
			timings := call.members()["timings"].(map[string]any)
			if timings["queued_at"] != nil {
				t.Errorf("queued_at = %v, want nil", timings["queued_at"])
			}
			if timings["answered_at"] == nil {
				t.Errorf("answered_at = %v, want a value", timings["answered_at"])
			}
			if timings["talk_seconds"] == nil {
				t.Errorf("talk_seconds = %v, want a value", timings["talk_seconds"])
			}
		})
	}
	if got := w.read.want(t, 200, "GET", "/v1/call-requests", nil).ids(); len(got) != 0 {
		t.Errorf("call requests %v of calls that came in", got)
	}
	if got := w.read.want(t, 200, "GET", "/v1/contacts", nil).ids(); len(got) != 1 {
		t.Errorf("contacts %v, want the one there was", got)
	}
	if got := w.read.want(t, 200, "GET", "/v1/wallet", nil); got.text("balance") != "0" {
		t.Errorf(`want: got.text("balance") = %q, want "0"; got.body = %s`, got.text("balance"), got.body)
	} else if got.text("last_transaction_at") != "" {
		t.Errorf(`want: got.text("last_transaction_at") = %q, want it empty; got.body = %s`,
			got.text("last_transaction_at"), got.body)
	}
	w.read.refused(t, 404, "not_found", "GET", "/v1/calls/"+uuid.NewString(), nil)
}

// callIn places an inbound call from the number `from` to the number `line`. It returns the call
// after the call has ended.
func callIn(t *testing.T, w *tenant, from, line string) (call answer) {
	t.Helper()
	carrier := &client{base: stack(t).Demo.SimURL, http: w.operator.http}
	started := carrier.send(t, "POST", "/inbound", set{"from": from, "to": line})
	if started.status/100 != 2 {
		t.Fatalf("POST /inbound = %d %s", started.status, started.body)
	}
	id := started.text("call_id")
	until(t, "the inbound call ends", func() bool {
		call = w.read.send(t, "GET", "/v1/calls/"+id, nil)
		status := call.text("status")
		return call.status == 200 && status != "ringing" && status != "in_progress"
	})
	return call
}

// newLine gives the workspace a number for inbound calls.
func newLine(t *testing.T, w *tenant) string {
	t.Helper()
	line := number(1)
	w.operator.want(t, 201, "POST", w.admin+"/numbers", set{"phone_e164": line, "agent_id": w.agent})
	return line
}

func TestInbound_CallWithAPriceIsChargedOnce(t *testing.T) {
	w := workspace(t, set{"inbound": set{"per_minute": "0.06", "increment_seconds": 10}})
	hears := w.subscribeAll(t)
	w.topUp(t, "1")
	line := newLine(t, w)
	id := callIn(t, w, number(1), line).text("call_id")
	until(t, "call.completed arrives", func() bool {
		return slices.ContainsFunc(hears(), func(d kit.Delivery) bool { return d.CallID == id && d.Type == "call.completed" })
	})
	call := w.read.want(t, 200, "GET", "/v1/calls/"+id, nil)
	// The talk time is less than ten seconds, so one increment is charged.
	for name, want := range map[string]string{"status": "completed", "credits_charged": "0.01", "direction": "inbound"} {
		if got := call.text(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if got := w.read.want(t, 200, "GET", "/v1/wallet", nil).text("balance"); got != "0.99" {
		t.Errorf("balance = %s, want 0.99", got)
	}
	accounts := w.operator.want(t, 200, "GET", w.admin+"/wallet", nil)
	if got := accounts.text("held"); got != "0" {
		t.Errorf("held = %s, want 0", got)
	}
	for kind, amount := range map[string]string{"hold": "0.6", "capture": "0.01"} {
		page := w.operator.want(t, 200, "GET", w.admin+"/wallet/transactions?type="+kind, nil).members()["data"].([]any)
		if len(page) != 1 {
			t.Fatalf("transactions of the type %s = %d, want 1", kind, len(page))
		}
		one := page[0].(map[string]any)
		if one["call_id"] != id {
			t.Errorf("call_id of the %s = %v, want %s", kind, one["call_id"], id)
		}
		if one["call_request_id"] != nil {
			t.Errorf("call_request_id of the %s = %v, want null", kind, one["call_request_id"])
		}
		if one["amount"] != amount {
			t.Errorf("amount of the %s = %v, want %s", kind, one["amount"], amount)
		}
	}
}

// The price of one workspace does not affect another one.
func TestInbound_CallWithoutSufficientCreditIsBusy(t *testing.T) {
	w := workspace(t, set{"inbound": set{"per_minute": "0.06"}})
	free := workspace(t)
	hears := w.subscribeAll(t)
	w.topUp(t, "0.59") // the longest call costs 0.6
	line := newLine(t, w)
	call := callIn(t, w, number(1), line)
	for name, want := range map[string]string{
		"status": "busy", "hangup_cause": "user_busy", "credits_charged": "", "disposition": "busy", "outcome": "",
	} {
		if got := call.text(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	id := call.text("call_id")
	var types []string
	until(t, "call.busy arrives", func() bool {
		types = nil
		for _, d := range hears() {
			if d.CallID == id {
				types = append(types, d.Type)
			}
		}
		return slices.Contains(types, "call.busy")
	})
	if want := []string{"call.ringing", "call.busy"}; !slices.Equal(types, want) {
		t.Errorf("events = %v, want %v", types, want)
	}
	listed := w.read.want(t, 200, "GET", "/v1/calls?direction=inbound&status=busy", nil)
	if got := len(listed.members()["data"].([]any)); got != 1 {
		t.Errorf("listed busy calls = %d, want 1", got)
	}
	var known struct{ Cause string }
	carrier := kit.NewClient(stack(t).Demo.SimURL, "")
	if err := carrier.Into(t.Context(), "GET", "/calls/"+id, nil, 200, &known); err != nil {
		t.Error(err)
	} else if known.Cause != "user_busy" {
		t.Errorf("cause at the carrier = %q, want user_busy", known.Cause)
	}
	if got := w.read.want(t, 200, "GET", "/v1/wallet", nil).text("balance"); got != "0.59" {
		t.Errorf("balance = %s, want 0.59", got)
	}
	w.topUp(t, "0.01")
	if got := callIn(t, w, number(1), line).text("status"); got != "completed" {
		t.Errorf("status of the call after the top-up = %q, want completed", got)
	}
	if got := callIn(t, free, number(1), newLine(t, free)).text("status"); got != "completed" {
		t.Errorf("status of a call to a workspace without a price = %q, want completed", got)
	}
}
