package contract

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// window is a daily calling window in UTC that is closed now.
type window struct {
	window set
	// next is the next opening of the window. The window stays open for an hour.
	next time.Time
}

// closedWindow returns a window that opens at least an hour from now.
func closedWindow(now time.Time) window {
	now = now.UTC()
	hour, day := now.Hour()+2, 0
	if hour > 22 {
		hour, day = 1, 1
	}
	return window{
		set{"start": fmt.Sprintf("%02d:00", hour), "end": fmt.Sprintf("%02d:00", hour+1)},
		time.Date(now.Year(), now.Month(), now.Day()+day, hour, 0, 0, 0, time.UTC),
	}
}

func (w *tenant) consent(t *testing.T, number, status string) {
	t.Helper()
	w.operator.want(t, 200, "PUT", w.admin+"/contacts/"+number+"/consent", set{"status": status, "source": "test"})
}

func instant(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Errorf("read an instant: %v", err)
	}
	return at
}

func TestHours_ClosedWindowRefusesOrSchedulesACall(t *testing.T) {
	closed := closedWindow(time.Now())
	w := workspace(t, set{"calling_policy": set{"window": closed.window, "timezone": "UTC"}})
	w.topUp(t, "100")
	stamp := func(at time.Time) string { return at.Format(time.RFC3339) }
	for _, row := range []struct {
		name    string
		members []any
		// at is the accepted value of scheduled_for. The zero value means that the request is
		// refused.
		at time.Time
	}{
		{"is refused by default", nil, time.Time{}},
		{"is refused if schedule_if_outside_hours is false", []any{"schedule_if_outside_hours", false}, time.Time{}},
		{"is refused if schedule_if_outside_hours is null", []any{"schedule_if_outside_hours", nil}, time.Time{}},
		{"is waited for if schedule_if_outside_hours is true", []any{"schedule_if_outside_hours", true}, closed.next},
		{"is accepted if it is open at scheduled_for", []any{"scheduled_for", stamp(closed.next.Add(30 * time.Minute))},
			closed.next.Add(30 * time.Minute)},
		{"is accepted at its first second", []any{"scheduled_for", stamp(closed.next)}, closed.next},
		{"is refused a second before its start", []any{"scheduled_for", stamp(closed.next.Add(-time.Second))}, time.Time{}},
		{"is refused at its end", []any{"scheduled_for", stamp(closed.next.Add(time.Hour))}, time.Time{}},
		{"is accepted a second before its end", []any{"scheduled_for", stamp(closed.next.Add(time.Hour - time.Second))},
			closed.next.Add(time.Hour - time.Second)},
		{"that ended today is waited for until tomorrow",
			[]any{"scheduled_for", stamp(closed.next.Add(time.Hour)), "schedule_if_outside_hours", true}, closed.next.AddDate(0,
				0, 1)},
		{"is refused with a scheduled_for in the past",
			[]any{"scheduled_for", stamp(closed.next.AddDate(0, 0, -1).Add(time.Minute))}, time.Time{}},
	} {
		t.Run("a closed window "+row.name, func(t *testing.T) {
			if row.at.IsZero() {
				got := w.write.refused(t, 422, "outside_calling_hours", "POST", "/v1/calls", w.order(number(1), row.members...))
				if !strings.Contains(got.body, "window") {
					t.Errorf("%s does not say which rule", got.body)
				}
				return
			}
			got := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), row.members...))
			if at := instant(t, got.text("scheduled_for")); !at.Equal(row.at) {
				t.Errorf("instant: at = %v, want %v", at, row.at)
			} else if got.text("status") != "queued" {
				t.Errorf(`instant: got.text("status") = %q, want "queued"`, got.text("status"))
			}
		})
	}
}

