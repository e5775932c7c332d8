package httpapi

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/apierr"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/money"
	"ringfence.dev/libs/page"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/store"
)

const (
	// defaultPeriod is the length of the period if created_after is absent.
	defaultPeriod = 24 * time.Hour
	// maxIntervals permits one interval for each hour of 31 days.
	maxIntervals = 750
	// maxPeriod limits the number of calls that one request counts.
	maxPeriod = 366 * 24 * time.Hour

	hourly, daily = "hour", "day"
)

// period is the parsed query of readStatistics.
type period struct {
	// after and before are the exclusive limits of the period.
	after, before time.Time
	interval      string
	zone          *time.Location
}

// readStatistics handles GET /v1/call-statistics.
func (a *API) readStatistics(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	p, err := readPeriod(query, a.now())
	if err != nil {
		return err
	}
	var filter store.StatisticsFilter
	if filter.Direction, err = httpserver.QueryEnum(
		query,
		"direction",
		callstate.Inbound,
		callstate.Outbound,
	); err != nil {
		return err
	}
	if filter.AgentID, err = httpserver.QueryUUID(query, "agent_id"); err != nil {
		return err
	}
	starts, err := p.starts()
	if err != nil {
		return err
	}
	counts, err := a.store.CountCalls(
		r.Context(),
		serviceauth.CallerFrom(r.Context()).WorkspaceID,
		p.bounds(starts),
		filter,
	)
	if err != nil {
		return err
	}
	return httpserver.WriteJSON(w, http.StatusOK, statisticsView(p, starts, counts))
}

func readPeriod(query url.Values, now time.Time) (p period, err error) {
	after, err := httpserver.QueryTime(query, "created_after")
	if err != nil {
		return p, err
	}
	before, err := httpserver.QueryTime(query, "created_before")
	if err != nil {
		return p, err
	}
	p.before = now
	if before != nil {
		p.before = *before
	}
	p.after = p.before.Add(-defaultPeriod)
	if after != nil {
		p.after = *after
	}
	if !p.after.Before(p.before) {
		return p, apierr.Validation("created_after", "must be before created_before (default: now).")
	}
	if p.before.Sub(p.after) > maxPeriod {
		return p, apierr.Validation("created_after", "must be at most 366 days before created_before (default: now).")
	}
	if p.interval, err = httpserver.QueryEnum(query, "interval", hourly, daily); err != nil {
		return p, err
	}
	if p.interval == "" {
		p.interval = hourly
	}
	p.zone, err = readZone(query)
	return p, err
}

func readZone(query url.Values) (*time.Location, error) {
	name, err := httpserver.QueryText(query, "time_zone")
	if err != nil || name == nil {
		return time.UTC, err
	}
	zone, err := time.LoadLocation(*name)
	if err != nil || *name == "" || *name == "Local" {
		return nil, apierr.Validation("time_zone", "must be the name of an IANA time zone such as America/New_York.")
	}
	return zone, nil
}

// starts returns the start of each interval. The first interval begins at the last whole hour or
// day that is not after the start of the period.
func (p period) starts() (starts []time.Time, err error) {
	first := p.after.In(p.zone)
	year, month, day := first.Date()
	next := time.Date(year, month, day, 0, 0, 0, 0, p.zone)
	if p.interval == hourly {
		// when the clocks go back, an hour occurs twice, and time.Date cannot distinguish the two
		// hours
		intoHour := time.Duration(first.Minute())*time.Minute + time.Duration(first.Second())*time.Second +
			time.Duration(first.Nanosecond())
		next = first.Add(-intoHour)
	}
	for days := 1; next.Before(p.before); days++ {
		if len(starts) == maxIntervals {
			return nil, apierr.Validation("interval", "must be day: the period has more than 750 hours.")
		}
		starts = append(starts, next)
		if p.interval == hourly {
			next = next.Add(time.Hour)
		} else {
			next = time.Date(year, month, day+days, 0, 0, 0, 0, p.zone)
		}
	}
	return starts, nil
}

// bounds returns the first id of each interval, and the first id after the period.
func (p period) bounds(starts []time.Time) []uuid.UUID {
	bounds := []uuid.UUID{page.FirstID(nextMillisecond(p.after))}
	for _, start := range starts[1:] {
		bounds = append(bounds, page.FirstID(start))
	}
	return append(bounds, page.FirstID(ceilMillisecond(p.before)))
}

func statisticsView(p period, starts []time.Time, counts []store.CallCount) openapi.CallStatistics {
	view := openapi.CallStatistics{
		CreatedAfter: openapi.TimestampOf(p.after), CreatedBefore: openapi.TimestampOf(p.before),
		Interval: openapi.StatisticsInterval(p.interval), TimeZone: p.zone.String(), Data: []openapi.CallStatisticsInterval{},
	}
	sums := make([]callSum, len(starts))
	total := callSum{}
	for _, c := range counts {
		sums[c.Interval].add(c)
		total.add(c)
	}
	for i, start := range starts {
		counted := sums[i].view()
		view.Data = append(view.Data, openapi.CallStatisticsInterval{
			Start: openapi.TimestampOf(start), Calls: counted.Calls, Answered: counted.Answered,
			TalkSeconds: counted.TalkSeconds, CreditsCharged: counted.CreditsCharged, Statuses: counted.Statuses,
			Outcomes: counted.Outcomes,
		})
	}
	view.Total = total.view()
	return view
}

type callSum struct {
	calls, answered, talkSeconds, creditsMicro int64
	statuses, outcomes                         map[string]int64
}

func (s *callSum) add(c store.CallCount) {
	if s.statuses == nil {
		s.statuses, s.outcomes = map[string]int64{}, map[string]int64{}
	}
	s.calls += c.Calls
	s.answered += c.Answered
	s.talkSeconds += c.TalkSeconds
	s.creditsMicro += c.CreditsMicro
	s.statuses[c.Status] += c.Calls
	if c.Outcome != nil {
		s.outcomes[*c.Outcome] += c.Calls
	}
}

func (s *callSum) view() openapi.CallStatisticsTotal {
	view := openapi.CallStatisticsTotal{
		Calls: s.calls, Answered: s.answered, TalkSeconds: s.talkSeconds,
		CreditsCharged: json.Number(money.Micro(s.creditsMicro).String()), Statuses: s.statuses, Outcomes: s.outcomes,
	}
	if view.Statuses == nil {
		view.Statuses, view.Outcomes = map[string]int64{}, map[string]int64{}
	}
	return view
}
