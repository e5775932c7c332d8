package pages

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) hourRoutes() []route {
	return []route{
		{"GET /w/{workspace}/calling-hours", showHours},
		{"POST /w/{workspace}/calling-hours", changeHours},
	}
}

// minutesOfDay is the number of minutes in a day.
const minutesOfDay = 24 * 60

// weekdays are the names of the days in a calling policy, Monday first.
var weekdays = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

// dayName returns the name of a weekday in a calling policy.
func dayName(day time.Weekday) string { return weekdays[(int(day)+6)%7] }

// callingPolicy is the calling policy of a workspace. An absent member has its default value.
type callingPolicy struct {
	Window   *policyWindow   `json:"window,omitempty"`
	Timezone string          `json:"timezone,omitempty"`
	Packs    []string        `json:"packs,omitempty"`
	Override *policyOverride `json:"override,omitempty"`
}

type policyWindow struct {
	Start string   `json:"start"`
	End   string   `json:"end"`
	Days  []string `json:"days"`
}

type policyOverride struct {
	Reason   string `json:"reason"`
	Operator string `json:"operator,omitempty"`
}

// recipientZone is the value of Timezone if the window is in the local time of the called person.
const recipientZone = "recipient"

// withDefaults returns the policy with the default values that contacts-compliance would use.
func (p callingPolicy) withDefaults() callingPolicy {
	p.Timezone = cmp.Or(p.Timezone, recipientZone)
	window := policyWindow{Start: "09:00", End: "20:00"}
	if len(p.Packs) > 0 {
		window = policyWindow{Start: "00:00", End: "24:00"}
	}
	if p.Window != nil {
		window = *p.Window
	}
	if len(window.Days) == 0 {
		window.Days = weekdays
	}
	p.Window = &window
	return p
}

func (p callingPolicy) openHours(day string) []span {
	start, startOK := minuteOf(p.Window.Start)
	end, endOK := minuteOf(p.Window.End)
	if !startOK || !endOK || start >= end || !slices.Contains(p.Window.Days, day) {
		return nil
	}
	return []span{{start, end}}
}

// span is a part of a day, in minutes after 00:00.
type span struct{ Start, End int }

// Length is the number of minutes.
func (s span) Length() int { return s.End - s.Start }

func (s span) String() string { return clock(s.Start) + "–" + clock(s.End) }

func clock(minute int) string { return fmt.Sprintf("%02d:%02d", minute/60, minute%60) }

// minuteOf parses HH:MM from 00:00 to 24:00.
func minuteOf(text string) (minute int, ok bool) {
	hours, minutes, found := strings.Cut(text, ":")
	h, hErr := strconv.Atoi(hours)
	m, mErr := strconv.Atoi(minutes)
	minute = h*60 + m
	return minute, found && hErr == nil && mErr == nil && h >= 0 && m >= 0 && m < 60 && minute <= minutesOfDay
}

// spansOf parses ranges such as 08:00-21:00.
func spansOf(ranges []string) (spans []span) {
	for _, text := range ranges {
		first, last, _ := strings.Cut(text, "-")
		start, startOK := minuteOf(first)
		end, endOK := minuteOf(last)
		if startOK && endOK && start < end {
			spans = append(spans, span{start, end})
		}
	}
	return spans
}

// intersect returns the parts of a day that are in both lists.
func intersect(a, b []span) (both []span) {
	for _, x := range a {
		for _, y := range b {
			if start, end := max(x.Start, y.Start), min(x.End, y.End); start < end {
				both = append(both, span{start, end})
			}
		}
	}
	return both
}

// holiday is a holiday of a country pack: a list of days, or one day that repeats every year.
type holiday struct {
	Name      string         `json:"name"`
	Month     int            `json:"month"`
	Day       int            `json:"day"`
	Weekday   string         `json:"weekday"`
	OnOrAfter int            `json:"on_or_after"`
	Easter    *int           `json:"easter"`
	Observed  map[string]int `json:"observed"`
	Dates     []string       `json:"dates"`
}

