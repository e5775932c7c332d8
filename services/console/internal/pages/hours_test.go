package pages

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/services/console/internal/gateway"
)

func TestHoliday_RepeatsEveryYear(t *testing.T) {
	t.Parallel()
	goodFriday := -2
	observed := map[string]int{"sat": -1, "sun": 1}
	tests := []struct {
		name string
		day  string
		h    holiday
		want bool
	}{
		{name: "a day of a month", h: holiday{Month: 12, Day: 25}, day: "2026-12-25", want: true},
		{name: "the day after", h: holiday{Month: 12, Day: 25}, day: "2026-12-26"},
		{name: "the fourth Thursday", h: holiday{Month: 11, Weekday: "thu", OnOrAfter: 22}, day: "2026-11-26", want: true},
		{name: "the third Thursday", h: holiday{Month: 11, Weekday: "thu", OnOrAfter: 22}, day: "2026-11-19"},
		{name: "Good Friday", h: holiday{Easter: &goodFriday}, day: "2026-04-03", want: true},
		{name: "Good Friday in March", h: holiday{Easter: &goodFriday}, day: "2027-03-26", want: true},
		{name: "observed on Friday", h: holiday{Month: 7, Day: 4, Observed: observed}, day: "2026-07-03", want: true},
		{name: "observed on Monday", h: holiday{Month: 7, Day: 4, Observed: observed}, day: "2027-07-05", want: true},
		{name: "New Year observed in the old year", h: holiday{Month: 1, Day: 1, Observed: observed}, day: "2027-12-31",
			want: true},
		{name: "a list", h: holiday{Dates: []string{"2026-03-04"}}, day: "2026-03-04", want: true},
		{name: "a list in another year", h: holiday{Dates: []string{"2026-03-04"}}, day: "2027-03-04"},
		{name: "an unknown kind", day: "2026-03-04"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			day, err := time.Parse(time.DateOnly, tt.day)
			if err != nil {
				t.Fatal(err)
			}
			wantEqual(t, tt.day, tt.h.fallsOn(day), tt.want)
		})
	}
}

func TestWeek_ShowsTheWindowOfThePolicy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		policy callingPolicy
		want   string // the hours of Monday and Sunday
	}{
		{name: "the default", want: "09:00–20:00 09:00–20:00"},
		{name: "packs", policy: callingPolicy{Packs: []string{"us"}}, want: "00:00–24:00 00:00–24:00"},
		{name: "weekdays", policy: callingPolicy{Window: &policyWindow{Start: "08:30", End: "12:00", Days: []string{"mon"}}},
			want: "08:30–12:00 "},
		{name: "unreadable", policy: callingPolicy{Window: &policyWindow{Start: "x", End: "25:00"}}, want: " "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			week := tt.policy.withDefaults().week(nil)
			wantEqual(t, "Monday and Sunday", spanText(week[0].Open)+" "+spanText(week[6].Open), tt.want)
		})
	}
}

func spanText(spans []span) string {
	texts := make([]string, 0, len(spans))
	for _, s := range spans {
		texts = append(texts, s.String())
	}
	return strings.Join(texts, ",")
}

func TestWeek_AppliesThePolicyPacksAndHolidaysOfANumber(t *testing.T) {
	t.Parallel()
	rule := packRule{Hours: map[string][]string{},
		Holidays:     []holiday{{Name: "Thanksgiving", Month: 11, Weekday: "thu", OnOrAfter: 22}},
		HolidayHours: []string{"12:00-13:00"}, CoversUntil: "2026-11-29"}
	for _, day := range weekdays {
		rule.Hours[day] = []string{"08:00-12:00", "13:00-21:00"}
	}
	preview := &hoursPreview{Rules: []packRule{rule}, TimeZones: []zoneTime{{LocalTime: "2026-11-25T23:00:00.000-08:00"}}}
	tests := []struct {
		name   string
		policy callingPolicy
		want   []string
	}{
		{name: "window and packs", policy: callingPolicy{Packs: []string{"us"},
			Window: &policyWindow{Start: "09:00", End: "14:00", Days: []string{"wed", "thu", "fri"}}},
			want: []string{"09:00–12:00,13:00–14:00", "12:00–13:00", "09:00–12:00,13:00–14:00", "", "", "", ""}},
		{name: "override", policy: callingPolicy{Packs: []string{"us"}, Override: &policyOverride{Reason: "x"},
			Window: &policyWindow{Start: "07:00", End: "22:00", Days: []string{"thu"}}},
			want: []string{"", "07:00–22:00", "", "", "", "", ""}},
		{name: "a fixed zone", policy: callingPolicy{Packs: []string{"us"}, Timezone: "Asia/Tokyo",
			Window: &policyWindow{Start: "07:00", End: "08:00"}},
			want: []string{"08:00–12:00,13:00–21:00", "12:00–13:00", "08:00–12:00,13:00–21:00", "08:00–12:00,13:00–21:00",
				"08:00–12:00,13:00–21:00", "", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, row := range tt.policy.withDefaults().week(preview) {
				got = append(got, spanText(row.Open))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("week from Wednesday differs (-want +got):\n%s", diff)
			}
		})
	}
	days := holidaysOf(preview)
	if len(days) != 1 {
		t.Fatalf("holidays = %v, want one until the pack ends", days)
	}
	wantEqual(t, "holiday", days[0].Name+days[0].Date.Format(" 2006-01-02 ")+spanText(days[0].Open),
		"Thanksgiving 2026-11-26 12:00–13:00")
}