func TestHours_WindowAppliesInTheTimeZoneOfTheNumber(t *testing.T) {
	w := workspace(t, set{"calling_policy": nil})
	w.topUp(t, "100")
	// at returns the given hour of a day in the next month, in the time zone.
	at := func(zone string, hour int) string {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		day := time.Now().AddDate(0, 0, 30)
		return time.Date(day.Year(), day.Month(), day.Day(), hour, 0, 0, 0, location).Format(time.RFC3339)
	}
	berlin, tokyo := "+4930901820001", "+81312345601"
	w.write.want(t, 202, "POST", "/v1/calls", w.order(berlin, "scheduled_for", at("Europe/Berlin", 12)))
	w.write.want(t, 202, "POST", "/v1/calls", w.order(tokyo, "scheduled_for", at("Asia/Tokyo", 12)))
	w.write.refused(t, 422, "outside_calling_hours", "POST", "/v1/calls", w.order(berlin, "scheduled_for", at("Asia/Tokyo", 12)))
	for hour, status := range map[int]int{8: 422, 9: 202, 19: 202, 20: 422} {
		if got := w.write.send(t, "POST", "/v1/calls",
			w.order(berlin, "scheduled_for", at("Europe/Berlin", hour))); got.status != status {
			t.Errorf("at %d:00 = %d %s, want %d", hour, got.status, got.body, status)
		}
	}
	// The contact has another time zone. The calling window must be open in that zone too, until
	// the contact's zone is removed.
	contact := w.write.want(t, 201, "POST", "/v1/contacts", set{"phone_e164": "+4930901820002", "metadata": set{"time_zone": "Asia/Tokyo"}})
	order := w.order("+4930901820002", "scheduled_for", at("Europe/Berlin", 14))
	if got := w.write.refused(t, 422, "outside_calling_hours", "POST", "/v1/calls", order); !strings.Contains(got.body, "Asia/Tokyo") {
		t.Errorf("%s does not name the zone in which it is closed", got.body)
	}
	w.write.want(t, 200, "PATCH", "/v1/contacts/"+contact.text("id"), set{"metadata": set{"time_zone": nil}})
	w.write.want(t, 202, "POST", "/v1/calls", order)
}

func TestHours_CallCanBeScheduledAtMost366DaysAhead(t *testing.T) {
	w := workspace(t)
	w.topUp(t, "100")
	now := time.Now()
	for _, row := range []struct {
		name, value string
		want        time.Time // the zero value means that the request is refused
	}{
		{"an hour ahead in another zone", now.Add(time.Hour).In(time.FixedZone("", 5*3600+1800)).Format(time.RFC3339), now.Add(time.Hour).Truncate(time.Second)},
		{"finer than a millisecond", now.Add(time.Hour).UTC().Truncate(time.Second).Format("2006-01-02T15:04:05") + ".1239Z", now.Add(time.Hour).Truncate(time.Second).Add(123 * time.Millisecond)},
		{"366 days ahead minus a minute", now.Add(366*24*time.Hour - time.Minute).UTC().Format(time.RFC3339),
			now.Add(366*24*time.Hour - time.Minute).Truncate(time.Second)},
		{"366 days and a minute ahead", now.Add(366*24*time.Hour + time.Minute).UTC().Format(time.RFC3339), time.Time{}},
		{"the year 9999", "9999-12-31T23:59:59Z", time.Time{}},
		// Only times of more than 7 days in the past are refused.
		{"8 days in the past", now.AddDate(0, 0, -8).UTC().Format(time.RFC3339), time.Time{}},
		{"the zero time of Unix", "1970-01-01T00:00:00Z", time.Time{}},
		{"the zero time of Go", "0001-01-01T00:00:00Z", time.Time{}},
		{"no offset", now.Add(time.Hour).UTC().Format("2006-01-02T15:04:05"), time.Time{}},
		{"a date without a time", now.Add(48 * time.Hour).UTC().Format(time.DateOnly), time.Time{}},
		{"an impossible date", "2027-02-30T09:00:00Z", time.Time{}},
		{"a text that is not a time", "soon", time.Time{}},
		{"empty", "", time.Time{}},
	} {
		// The subtest is not parallel, because a row uses the current time.
		t.Run("scheduled_for "+row.name, func(t *testing.T) {
			if row.want.IsZero() {
				if got := w.write.refused(t, 422, "validation_error", "POST", "/v1/calls", w.order(number(1), "scheduled_for", row.value)); !strings.Contains(got.body, "scheduled_for") {
					t.Errorf("%s does not name scheduled_for", got.body)
				}
				return
			}
			got := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(1), "scheduled_for", row.value))
			if at := instant(t, got.text("scheduled_for")); !at.Equal(row.want) {
				t.Errorf("scheduled_for %s, want %s", at, row.want)
			}
		})
	}
	for _, past := range []string{now.AddDate(0, 0, -6).UTC().Format(time.RFC3339),
		now.Add(-time.Minute).UTC().Format(time.RFC3339)} {
		got := w.write.want(t, 202, "POST", "/v1/calls", w.order(number(90), "scheduled_for", past))
		if at := instant(t, got.text("scheduled_for")); at.Before(now.Truncate(time.Millisecond)) {
			t.Errorf("instant: at.Before(now.Truncate(time.Millisecond)) = true, want false; past = %s", past)
		} else if at.After(time.Now()) {
			t.Errorf("instant: at.After(time.Now()) = true, want false; past = %s", past)
		}
	}
}

type afterwards struct {
	name, code string
	change     func(w *tenant, to string)
	w          *tenant
	id         string
	hears      func() []kit.Delivery
}

