package alert

// platform are causes below all services.
func platform() []Alert {
	return []Alert{
		{
			Name: "ServiceDown", Severity: Page, For: "2m",
			Expr:    `up{job=~"gateway|calls|contacts-compliance|dialer|billing-wallet|webhook-dispatcher"} == 0`,
			Summary: "A process of Ringfence does not answer", Description: "{{ $labels.job }} on {{ $labels.instance }} was not to be scraped.",
			Trial: []Series{{Name: `up{job="calls",instance="a"}`, Well: 1}},
		}, {
			Name: "ServiceRestarts", Severity: Ticket,
			Expr:    `changes(process_start_time_seconds{job=~"gateway|calls|contacts-compliance|dialer|billing-wallet|webhook-dispatcher"}[15m]) > 2`,
			Summary: "A process of Ringfence starts again and again", Description: "{{ $labels.job }} on {{ $labels.instance }}: {{ $value }} times in a quarter of an hour.",
			Trial: []Series{{Name: `process_start_time_seconds{job="calls",instance="a"}`, Ill: 60, Grows: true}},
		}, {
			Name: "PostgresDown", Severity: Page, For: "1m",
			Expr:    `min by (job) (postgres_up) == 0`,
			Summary: "A service cannot reach its database", Description: "{{ $labels.job }} asked, and got no answer within a second.",
			Trial: []Series{{Name: `postgres_up{job="calls",instance="a"}`, Well: 1}},
		}, {
			Name: "PostgresPoolExhausted", Severity: Page, For: "5m",
			Expr: `sum by (job, instance) (rate(postgres_pool_wait_seconds_total[5m])) > 1
or sum by (job, instance) (rate(postgres_pool_given_up_total[5m])) > 0.1`,
			Summary: "A service waits for database connections", Description: "{{ $labels.job }} on {{ $labels.instance }}: its pool is used up ({{ $value | humanize }} s waited in a second, or that many gave up).",
			Trial: []Series{{Name: `postgres_pool_wait_seconds_total{job="calls",instance="a"}`, Ill: 300, Grows: true}, {Name: `postgres_pool_given_up_total{job="calls",instance="a"}`, Grows: true}},
		}, {
			Name: "FilesNearLimit", Severity: Ticket, For: "10m",
			Expr:    `process_open_fds / process_max_fds > 0.8`,
			Summary: "A process has nearly as many open files as it may", Description: "{{ $labels.job }} on {{ $labels.instance }}: {{ $value | humanizePercentage }}. Calls, requests and webhooks each need one.",
			Trial: []Series{{Name: `process_open_fds{job="gateway",instance="a"}`, Well: 50, Ill: 950}, {Name: `process_max_fds{job="gateway",instance="a"}`, Well: 1000, Ill: 1000}},
		}, {
			Name: "VersionsMixed", Severity: Ticket, For: "1h",
			Expr:    `count by (job) (count by (job, version) (ringfence_build_info)) > 1`,
			Summary: "Two versions of a service run side by side for an hour", Description: "{{ $value }} versions of {{ $labels.job }}: an upgrade stopped half way.",
			Trial: []Series{
				{Name: `ringfence_build_info{job="calls",instance="a",version="v1"}`, Well: 1, Ill: 1},
				{Name: `ringfence_build_info{job="calls",instance="b",version="v2"}`, Ill: 1, Born: true},
			},
		},
	}
}