// fallsOn reports whether the holiday is on the given day or observed on it. The time of day must
// be 00:00 UTC.
func (h holiday) fallsOn(day time.Time) bool {
	if slices.Contains(h.Dates, day.Format(time.DateOnly)) {
		return true
	}
	for year := day.Year() - 1; year <= day.Year()+1; year++ { // a day can be observed in the year before or after
		proper, ok := h.dayIn(year)
		if ok && (proper.Equal(day) || proper.AddDate(0, 0, h.Observed[dayName(proper.Weekday())]).Equal(day)) {
			return true
		}
	}
	return false
}

// dayIn returns the day of the holiday in a year. ok is false if the holiday is a list of days.
func (h holiday) dayIn(year int) (day time.Time, ok bool) {
	date := func(month, day int) time.Time { return time.Date(year, time.Month(month), day, 0, 0, 0, 0, time.UTC) }
	switch {
	case h.Easter != nil:
		month, day := easter(year)
		return date(month, day+*h.Easter), true
	case h.Weekday != "":
		from := date(h.Month, h.OnOrAfter)
		days := slices.Index(weekdays, h.Weekday) - slices.Index(weekdays, dayName(from.Weekday()))
		return from.AddDate(0, 0, (days+7)%7), true
	case h.Month != 0:
		return date(h.Month, h.Day), true
	}
	return day, false
}

// easter returns the month and day of Easter Sunday (Meeus, Astronomical Algorithms, chapter 8).
func easter(year int) (month, day int) {
	a, b, c := year%19, year/100, year%100
	d, e := b/4, b%4
	g := (8*b + 13) / 25
	h := (19*a + b - d - g + 15) % 30
	i, k := c/4, c%4
	l := (32 + 2*e + 2*i - h - k) % 7
	m := (a + 11*h + 22*l) / 451
	n := h + l - 7*m + 114
	return n / 31, n%31 + 1
}

// packRule is a rule of a country pack that applies to a number.
type packRule struct {
	Pack         string              `json:"pack"`
	Region       string              `json:"region"`
	Purpose      string              `json:"purpose"`
	Hours        map[string][]string `json:"hours"`
	Holidays     []holiday           `json:"holidays"`
	HolidayHours []string            `json:"holiday_hours"`
	From         string              `json:"from"`
	Until        string              `json:"until"`
	CoversUntil  string              `json:"covers_until"`
	Citation     string              `json:"citation"`
}

// hoursOn returns the open hours of the rule on a day, and the name of the day's holiday, if any.
func (r packRule) hoursOn(day time.Time) (open []span, name string) {
	date := day.Format(time.DateOnly)
	switch {
	case r.CoversUntil != "" && r.CoversUntil < date:
		return nil, ""
	case date < r.From, r.Until != "" && r.Until <= date:
		return []span{{0, minutesOfDay}}, ""
	}
	for _, h := range r.Holidays {
		if h.fallsOn(day) {
			return spansOf(r.HolidayHours), h.Name
		}
	}
	return spansOf(r.Hours[dayName(day.Weekday())]), ""
}

// hoursPreview is the response of the operator API about the calling hours of a number.
type hoursPreview struct {
	Number    string             `json:"phone_e164"`
	Open      bool               `json:"may_be_called"`
	NextAt    *openapi.Timestamp `json:"next_at"`
	Message   *string            `json:"message"`
	TimeZones []zoneTime         `json:"time_zones"`
	Rules     []packRule         `json:"rules"`
}

// zoneTime is the local time in a time zone of the number.
type zoneTime struct {
	TimeZone  string `json:"time_zone"`
	LocalTime string `json:"local_time"`
}

// Clock returns the local time of day.
func (z zoneTime) Clock() string {
	at, err := time.Parse(time.RFC3339, z.LocalTime)
	if err != nil {
		return z.LocalTime
	}
	return at.Format("15:04")
}

// dayHours is one row of the table of a week: the open hours of a day.
type dayHours struct {
	Day     string    // mon to sun
	Date    time.Time // zero for a week without dates
	Open    []span
	Holiday string
}

