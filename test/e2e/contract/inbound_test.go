package contract

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
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
