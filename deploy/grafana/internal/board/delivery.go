package board

func delivery() Board {
	return Board{
		UID: "ringfence-delivery", Title: "2 Delivery and failure", About: "Do customers hear of their calls, and if not: is it us or their endpoint?",
		Rows: []Row{
			{"Now", []Panel{
				kept("Ends told within 30 s (1 h)", "Terminal events that the endpoint took at the first try. Promise: 99 %.", "events-delivered", 0.99, 0.95, "EventsDeliveredLate"),
				{Title: "Oldest due delivery", Unit: "s", Number: true, Warn: 10, Bad: 120, Queries: one(`max(webhook_oldest_due_seconds)`, ""), Alerts: []string{"WebhookQueueStuck"}},
				{Title: "Attempts that fail", Unit: "percentunit", Number: true, Warn: 0.05, Bad: 0.2, Alerts: []string{"WebhooksRefused"},
					Queries: share(rate(`webhook_attempts_total{result!="delivered"}`, ""), rate("webhook_attempts_total", ""))},
				{Title: "Given up on (1 h)", About: "After the last attempt; they can be replayed.", Unit: "short", Number: true, Warn: 1, Bad: 100, Queries: one(`sum(increase(webhook_deliveries_failed_total[1h]))`, ""), Alerts: []string{"WebhooksRefused"}},
				{Title: "Subscriptions switched off (1 h)", Unit: "short", Number: true, Warn: 1, Bad: 5, Queries: one(`sum(increase(webhook_subscriptions_disabled_total[1h]))`, ""), Alerts: []string{"WebhookSubscriptionsFailed"}},
				{Title: "Requests open", Unit: "short", Number: true, Queries: one(`sum(webhook_inflight)`, "")},
			}},
			{"Attempts", []Panel{
				{Title: "Attempts by result", Unit: "reqps", Stacked: true, Queries: one(rate("webhook_attempts_total", "result"), "{{result}}"), Alerts: []string{"WebhooksRefused", "WebhooksUnsendable"}},
				{Title: "Terminal event to delivered, at the first try", About: "Without what its own endpoint kept waiting: our part of the delay. A point leads to its trace.", Unit: "s", Warn: 5, Bad: 30, Traces: true, Queries: quantiles("webhook_terminal_to_delivered_seconds", `{try="first",held="no"}`), Alerts: []string{"EventsDeliveredLate"}},
				{Title: "Terminal event to delivered, after a retry", About: "The endpoint refused at first.", Unit: "s", Traces: true, Queries: quantiles("webhook_terminal_to_delivered_seconds", `{try="retry"}`)},
				{Title: "How long endpoints take", About: "A point leads to its trace.", Unit: "s", Traces: true, Queries: quantiles("webhook_attempt_seconds", "")},
				{Title: "Due to claimed", About: "How long an attempt that is due waits for us.", Unit: "s", Warn: 1, Bad: 10, Queries: quantiles("webhook_lag_seconds", ""), Alerts: []string{"WebhookQueueStuck"}},
				{Title: "Open deliveries", About: "due now, waiting for a retry, held by a pause or a failed subscription.", Unit: "short", Stacked: true, Queries: one(`max by (state) (webhook_queue_rows)`, "{{state}}"), Alerts: []string{"WebhookQueueStuck"}},
			}},
			{"How the dispatcher works", []Panel{
				{Title: "Requests in flight, by replica", Unit: "short", Stacked: true, Queries: one(`sum by (instance) (webhook_inflight)`, "{{instance}}")},
				{Title: "Duration of a claim", About: "One that grows slowly is the first sign of a queue that is not vacuumed.", Unit: "s", Queries: quantiles("webhook_claim_seconds", "")},
				{Title: "Connections: new or used again", Unit: "reqps", Stacked: true, Queries: one(rate("webhook_connections_total", "reused"), "reused: {{reused}}")},
			}},
		},
	}
}