func TestHours_OnlyOperatorsSeeTheForm(t *testing.T) {
	t.Parallel()
	for role, want := range map[string]bool{gateway.Operator: true, gateway.Owner: false, gateway.Viewer: false} {
		s := newSite(t, role)
		w := s.get(home + "/calling-hours")
		wantStatus(t, w, http.StatusOK)
		wantBody(t, w, "09:00–20:00")
		wantEqual(t, role+" sees the form", strings.Contains(w.Body.String(), `name="was"`), want)
	}
}

func TestHours_ChangeSendsTheWholePolicy(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		fields []string
		want   string
	}{
		{name: "a window",
			fields: []string{"start", "10:00", "end", "18:00", "days", "fri", "days", "mon", "timezone", "recipient"},
			want:   `{"calling_policy":{"window":{"start":"10:00","end":"18:00","days":["mon","fri"]},"timezone":"recipient"}}`},
		{name: "no day", fields: []string{"start", "10:00", "end", "18:00", "timezone", "recipient"},
			want: `{"calling_policy":{"window":{"start":"10:00","end":"18:00","days":[]},"timezone":"recipient"}}`},
		{name: "packs", fields: []string{"packs", "us , gb:service,", "timezone", "recipient", "days", "mon"},
			want: `{"calling_policy":{"timezone":"recipient","packs":["us","gb:service"]}}`},
		{name: "an override",
			fields: []string{"packs", "us", "start", "00:00", "end", "24:00", "days", "sun", "override", "Support line"},
			want: `{"calling_policy":{"window":{"start":"00:00","end":"24:00","days":["sun"]},"packs":["us"],` +
				`"override":{"reason":"Support line"}}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gateway.Operator)
			w := s.post(home+"/calling-hours", append(tt.fields, "was", "null")...)
			wantHeader(t, w, "Location", home+"/calling-hours?done=hours_changed")
			wantEqual(t, "body", s.body(admin), tt.want)
		})
	}
}

func TestHours_ChangeOfAnotherPersonIsNotOverwritten(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Operator)
	s.set("GET "+admin, map[string]any{"id": workspaceID, "calling_policy": map[string]any{"timezone": "Europe/Berlin"}})
	w := s.post(home+"/calling-hours", "start", "10:01", "end", "18:00", "was", "null")
	wantStatus(t, w, http.StatusUnprocessableEntity)
	wantBody(t, w, "Someone changed the calling hours meanwhile.")
	wantBody(t, w, `value="10:01"`)
	wantBody(t, w, `name="was" value="{&#34;timezone&#34;:&#34;Europe/Berlin&#34;}"`)
	wantEqual(t, "changes", s.sentBy("PATCH", admin), 0)
	// another person changes the workspace between the read and the change
	s.set("PATCH "+admin, refusal{status: 412, code: "precondition_failed"})
	w = s.post(home+"/calling-hours", "start", "10:01", "end", "18:00", "was", `{"timezone":"Europe/Berlin"}`)
	wantStatus(t, w, http.StatusUnprocessableEntity)
	wantBody(t, w, "Someone changed the calling hours meanwhile.")
	s.set("PATCH "+admin, refusal{status: 422, message: "calling_policy.window.start must be before"})
	w = s.post(home+"/calling-hours", "start", "19:00", "end", "18:00", "was", `{"timezone":"Europe/Berlin"}`)
	wantStatus(t, w, http.StatusUnprocessableEntity)
	wantBody(t, w, "window.start must be before")
	wantBody(t, w, `value="19:00"`)
}

func TestHours_ShowTheHolidaysAndTheLocalTimeOfANumber(t *testing.T) {
	t.Parallel()
	s := newSite(t, gateway.Viewer)
	const preview = "GET " + admin + "/contacts/+14155550101/preview"
	s.set(preview, map[string]any{"phone_e164": "+14155550101", "may_be_called": false,
		"next_at": "2026-06-04T09:00:00.000Z", "message": "<script>x",
		"time_zones": []any{map[string]any{"time_zone": "America/Los_Angeles", "local_time": "2026-06-04T01:30:00.000-07:00"},
			map[string]any{"time_zone": "broken"}},
		"rules": []any{map[string]any{"pack": "us", "hours": map[string]any{"mon": []any{"08:00-21:00"}},
			"holidays": []any{map[string]any{"name": "Inde<b>", "month": 7, "day": 4}}, "citation": "47 CFR 64.1200"}}})
	w := s.get(home + "/calling-hours?phone=" + url.QueryEscape("+1 415 555 0101"))
	wantStatus(t, w, http.StatusOK)
	for _, text := range []string{"01:30", "Inde&lt;b&gt;", "47 CFR 64.1200", "&lt;script&gt;x", "Jul 4"} {
		wantBody(t, w, text)
	}
	s.set(preview, refusal{status: 422, code: "invalid_phone", message: "must be E.164"})
	w = s.get(home + "/calling-hours?phone=%2B14155550101")
	wantStatus(t, w, http.StatusUnprocessableEntity)
	wantBody(t, w, "must be E.164")
}
