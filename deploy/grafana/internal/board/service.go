package board

// service is the golden signals of one service: traffic, errors, duration, saturation.
func service() Board {
	const of, probes = `job="$job"`, `job="$job",route!~"/readyz|/livez"`
	return Board{
		UID: "ringfence-service", Title: "7 A service", About: "Traffic, errors, duration and saturation of one service.", Service: true,
		Rows: []Row{
			{"Now", []Panel{
				{Title: "Replicas up", Unit: "short", Number: true, Warn: 2, Bad: 1, Below: true, Queries: one(`sum(up{`+of+`})`, ""), Alerts: []string{"ServiceDown"}},
				{Title: "Database answers", About: "1: within a second, to every replica.", Unit: "short", Number: true, Warn: 1, Bad: 1, Below: true, Queries: one(`min(postgres_up{`+of+`})`, ""), Alerts: []string{"PostgresDown"}},
				{Title: "Database connections in use", Unit: "percentunit", Number: true, Warn: 0.8, Bad: 0.95, Queries: one(`max(postgres_pool_connections{`+of+`,state="busy"} / on (instance) postgres_pool_max_connections{`+of+`})`, ""), Alerts: []string{"PostgresPoolExhausted"}},
				{Title: "Requests that fail", Unit: "percentunit", Number: true, Warn: 0.001, Bad: 0.01, Alerts: []string{"APIUnavailable"},
					Queries: one(rate(`http_request_duration_seconds_count{`+probes+`,status=~"5.."}`, "")+" / ("+rate(`http_request_duration_seconds_count{`+probes+`}`, "")+" > 0) or 0 * sum(up{"+of+"})", "")},
				{Title: "Starts (1 h)", Unit: "short", Number: true, Warn: 1, Bad: 3, Queries: one(`sum(changes(process_start_time_seconds{`+of+`}[1h]))`, ""), Alerts: []string{"ServiceRestarts"}},
				{Title: "Versions", About: "Two while an upgrade rolls.", Unit: "short", Number: true, Warn: 2, Bad: 3, Queries: one(`count(count by (version) (ringfence_build_info{`+of+`}))`, ""), Alerts: []string{"VersionsMixed"}},
			}},
			{"Traffic, errors, duration", []Panel{
				{Title: "Requests by route", Unit: "reqps", Stacked: true, Queries: one(rate(`http_request_duration_seconds_count{`+of+`}`, "method, route"), "{{method}} {{route}}")},
				{Title: "Requests by status", Unit: "reqps", Stacked: true, Queries: one(rate(`http_request_duration_seconds_count{`+of+`}`, "status"), "{{status}}"), Alerts: []string{"APIUnavailable"}},
				{Title: "Duration", About: "A point leads to its trace.", Unit: "s", Warn: 0.5, Bad: 1, Traces: true, Queries: quantiles("http_request_duration_seconds", "{"+probes+"}"), Alerts: []string{"APISlow"}},
			}},
			{"Saturation", []Panel{
				{Title: "Requests being answered", Unit: "short", Queries: one(`sum by (instance) (http_requests_in_flight{`+of+`})`, "{{instance}}")},
				{Title: "CPU", About: "1 is a core.", Unit: "short", Queries: one(rate(`process_cpu_seconds_total{`+of+`}`, "instance"), "{{instance}}")},
				{Title: "Memory", Unit: "bytes", Queries: one(`process_resident_memory_bytes{`+of+`}`, "{{instance}}"), Alerts: []string{"ServiceRestarts"}},
				{Title: "Database connections", About: "Lent out, by replica, and the most that one may have.", Unit: "short", Queries: []Query{{`sum by (instance) (postgres_pool_connections{` + of + `,state="busy"})`, "{{instance}}"}, {`max(postgres_pool_max_connections{` + of + `})`, "most"}}, Alerts: []string{"PostgresPoolExhausted"}},
				{Title: "Waiting for a database connection", About: "Seconds waited in a second: 1 is one caller who waits all the time.", Unit: "short", Warn: 0.2, Bad: 1, Queries: one(rate(`postgres_pool_wait_seconds_total{`+of+`}`, "instance"), "{{instance}}"), Alerts: []string{"PostgresPoolExhausted"}},
				{Title: "Goroutines", Unit: "short", Queries: one(`go_goroutines{`+of+`}`, "{{instance}}")},
				{Title: "Open files", Unit: "percentunit", Warn: 0.7, Bad: 0.8, Queries: one(`process_open_fds{`+of+`} / process_max_fds{`+of+`}`, "{{instance}}"), Alerts: []string{"FilesNearLimit"}},
				{Title: "Garbage collection", About: "The longest pause of the last collections.", Unit: "s", Queries: one(`max by (instance) (go_gc_duration_seconds{`+of+`,quantile=~"1(\\.0)?"})`, "{{instance}}")},
				{Title: "Events: published and settled", Unit: "recps", Queries: []Query{{rate(`outbox_published_total{`+of+`}`, "") + " or 0 * sum(up{" + of + "})", "published"}, {rate(`inbox_records_total{`+of+`}`, "") + " or 0 * sum(up{" + of + "})", "applied, skipped, parked"}}},
			}},
		},
	}
}
