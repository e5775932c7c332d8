package alert

import "fmt"

// slo is a promise: of all events, so many are good over thirty days.
type slo struct {
	name      string
	objective float64
	// bad and all are rates over a window (%[1]s).
	bad, all string
}

// windows are what burn rates are looked at over.
var windows = []string{"5m", "30m", "1h", "2h", "6h", "1d", "3d"}

const (
	promised  = "promises"
	dialled   = "calls-dialled"
	delivered = "events-delivered"
	available = "api-available"
	fast      = "api-fast"
	// api is what customers ask; a load balancer's probes are not.
	api = `job="gateway",route!~"/readyz|/livez|unmatched"`
	// quiet stands for a gateway that nobody has asked yet: its requests have no series, and are none.
	quiet = ` or 0 * sum(http_requests_in_flight{job="gateway"})`
)

// slos are the four promises. A call that waited for its workspace's own limits (held="limits"), and a delivery that its own endpoint kept waiting (held="endpoint"), are late by their customer's doing. A bucket's bound reads 5 or 5.0, as the scrape's format has it.
func slos() []slo {
	return []slo{
		{dialled, 0.99,
			`sum(rate(ringfence_dialer_due_to_originate_seconds_count{held="no"}[%[1]s])) - sum(rate(ringfence_dialer_due_to_originate_seconds_bucket{held="no",le=~"5(\\.0)?"}[%[1]s])) + sum(rate(ringfence_dialer_expired_total[%[1]s]))`,
			`sum(rate(ringfence_dialer_due_to_originate_seconds_count{held="no"}[%[1]s])) + sum(rate(ringfence_dialer_expired_total[%[1]s]))`},
		{delivered, 0.99,
			`sum(rate(webhook_terminal_to_delivered_seconds_count{try="first",held="no"}[%[1]s])) - sum(rate(webhook_terminal_to_delivered_seconds_bucket{try="first",held="no",le=~"30(\\.0)?"}[%[1]s]))`,
			`sum(rate(webhook_terminal_to_delivered_seconds_count{try="first",held="no"}[%[1]s]))`},
		{available, 0.999,
			`sum(rate(http_request_duration_seconds_count{` + api + `,status=~"5.."}[%[1]s])) or 0 * sum(rate(http_request_duration_seconds_count{` + api + `}[%[1]s]))`,
			`sum(rate(http_request_duration_seconds_count{` + api + `}[%[1]s]))` + quiet},
		{fast, 0.99,
			`sum(rate(http_request_duration_seconds_count{` + api + `,status!~"5.."}[%[1]s])) - sum(rate(http_request_duration_seconds_bucket{` + api + `,status!~"5..",le=~"0.5"}[%[1]s]))`,
			`sum(rate(http_request_duration_seconds_count{` + api + `,status!~"5.."}[%[1]s]))` + quiet},
	}
}

// ratio is the part of bad events; without any event there is none. A promise that is not measured has no value at all.
func (s slo) ratio(window string) string {
	bad, all := fmt.Sprintf(s.bad, window), fmt.Sprintf(s.all, window)
	return fmt.Sprintf("(%s) / ((%s) > 0)\nor ((%s) == 0)", bad, all, all)
}

// burn is met when the budget of thirty days goes so many times too fast in both windows of either pair: the long one says that it matters, the short one
// that it still goes on.
func (s slo) burn(times1 float64, long1, short1 string, times2 float64, long2, short2 string) string {
	pair := func(times float64, long, short string) string {
		return fmt.Sprintf(`(slo:errors:ratio_%s{slo="%s"} > %.6g and slo:errors:ratio_%s{slo="%s"} > %.6g)`,
			long, s.name, times*(1-s.objective), short, s.name, times*(1-s.objective))
	}
	return pair(times1, long1, short1) + "\nor\n" + pair(times2, long2, short2)
}