type namedDay struct {
	Date time.Time
	Name string
	Open []span
}

type hoursData struct {
	Policy callingPolicy
	Week   []dayHours
	// Was is the policy that was stored when the form was shown. If another policy is stored now,
	// the change is refused.
	Was string
	// Number is the number for which the person searched. Preview contains the hours that apply to
	// it.
	Number   string
	Preview  *hoursPreview
	Holidays []namedDay
	Weekdays []string
	Form     hoursForm
	// Stale is true if the policy was changed while the person edited it.
	Stale        bool
	Error, Wrong *gateway.Error // the refusals of the form and of the number
}

// hoursForm has the texts of the form.
type hoursForm struct {
	Start, End, Timezone, Packs, Override string
	Days                                  map[string]bool
}

func hoursFormOf(p callingPolicy) hoursForm {
	form := hoursForm{Timezone: p.Timezone, Packs: strings.Join(p.Packs, ", "), Days: map[string]bool{}}
	window := policyWindow{Days: weekdays}
	if p.Window != nil {
		window = *p.Window
	}
	form.Start, form.End = window.Start, window.End
	for _, day := range window.Days {
		form.Days[day] = true
	}
	if p.Override != nil {
		form.Override = p.Override.Reason
	}
	return form
}

// readPolicy reads the workspace's calling policy. compactJSON is the policy without white space,
// and etag is the ETag of the workspace.
func (v *visit) readPolicy() (stored callingPolicy, compactJSON, etag string, err error) {
	workspace, etag, err := gateway.GetTagged[struct {
		Policy json.RawMessage `json:"calling_policy"`
	}](v.r.Context(), v.Session, v.admin(""))
	if err != nil {
		return stored, "", "", err
	}
	if len(workspace.Policy) == 0 {
		return stored, "null", etag, nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, workspace.Policy); err != nil {
		return stored, "", "", fmt.Errorf("read the calling policy: %w", err)
	}
	if err := json.Unmarshal(workspace.Policy, &stored); err != nil {
		return stored, "", "", fmt.Errorf("decode the calling policy: %w", err)
	}
	return stored, compact.String(), etag, nil
}

func showHours(v *visit) (view, error) { return v.readHours(nil) }

// readHours shows the calling hours. After a refusal, restoreForm restores the submitted values.
func (v *visit) readHours(restoreForm func(*hoursData)) (view, error) {
	data := hoursData{Weekdays: weekdays}
	var preview hoursPreview
	reads := []func() error{func() (err error) {
		var stored callingPolicy
		stored, data.Was, _, err = v.readPolicy()
		data.Form, data.Policy = hoursFormOf(withWindow(stored)), stored.withDefaults()
		return err
	}}
	if number := v.query("phone"); number != "" {
		data.Number = phoneOf(number)
		reads = append(reads, func() error {
			err := read(v, &preview, v.admin("/contacts/%s/preview", url.PathEscape(data.Number)), nil)()
			if data.Wrong = fieldError(err); data.Wrong != nil {
				return nil //nolint:nilerr // the page shows the error
			}
			data.Preview = &preview
			return err
		})
	}
	if err := concurrently(reads...); err != nil {
		return view{}, err
	}
	data.Week = data.Policy.week(data.Preview)
	data.Holidays = holidaysOf(data.Preview)
	result := view{template: "hours", title: "hours.title", nav: "hours"}
	if data.Wrong != nil {
		result.status = http.StatusUnprocessableEntity
	}
	if restoreForm != nil {
		restoreForm(&data)
		result.status = http.StatusUnprocessableEntity
	}
	result.data = data
	return result, nil
}

// withWindow returns the policy with default values. It adds no window to a policy with country
// packs.
func withWindow(p callingPolicy) callingPolicy {
	if p.Window == nil && len(p.Packs) > 0 {
		p.Timezone = cmp.Or(p.Timezone, recipientZone)
		return p
	}
	return p.withDefaults()
}