// bus is how facts travel.
func bus() Board {
	return Board{
		UID: "ringfence-events", Title: "6 Event bus", About: "Outboxes, Kafka, inboxes: do facts travel, and has anybody given up on one?",
		Rows: []Row{
			{"Now", []Panel{
				{Title: "Oldest unpublished event", Unit: "s", Number: true, Warn: 5, Bad: 60, Queries: one(`max(outbox_oldest_age_seconds)`, ""), Alerts: []string{"OutboxStuck"}},
				{Title: "Oldest unread record", Unit: "s", Number: true, Warn: 10, Bad: 120, Queries: one(`max(kafka_consumer_oldest_seconds) or max(0 * kafka_consumer_lag_records)`, ""), Alerts: []string{"ConsumerBehind"}},
				{Title: "Services without a relay", About: "Nobody publishes their events.", Unit: "short", Number: true, Warn: 1, Bad: 1, Queries: one(`count(sum by (job) (outbox_leader) == 0) or 0 * sum(outbox_leader)`, ""), Alerts: []string{"OutboxLeaderless"}},
				{Title: "Records parked (1 h)", About: "Given up on, with every later one of their keys.", Unit: "short", Number: true, Warn: 1, Bad: 1, Queries: one(`sum(increase(inbox_records_total{result="parked"}[1h]))`, ""), Alerts: []string{"RecordsParked"}},
				{Title: "Thin partitions", About: "Kafka keeps fewer copies than it should.", Unit: "short", Number: true, Warn: 1, Bad: 1, Queries: one(`sum(max by (topic) (kafka_topic_under_replicated_partitions))`, ""), Alerts: []string{"PartitionsThin"}},
				{Title: "Records lost (1 h)", About: "Partitions shorter than what was read of them. A law of ours: always zero.", Unit: "short", Number: true, Warn: 1, Bad: 1, Queries: one(`sum(increase(inbox_data_loss_total[1h]))`, ""), Alerts: []string{"RecordsLost"}},
			}},
			{"Out", []Panel{
				{Title: "Published, by topic", Unit: "recps", Stacked: true, Queries: one(rate("outbox_published_total", "topic"), "{{topic}}")},
				{Title: "Age of the oldest row", Unit: "s", Warn: 5, Bad: 60, Queries: one(`max by (job) (outbox_oldest_age_seconds)`, "{{job}}"), Alerts: []string{"OutboxStuck"}},
				{Title: "Handing a batch to Kafka", Unit: "s", Queries: quantiles("outbox_publish_seconds", "")},
				{Title: "Rows that wait", About: "Counted up to 10 000.", Unit: "short", Queries: one(`max by (job) (outbox_rows)`, "{{job}}"), Alerts: []string{"OutboxStuck"}},
				{Title: "Replicas that publish", About: "One a service, always.", Unit: "short", Queries: one(`sum by (job) (outbox_leader)`, "{{job}}"), Alerts: []string{"OutboxLeaderless"}},
				{Title: "Bytes to Kafka", Unit: "Bps", Queries: one(rate("kafka_produce_compressed_bytes_total", "job"), "{{job}}")},
			}},
			{"In", []Panel{
				{Title: "Records by what became of them", Unit: "recps", Stacked: true, Queries: one(rate("inbox_records_total", "result"), "{{result}}"), Alerts: []string{"RecordsParked"}},
				{Title: "Lag in records", About: "Behind what the brokers have.", Unit: "short", Queries: one(`sum by (group, topic) (max by (group, topic, partition) (kafka_consumer_lag_records))`, "{{group}}: {{topic}}"), Alerts: []string{"ConsumerBehind", "ConsumerStopped"}},
				{Title: "Age of the oldest unread record", Unit: "s", Warn: 10, Bad: 120, Queries: one(`max by (group, topic) (kafka_consumer_oldest_seconds) or max by (group, topic) (0 * kafka_consumer_lag_records)`, "{{group}}: {{topic}}"), Alerts: []string{"ConsumerBehind"}},
				{Title: "Settling a batch", Unit: "s", Queries: quantiles("inbox_batch_seconds", "")},
				{Title: "Tries made again", Unit: "recps", Queries: one(rate("inbox_retries_total", "job, topic")+" or 0 * "+rate("inbox_records_total", "job, topic"), "{{job}}: {{topic}}"), Alerts: []string{"ConsumerRetries"}},
				{Title: "Partitions", Unit: "short", Queries: one(`max by (topic) (kafka_topic_partitions)`, "{{topic}}")},
			}},
		},
	}
}
