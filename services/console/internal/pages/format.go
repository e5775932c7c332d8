package pages

import (
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/openapi"
)

// textOf returns a value of the API as text. For a nil pointer it returns "".
func textOf(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	case *string:
		if v == nil {
			return ""
		}
		return *v
	case *int32:
		if v == nil {
			return ""
		}
		return strconv.Itoa(int(*v))
	case *json.Number:
		if v == nil {
			return ""
		}
		return v.String()
	case *uuid.UUID:
		if v == nil {
			return ""
		}
		return v.String()
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprint(value)
}

// timeOf returns a time of the API. It returns false for null.
func timeOf(value any) (time.Time, bool) {
	switch v := value.(type) {
	case time.Time:
		return v, !v.IsZero()
	case *time.Time:
		if v != nil {
			return *v, true
		}
	case openapi.Timestamp:
		return v.Time, !v.IsZero()
	case *openapi.Timestamp:
		if v != nil {
			return v.Time, true
		}
	case string:
		t, err := time.Parse(time.RFC3339Nano, v)
		return t, err == nil
	}
	return time.Time{}, false
}

// Time returns a <time> element in the time zone of the person. A script changes it to "2 min ago"
// if it is recent.
func (p *pageData) Time(value any) template.HTML { return p.timeElement(value, true) }

// Clock returns a <time> element with the time of day and seconds.
func (p *pageData) Clock(value any) template.HTML {
	t, ok := timeOf(value)
	if !ok {
		return "–"
	}
	return p.element(t, t.In(p.Zone).Format("15:04:05"), false)
}

// Date returns a <time> element with the date.
func (p *pageData) Date(value any) template.HTML {
	t, ok := timeOf(value)
	if !ok {
		return "–"
	}
	return p.element(t, p.date(t.In(p.Zone)), false)
}

// Day returns the date as text. The templates compare dates to find where the day changes in a
// list.
func (p *pageData) Day(value any) string {
	t, ok := timeOf(value)
	if !ok {
		return ""
	}
	return p.date(t.In(p.Zone))
}

// Exact returns a <time> element with date, time, seconds and time zone.
func (p *pageData) Exact(value any) template.HTML {
	t, ok := timeOf(value)
	if !ok {
		return "–"
	}
	local := t.In(p.Zone)
	return p.element(t, p.date(local)+local.Format(", 15:04:05 MST"), false)
}

// In returns a time in another time zone, for example in the zone of the called person.
func (p *pageData) In(value any, zone string) string {
	t, ok := timeOf(value)
	location, err := time.LoadLocation(zone)
	if !ok || err != nil {
		return ""
	}
	local := t.In(location)
	return p.date(local) + local.Format(", 15:04")
}

func (p *pageData) timeElement(value any, relative bool) template.HTML {
	t, ok := timeOf(value)
	if !ok {
		return "–"
	}
	local := t.In(p.Zone)
	return p.element(t, p.date(local)+local.Format(", 15:04"), relative)
}

func (p *pageData) element(t time.Time, text string, relative bool) template.HTML {
	mark := ""
	if relative {
		mark = ` data-relative`
	}
	local := t.In(p.Zone)
	return template.HTML(
		fmt.Sprintf(
			`<time datetime="%s" title="%s"%s>%s</time>`,
			t.UTC().Format(time.RFC3339), //nolint:gosec // all parts are escaped
			template.HTMLEscapeString(p.date(local)+local.Format(", 15:04:05 MST")),
			mark,
			template.HTMLEscapeString(text),
		),
	)
}

// date returns the date in the format of the language. It leaves out the current year.
func (p *pageData) date(t time.Time) string {
	texts := p.visit.server.templates
	month := texts.text(p.Language, "month."+strconv.Itoa(int(t.Month())))
	key := "format.date"
	if t.Year() != time.Now().Year() {
		key = "format.date_year"
	}
	return texts.text(p.Language, key, t.Day(), month, t.Year())
}

func floatOf(value any) (float64, bool) {
	switch v := value.(type) {
	case int:
		return float64(v), true
	case int32:
		return float64(v), true
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	f, err := strconv.ParseFloat(textOf(value), 64)
	return f, err == nil
}

// formatNumber writes a number with the separators of the language.
func formatNumber(language string, value any) string {
	f, ok := floatOf(value)
	if !ok {
		return "–"
	}
	decimals := 0
	if f != math.Trunc(f) {
		decimals = 2
	}
	return separate(language, strconv.FormatFloat(f, 'f', decimals, 64))
}

// separate inserts the separators of the language into a decimal number.
func separate(language, text string) string {
	thousands, point := ",", "."
	if language == "de" {
		thousands, point = ".", ","
	}
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "−", text[1:]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + thousands + whole[i:]
	}
	if fraction != "" {
		whole += point + fraction
	}
	return sign + whole
}

// formatMoney writes an amount with two decimals, or with up to six if it is below 0.10.
func formatMoney(language string, value any, currency string) string {
	text := textOf(value)
	f, ok := floatOf(text)
	if !ok {
		return "–"
	}
	decimals := 2
	if f != 0 && math.Abs(f) < 0.1 {
		decimals = 6
	}
	return separate(language, strconv.FormatFloat(f, 'f', decimals, 64)) + "\u00a0" + currency
}

// formatSeconds writes a duration in seconds like 1:05 or 1:02:03.
func formatSeconds(value any) string {
	f, ok := floatOf(value)
	if !ok {
		return "–"
	}
	total := int(f)
	if total >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", total/3600, total/60%60, total%60)
	}
	return fmt.Sprintf("%d:%02d", total/60, total%60)
}

// tone returns the colour class of a state: good, busy, warn, bad or calm.
func tone(state any) string {
	switch textOf(state) {
	case "completed", "active", "delivered", "open", "pass", "passed", "interested", "appointment_booked", "qualified",
		"consented", "ready", "up", "accepted", "ok", "done":
		return "good"
	case "in_progress", "ringing", "dialing", "initiated":
		return "busy"
	case "queued", "scheduled", "later", "held", "paused", "callback_requested", "pending", "skipped", "mixed":
		return "warn"
	case "failed", "blocked", "closed", "fail", "opted_out", "suspended", "withdrawn", "down", "revoked", "circuit_open",
		"not_ready":
		return "bad"
	}
	return "calm"
}
