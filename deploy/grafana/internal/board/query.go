package board

import "fmt"

// within is Grafana's own choice of a range: four scrapes at least.
const within = "[$__rate_interval]"

// rate is a counter's growth in a second, summed by labels ("": over all).
func rate(metric, by string) string {
	if by == "" {
		return fmt.Sprintf("sum(rate(%s%s))", metric, within)
	}
	return fmt.Sprintf("sum by (%s) (rate(%s%s))", by, metric, within)
}

// quantiles are the median, what one in ten and one in a hundred wait, of a histogram without its labels.
func quantiles(histogram, labels string) []Query {
	var all []Query
	for _, q := range []struct{ of, name string }{{"0.5", "median"}, {"0.9", "9 of 10"}, {"0.99", "99 of 100"}} {
		all = append(all, Query{fmt.Sprintf("histogram_quantile(%s, sum by (le) (rate(%s_bucket%s%s)))", q.of, histogram, labels, within), q.name})
	}
	return all
}

// kept is how much of a promise is kept over an hour; the recording rules of deploy/prometheus know how much is not.
func kept(title, about, promise string, warn, bad float64, alert string) Panel {
	return Panel{
		Title: title, About: about, Unit: "percentunit", Number: true, Warn: warn, Bad: bad, Below: true, Alerts: []string{alert, "PromisesUnmeasured"},
		Queries: []Query{{fmt.Sprintf(`1 - slo:errors:ratio_1h{slo="%s"}`, promise), ""}},
	}
}

// share is the part of bad in all, rates both; 0 while there is nothing, and no value when it is not told.
func share(bad, all string) []Query {
	return one(fmt.Sprintf("%s / (%s > 0) or (%s == 0)", bad, all, all), "")
}

func one(expr, legend string) []Query { return []Query{{expr, legend}} }