// promises are the alerts on symptoms: each once as a page, for a budget that is gone in two to five days, and once as a ticket.
func promises() []Alert {
	words := map[string]struct {
		alert, summary, description string
		ill, slight, calm           []Series
	}{
		dialled: {"CallsDialledLate", "Calls are dialled more than 5 s after they were due",
			"{{ $value | humanizePercentage }} of the calls that were due were dialled late, or gave up waiting. The promise is 99 % within 5 s.",
			late("ringfence_dialer_due_to_originate_seconds", `held="no"`, "5.0", 0), late("ringfence_dialer_due_to_originate_seconds", `held="no"`, "5.0", 92),
			besides("ringfence_dialer_due_to_originate_seconds", "", "limits", "5.0")},
		delivered: {"EventsDeliveredLate", "Customers hear of ended calls more than 30 s late",
			"{{ $value | humanizePercentage }} of the terminal events that an endpoint took at the first try came late. The promise is 99 % within 30 s.",
			late("webhook_terminal_to_delivered_seconds", `try="first",held="no"`, "30.0", 0), late("webhook_terminal_to_delivered_seconds", `try="first",held="no"`, "30.0", 92),
			besides("webhook_terminal_to_delivered_seconds", `try="first",`, "endpoint", "30.0")},
		available: {"APIUnavailable", "The API answers customers with 5xx",
			"{{ $value | humanizePercentage }} of the requests to the gateway failed by our fault. The promise is 99.9 % without.",
			answers(50, 50), answers(99.2, 0.8), nil},
		fast: {"APISlow", "The API takes more than half a second to answer",
			"{{ $value | humanizePercentage }} of the requests to the gateway took longer than 0.5 s. The promise is 99 % within.",
			late("http_request_duration_seconds", `job="gateway",route="/v1/calls",status="202"`, "0.5", 0), late("http_request_duration_seconds", `job="gateway",route="/v1/calls",status="202"`, "0.5", 92), nil},
	}
	var alerts []Alert
	for _, s := range slos() {
		w := words[s.name]
		expired := Series{Name: "ringfence_dialer_expired_total", Grows: true}
		alerts = append(alerts,
			Alert{Name: w.alert, Severity: Page, For: "1m", Expr: s.burn(14.4, "1h", "5m", 6, "6h", "30m"), Summary: w.summary, Description: w.description, Trial: append(w.ill, expired), Calm: w.calm},
			Alert{Name: w.alert, Severity: Ticket, For: "15m", Expr: s.burn(3, "1d", "2h", 1, "3d", "6h"), Summary: w.summary + ", a little", Description: w.description, Trial: append(w.slight, expired)})
	}
	return append(alerts, unmeasured())
}

// unmeasured keeps the others from being silent for want of a metric.
func unmeasured() Alert {
	a := Alert{
		Name: "PromisesUnmeasured", Severity: Ticket, For: "10m", Absent: true,
		Summary: "Nobody would be told of a promise that is broken", Description: "{{ $labels.slo }} has no value: what it is measured by is not told, or has changed its name.",
		Trial: []Series{
			{Name: `ringfence_dialer_due_to_originate_seconds_count{held="no"}`, Well: 10, Ill: 10, Grows: true}, {Name: `ringfence_dialer_due_to_originate_seconds_bucket{held="no",le="5.0"}`, Well: 10, Ill: 10, Grows: true, Gone: true},
			{Name: `ringfence_dialer_expired_total`, Grows: true}, {Name: `http_requests_in_flight{job="gateway"}`},
			{Name: `webhook_terminal_to_delivered_seconds_count{try="first",held="no"}`, Grows: true}, {Name: `webhook_terminal_to_delivered_seconds_bucket{try="first",held="no",le="30.0"}`, Grows: true},
		},
	}
	for i, s := range slos() {
		if i > 0 {
			a.Expr += "\nor "
		}
		a.Expr += fmt.Sprintf(`absent(slo:errors:ratio_5m{slo="%s"})`, s.name)
	}
	return a
}

// late is a histogram of a hundred events a minute of which good are within the bound while it is ill.
func late(name, labels, bound string, good float64) []Series {
	le := `le="` + bound + `"`
	if labels != "" {
		le = labels + "," + le
	}
	return []Series{
		{Name: name + "_count{" + labels + "}", Well: 100, Ill: 100, Grows: true},
		{Name: name + "_bucket{" + le + "}", Well: 100, Ill: good, Grows: true},
	}
}

// besides is a customer whose own doing makes ten times as many late as are in time.
func besides(name, labels, held, bound string) []Series {
	late := func(held string, all, good float64) []Series {
		held = labels + `held="` + held + `"`
		return []Series{
			{Name: name + "_count{" + held + "}", Well: all, Ill: all, Grows: true},
			{Name: name + "_bucket{" + held + `,le="` + bound + `"}`, Well: good, Ill: good, Grows: true},
		}
	}
	return append(late("no", 10, 10), append(late(held, 100, 0), Series{Name: "ringfence_dialer_expired_total"})...)
}

func answers(good, bad float64) []Series {
	const of = `http_request_duration_seconds_count{job="gateway",route="/v1/calls",status="%d"}`
	return []Series{
		{Name: fmt.Sprintf(of, 202), Well: 100, Ill: good, Grows: true},
		{Name: fmt.Sprintf(of, 503), Well: 0, Ill: bad, Grows: true},
	}
}
