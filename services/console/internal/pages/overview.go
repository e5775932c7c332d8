package pages

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"time"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/services/console/internal/gateway"
)

func (s *Server) overviewRoutes() []route {
	return []route{{"GET /w/{workspace}", showOverview}}
}

type overviewData struct {
	Live          []openapi.CallListItem
	MoreLive      bool
	Agents        agentNames
	Wallet        *openapi.Wallet
	Subscriptions openapi.WebhookSubscriptionPage
	Blocked       openapi.CallRequestPage
	Queued        openapi.CallRequestPage
	Day           daySummary
}

// daySummary counts the calls of the last 24 hours.
type daySummary struct {
	Calls, Answered, OptOuts, Failed int
	Talk                             int // seconds
	Hours                            []hourSummary
	Outcomes                         []outcomeCount
}

type hourSummary struct {
	Start                    time.Time
	Answered, Missed, Failed int
}

type outcomeCount struct {
	Outcome string
	Count   int
}

// AnswerRate is the share of ended calls that were answered, in percent. It is "" without calls.
func (d daySummary) AnswerRate() string {
	if d.Calls == 0 {
		return ""
	}
	return strconv.Itoa((100*d.Answered + d.Calls/2) / d.Calls)
}

func (v *visit) readDay(into *daySummary) func() error {
	return func() error {
		query := url.Values{"time_zone": {v.settings.Zone.String()}}
		found, err := gateway.Get[openapi.CallStatistics](v.r.Context(), v.Session, "/v1/call-statistics", query)
		if err == nil {
			*into = summarize(found)
		}
		return err
	}
}

// summarize converts the statistics of a day. A call that was answered and failed counts as failed.
func summarize(found openapi.CallStatistics) daySummary {
	day := daySummary{
		Calls:    int(found.Total.Calls),
		Answered: int(found.Total.Answered),
		Talk:     int(found.Total.TalkSeconds),
		Failed:   int(found.Total.Statuses["failed"]),
		OptOuts:  int(found.Total.Outcomes["opted_out"]),
	}
	for _, hour := range found.Data {
		answered, failed := int(hour.Statuses["completed"]), int(hour.Statuses["failed"])
		day.Hours = append(day.Hours, hourSummary{Start: hour.Start.Time, Answered: answered, Failed: failed,
			Missed: int(hour.Calls) - answered - failed})
	}
	for outcome, count := range found.Total.Outcomes {
		day.Outcomes = append(day.Outcomes, outcomeCount{outcome, int(count)})
	}
	slices.SortFunc(day.Outcomes, func(a, b outcomeCount) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Outcome, b.Outcome))
	})
	return day
}

func showOverview(v *visit) (view, error) {
	var data overviewData
	var agents gateway.Page[gateway.Agent]
	since := time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
	err := concurrently(
		v.readLive(&data.Live, &data.MoreLive, "20"),
		v.readDay(&data.Day),
		read(
			v,
			&data.Blocked,
			"/v1/call-requests",
			url.Values{"status": {"blocked"}, "limit": {"5"}, "created_after": {since}},
		),
		read(v, &data.Queued, "/v1/call-requests", url.Values{"status": {"queued"}, "limit": {"100"}}),
		readOptional(v, &data.Wallet, "/v1/wallet", nil),
		readOptional(v, &data.Subscriptions, "/v1/webhook-subscriptions", url.Values{"limit": {"100"}}),
		v.readAgents(&agents),
	)
	data.Agents = agents.Data
	return view{template: "overview", title: "overview.title", nav: "overview", data: data}, err
}

// FailedSubscriptions are the subscriptions that receive no events, or whose last attempts failed.
func (d overviewData) FailedSubscriptions() (found []openapi.WebhookSubscription) {
	for _, s := range d.Subscriptions.Data {
		if s.Status == openapi.WebhookSubscriptionStatusFailed || s.ConsecutiveFailures > 0 {
			found = append(found, s)
		}
	}
	return found
}

// Quiet reports whether nothing needs attention.
func (d overviewData) Quiet() bool {
	return len(d.FailedSubscriptions()) == 0 && len(d.Blocked.Data) == 0 && !d.LowCredit()
}

// LowCredit reports whether the balance is below one unit of the currency.
func (d overviewData) LowCredit() bool {
	if d.Wallet == nil {
		return false
	}
	balance, err := d.Wallet.Balance.Float64()
	return err == nil && balance < 1
}
