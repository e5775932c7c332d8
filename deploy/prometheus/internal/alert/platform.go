package alert

import "fmt"

// services are the jobs that are scraped.
var services = []string{"gateway", "calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher"}

// unknown is the rest of an expression: a service of which nothing is scraped at all, since a target that is gone from discovery has no up either.
func unknown() (expr string) {
	for _, job := range services {
		expr += fmt.Sprintf("\nor absent(up{job=%q})", job)
	}
	return expr
}

// scraped are all services but one.
func scraped(but string) (up []Series) {
	for _, job := range services {
		if job != but {
			up = append(up, Series{Name: fmt.Sprintf(`up{job=%q,instance="a"}`, job), Well: 1, Ill: 1})
		}
	}
	return up
}

// platform are causes below all services.
func platform() []Alert {
	return []Alert{
		{
			Name: "ServiceDown", Severity: Page, For: "2m", Absent: true,
			Expr:    `up{job=~"gateway|calls|contacts-compliance|dialer|billing-wallet|webhook-dispatcher"} == 0` + unknown(),
			Summary: "A process of Ringfence does not answer", Description: "{{ $labels.job }}{{ with $labels.instance }} on {{ . }} was not to be scraped{{ else }} has no process that anybody knows of{{ end }}.",
			Trial: append(scraped("dialer"), Series{Name: `up{job="dialer",instance="a"}`, Well: 1, Gone: true}),
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
			Name: "CertificateExpires", Severity: Page, For: "10m",
			Expr:    `min by (job, certificate) (certificate_expires_timestamp_seconds) - time() < <3d>`,
			Summary: "A certificate of ours expires within three days", Description: "{{ $labels.certificate }} of {{ $labels.job }}: {{ $value | humanizeDuration }} are left.",
			Trial: []Series{{Name: `certificate_expires_timestamp_seconds{job="dialer",certificate="SIP_TLS_CERT_FILE"}`, Well: 7e6, Ill: 2e5}},
		}, {
			Name: "CertificateExpires", Severity: Ticket, For: "1h",
			Expr:    `min by (job, certificate) (certificate_expires_timestamp_seconds) - time() < <21d>`,
			Summary: "A certificate of ours expires within three weeks", Description: "{{ $labels.certificate }} of {{ $labels.job }}: {{ $value | humanizeDuration }} are left.",
			Trial: []Series{{Name: `certificate_expires_timestamp_seconds{job="dialer",certificate="SIP_TLS_CERT_FILE"}`, Well: 7e6, Ill: 1e6}},
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