// today returns the current date in the time zone of the called person, or in UTC if that time zone
// is unknown.
func (h *hoursPreview) today() time.Time {
	day := time.Now().UTC()
	if len(h.TimeZones) > 0 {
		if local, err := time.Parse(time.RFC3339, h.TimeZones[0].LocalTime); err == nil {
			day = local
		}
	}
	return time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, time.UTC)
}

// week returns the open hours of the window from Monday to Sunday. With a preview, it returns the
// open hours of the next seven days for one number, limited by the country packs.
func (p callingPolicy) week(preview *hoursPreview) (week []dayHours) {
	if preview == nil {
		for _, day := range weekdays {
			week = append(week, dayHours{Day: day, Open: p.openHours(day)})
		}
		return week
	}
	today := preview.today()
	for i := range 7 {
		date := today.AddDate(0, 0, i)
		row := dayHours{Day: dayName(date.Weekday()), Date: date, Open: []span{{0, minutesOfDay}}}
		// a window in another time zone cannot be compared with the country packs
		if p.Timezone == recipientZone {
			row.Open = p.openHours(row.Day)
		}
		for _, rule := range preview.Rules {
			open, name := rule.hoursOn(date)
			row.Holiday = cmp.Or(row.Holiday, name)
			if p.Override == nil {
				row.Open = intersect(row.Open, open)
			}
		}
		week = append(week, row)
	}
	return week
}

// holidaysOf returns the holidays of the next year that apply to a number.
func holidaysOf(preview *hoursPreview) (days []namedDay) {
	if preview == nil {
		return nil
	}
	today := preview.today()
	for i := range 366 {
		date := today.AddDate(0, 0, i)
		for _, rule := range preview.Rules {
			open, name := rule.hoursOn(date)
			if name != "" && (len(days) == 0 || !days[len(days)-1].Date.Equal(date)) {
				days = append(days, namedDay{date, name, open})
			}
		}
	}
	return days
}

// changeHours replaces the calling policy.
func changeHours(v *visit) (view, error) {
	form := hoursForm{Start: v.form("start"), End: v.form("end"), Timezone: v.form("timezone"), Packs: v.form("packs"),
		Override: v.form("override"), Days: map[string]bool{}}
	for _, day := range v.r.PostForm["days"] {
		form.Days[day] = true
	}
	_, stored, version, err := v.readPolicy()
	if err != nil {
		return view{}, err
	}
	changed := stored != v.form("was")
	if !changed {
		v.giveReason() // the reason is optional
		err = v.patchVersion(v.admin(""), version, map[string]any{"calling_policy": form.policy()})
		changed = gateway.Is(err, "precondition_failed")
	}
	if changed {
		return v.readHours(func(data *hoursData) { data.Form, data.Stale = form, true })
	}
	if refused := fieldError(err); refused != nil {
		return v.readHours(func(data *hoursData) { data.Form, data.Error = form, refused })
	}
	return view{redirect: v.path("calling-hours"), done: "hours_changed"}, err
}

// policy returns the policy that the form describes. The API adds the name of the operator to an
// override.
func (f hoursForm) policy() callingPolicy {
	p := callingPolicy{Timezone: f.Timezone}
	for name := range strings.SplitSeq(f.Packs, ",") {
		if name = strings.TrimSpace(name); name != "" {
			p.Packs = append(p.Packs, name)
		}
	}
	if f.Start != "" || f.End != "" || len(p.Packs) == 0 {
		p.Window = &policyWindow{Start: f.Start, End: f.End, Days: []string{}}
		for _, day := range weekdays {
			if f.Days[day] {
				p.Window.Days = append(p.Window.Days, day)
			}
		}
	}
	if f.Override != "" {
		p.Override = &policyOverride{Reason: f.Override}
	}
	return p
}

// IsFixed reports whether the window is in a fixed time zone.
func (d hoursData) IsFixed() bool { return d.Policy.Timezone != recipientZone }

// CalendarDay returns a date as text. It does not convert the date to the person's time zone.
func (p *pageData) CalendarDay(day time.Time) string { return p.date(day) }