func changes(t *testing.T) []*afterwards {
	patch := func(settings set) func(*tenant, string) {
		return func(w *tenant, _ string) { w.operator.want(t, 200, "PATCH", w.admin, settings) }
	}
	return []*afterwards{
		{name: "opted out after POST", code: "recipient_dnd", change: func(w *tenant, to string) {
			w.write.want(t, 200, "POST", "/v1/opt-outs", set{"phone_e164": to})
		}},
		{name: "consent withdrawn after POST", code: "consent_withdrawn",
			change: func(w *tenant, to string) { w.consent(t, to, "withdrawn") }},
		{name: "the calling window closed after POST", code: "outside_calling_hours",
			change: patch(set{"calling_policy": set{"window": closedWindow(time.Now()).window, "timezone": "UTC"}})},
		{name: "the agent deleted after POST", code: "invalid_agent", change: func(w *tenant, _ string) {
			w.operator.want(t, 200, "DELETE", w.admin+"/agents/"+w.agent, nil)
		}},
		{name: "API access disabled after POST", code: "api_not_enabled", change: patch(set{"features": set{"api": false}})},
		{name: "the destinations restricted after POST", code: "destination_not_allowed",
			change: patch(set{"destinations": []string{"+49"}})},
	}
}

// The call requests pass the pre-check and fail the dial-time check. Each request must end as
// blocked, without a call, an event or a charge.
func TestDialTimeCheck_FailureBlocksTheRequest(t *testing.T) {
	rows := changes(t)
	for _, row := range rows {
		row.w = workspace(t)
		row.w.topUp(t, holdOfOneCall)
		row.hears = row.w.subscribeAll(t)
		to := number(1)
		row.id = row.w.placeInOneHour(t, to)
		row.change(row.w, to)
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			w := row.w
			makeDue(t, row.id)
			// the workspace cannot read its request while it has no API access
			if row.code == "api_not_enabled" {
				awaitDequeued(t, row.id)
				w.operator.want(t, 200, "PATCH", w.admin, set{"features": set{"api": true}})
			}
			var got answer
			until(t, "the request ends", func() bool {
				got = w.read.send(t, "GET", "/v1/call-requests/"+row.id, nil)
				return got.status == 200 && got.text("status") != "queued"
			})
			sharedstack.Equal(t, "status", got.text("status"), "blocked")
			sharedstack.Equal(t, "error_code", got.text("error_code"), row.code)
			if got.text("error_detail") == "" {
				t.Errorf("error_detail = %v, want a value", got.text("error_detail"))
			}
			sharedstack.Equal(t, "call_id", got.text("call_id"), "")
			sharedstack.Equal(t, "dialed_at", got.text("dialed_at"), "")
			if got.text("completed_at") == "" {
				t.Errorf("completed_at = %v, want a value", got.text("completed_at"))
			}
			if calls := w.read.want(t, 200, "GET", "/v1/calls", nil).ids(); len(calls) != 0 {
				t.Errorf("calls %v, want none", calls)
			}
			if balance := w.read.want(t, 200, "GET", "/v1/wallet", nil).text("balance"); balance != "0.5" {
				t.Errorf("balance %s, want all of it", balance)
			}
			if events := row.hears(); len(events) != 0 {
				t.Errorf("%d events of a request without a call", len(events))
			}
		})
	}
}

func TestDialTimeCheck_ClosedWindowMovesTheRequestToTheNextOpening(t *testing.T) {
	w := workspace(t)
	w.topUp(t, holdOfOneCall)
	queued := w.write.want(t, 202, "POST", "/v1/calls",
		w.order(number(1), "scheduled_for", inOneHour(), "schedule_if_outside_hours", true))
	closed := closedWindow(time.Now())
	w.operator.want(t, 200, "PATCH", w.admin, set{"calling_policy": set{"window": closed.window, "timezone": "UTC"}})
	makeDue(t, queued.text("id"))
	until(t, "the request is moved", func() bool {
		got := w.read.want(t, 200, "GET", "/v1/call-requests/"+queued.text("id"), nil)
		return got.text("status") == "queued" && instant(t, got.text("scheduled_for")).Equal(closed.next)
	})
	got := w.write.want(t, 200, "POST", "/v1/call-requests/"+queued.text("id")+"/cancel", nil)
	sharedstack.Equal(t, "status", got.text("status"), "canceled")
	if got.text("completed_at") == "" {
		t.Errorf("completed_at = %v, want a value", got.text("completed_at"))
	}
	sharedstack.Equal(t, "error_code", got.text("error_code"), "")
	w.write.refused(t, 409, "not_cancelable", "POST", "/v1/call-requests/"+queued.text("id")+"/cancel", nil)
}
