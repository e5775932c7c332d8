package alert

// delivery are causes on the way of an event, from an outbox over Kafka to an endpoint.
func delivery() []Alert { return append(travelling(), sending()...) }

func travelling() []Alert {
	return []Alert{
		{
			Name: "OutboxStuck", Severity: Page, For: "2m",
			Expr:    `max by (job) (outbox_oldest_age_seconds) > <1m>`,
			Summary: "A service's events do not reach Kafka", Description: "The oldest of {{ $labels.job }} waits for {{ $value | humanizeDuration }}. At ten minutes, calls refuses new calls.",
			Trial: []Series{{Name: `outbox_oldest_age_seconds{job="calls"}`, Ill: 300}},
		}, {
			Name: "OutboxLeaderless", Severity: Page, For: "3m",
			Expr:    `sum by (job) (outbox_leader) == 0`,
			Summary: "No replica of a service publishes its events", Description: "Every relay of {{ $labels.job }} waits for a lock that somebody else holds.",
			Trial: []Series{{Name: `outbox_leader{job="calls",instance="a"}`, Well: 1}, {Name: `outbox_leader{job="calls",instance="b"}`}},
		}, {
			Name: "RecordsParked", Severity: Page,
			Expr:    `sum by (job, topic) (increase(inbox_records_total{result="parked"}[30m])) > 0`,
			Summary: "A service has given up on records and parked them", Description: "{{ $labels.job }} parked {{ $value | humanize }} of {{ $labels.topic }}, and every later one of the same key until they are put back.",
			Trial: []Series{{Name: `inbox_records_total{job="calls",topic="dial-events.v1",result="parked"}`, Ill: 1, Grows: true}},
		}, {
			Name: "ConsumerBehind", Severity: Page, For: "2m",
			Expr:    `max by (job, group, topic) (kafka_consumer_oldest_seconds) > <2m>`,
			Summary: "A service reads its events minutes late", Description: "The oldest record of {{ $labels.topic }} that {{ $labels.group }} has not settled is {{ $value | humanizeDuration }} old.",
			Trial: []Series{{Name: `kafka_consumer_oldest_seconds{job="calls",group="calls",topic="dial-events.v1",partition="3"}`, Ill: 600}},
		}, {
			// What was never fetched has no age: only the brokers know of it.
			Name: "ConsumerStopped", Severity: Page, For: "5m",
			Expr: `sum by (job, topic) (max by (job, group, topic, partition) (kafka_consumer_lag_records)) > 0
unless sum by (job, topic) (increase(inbox_records_total[5m])) > 0`,
			Summary: "A service does not read its events", Description: "{{ $value | humanize }} records of {{ $labels.topic }} wait, and {{ $labels.job }} has settled none for five minutes.",
			Trial: []Series{
				{Name: `kafka_consumer_lag_records{job="calls",instance="a",group="calls",topic="dial-events.v1",partition="3"}`, Ill: 40},
				{Name: `inbox_records_total{job="calls",instance="a",topic="dial-events.v1",result="applied"}`, Well: 60, Grows: true},
			},
			// Under load some record always waits.
			Calm: []Series{
				{Name: `kafka_consumer_lag_records{job="calls",instance="a",group="calls",topic="dial-events.v1",partition="3"}`, Well: 40, Ill: 40},
				{Name: `inbox_records_total{job="calls",instance="b",topic="dial-events.v1",result="applied"}`, Well: 60, Ill: 60, Grows: true},
			},
		}, {
			Name: "ConsumerRetries", Severity: Ticket, For: "10m",
			Expr:    `sum by (job, topic) (rate(inbox_retries_total[5m])) > 0`,
			Summary: "A service tries the same records again and again", Description: "{{ $labels.job }} fails at {{ $labels.topic }}, {{ $value | humanize }} times a second.",
			Trial: []Series{{Name: `inbox_retries_total{job="calls",topic="dial-events.v1"}`, Ill: 20, Grows: true}},
		}, {
			Name: "PartitionsThin", Severity: Ticket, For: "10m",
			Expr:    `max by (topic) (kafka_topic_under_replicated_partitions) > 0`,
			Summary: "Kafka keeps fewer copies than it should", Description: "{{ $value }} partitions of {{ $labels.topic }} lack a replica: one more broker lost may lose records.",
			Trial: []Series{{Name: `kafka_topic_under_replicated_partitions{job="calls",group="calls",topic="dial-events.v1"}`, Ill: 4}},
		},
	}
}

func sending() []Alert {
	return []Alert{
		{
			Name: "WebhookQueueStuck", Severity: Page, For: "2m",
			Expr: `max(webhook_oldest_due_seconds) > <2m>
and sum(increase(webhook_attempts_total[2m])) == 0`,
			Summary: "Webhooks are due, and none is sent", Description: "The oldest due delivery waits for {{ $value | humanizeDuration }}.",
			Trial: []Series{{Name: `webhook_oldest_due_seconds{job="webhook-dispatcher"}`, Ill: 600}, {Name: `webhook_attempts_total{job="webhook-dispatcher",result="delivered"}`, Well: 60, Grows: true}},
			// One endpoint that answers slowly: its own deliveries wait.
			Calm: []Series{{Name: `webhook_oldest_due_seconds{job="webhook-dispatcher"}`, Ill: 500}, {Name: `webhook_attempts_total{job="webhook-dispatcher",result="timeout"}`, Well: 6, Ill: 6, Grows: true}},
		}, {
			Name: "WebhookQueueStuck", Severity: Ticket, For: "5m",
			Expr:    `max(webhook_oldest_due_seconds) > <10m>`,
			Summary: "Some webhook has been due for more than ten minutes", Description: "The oldest due delivery waits for {{ $value | humanizeDuration }}; others may be sent.",
			Trial: []Series{{Name: `webhook_oldest_due_seconds{job="webhook-dispatcher"}`, Ill: 900}},
		}, {
			Name: "WebhooksRefused", Severity: Ticket, For: "15m",
			Expr:    `sum(rate(webhook_attempts_total{result!="delivered"}[15m])) / sum(rate(webhook_attempts_total[15m])) > 0.2`,
			Summary: "More than a fifth of all webhooks fail", Description: "{{ $value | humanizePercentage }} of the attempts failed. One customer's endpoint is a ticket; many at once are our own way out.",
			Trial: []Series{
				{Name: `webhook_attempts_total{job="webhook-dispatcher",result="delivered"}`, Well: 60, Ill: 30, Grows: true},
				{Name: `webhook_attempts_total{job="webhook-dispatcher",result="timeout"}`, Ill: 30, Grows: true},
			},
		}, {
			Name: "WebhookSubscriptionsFailed", Severity: Ticket,
			Expr:    `sum(increase(webhook_subscriptions_disabled_total[1h])) > 0`,
			Summary: "A customer's webhook subscription was switched off because its endpoint kept failing", Description: "{{ $value | humanize }} subscriptions in an hour. Their events are held and can be replayed.",
			Trial: []Series{{Name: `webhook_subscriptions_disabled_total{job="webhook-dispatcher"}`, Ill: 1, Grows: true}},
		}, {
			Name: "WebhooksUnsendable", Severity: Page, For: "5m",
			Expr:    `sum(increase(webhook_attempts_total{result="not_sendable"}[15m])) > 0`,
			Summary: "Webhooks cannot be signed: a sealing key is missing", Description: "{{ $value | humanize }} attempts in a quarter of an hour had no secret to sign with.",
			Trial: []Series{{Name: `webhook_attempts_total{job="webhook-dispatcher",result="not_sendable"}`, Ill: 1, Grows: true}},
		},
	}
}
