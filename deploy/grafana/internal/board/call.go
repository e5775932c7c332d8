package board

// callPath is the first look: is what customers were promised kept, and where on a call's way does it stop.
func callPath() Board {
	return Board{
		UID: "ringfence-call-path", Title: "1 Call path", About: "From POST to the last webhook: are the promises kept, and where does a call stop?",
		Rows: []Row{
			{"What customers feel (the last hour)", []Panel{
				kept("Requests answered", "Not failed by our fault. Promise: 99.9 %.", "api-available", 0.999, 0.99, "APIUnavailable"),
				kept("Requests answered in 0.5 s", "Promise: 99 %.", "api-fast", 0.99, 0.95, "APISlow"),
				kept("Calls dialled within 5 s of due", "Promise: 99 %.", "calls-dialled", 0.99, 0.95, "CallsDialledLate"),
				kept("Ends told within 30 s", "Terminal events that the endpoint took at the first try. Promise: 99 %.", "events-delivered", 0.99, 0.95, "EventsDeliveredLate"),
				{Title: "Calls under way", Unit: "short", Number: true, Queries: one(`sum(max by (direction) (ringfence_dialer_live_calls))`, "")},
				{Title: "Oldest call that is due", About: "How long it waits to be dialled.", Unit: "s", Number: true, Warn: 5, Bad: 300, Alerts: []string{"DialQueueStuck"},
					Queries: one(`max(ringfence_dialer_queue_oldest_due_seconds)`, "")},
			}},
			{"The way of a call", []Panel{
				{Title: "1 Ordered: POST /v1/calls by answer", About: "accepted and replayed are 2xx; the rest are the refusals of the specification.", Unit: "reqps", Stacked: true,
					Queries: one(rate("calls_posts_total", "result"), "{{result}}"), Alerts: []string{"APIUnavailable"}},
				{Title: "2 Judged: decisions of the gates", Unit: "cps", Stacked: true, Queries: one(rate("contacts_decisions_total", "stage, result"), "{{stage}}: {{result}}"), Alerts: []string{"GateSilent"}},
				{Title: "3 Paid: holds by result", Unit: "cps", Stacked: true, Queries: one(rate("billing_wallet_holds_total", "result"), "{{result}}")},
				{Title: "4 Waiting: the dial queue", About: "due now, and scheduled ahead; counted up to 10 000 each.", Unit: "short",
					Queries: one(`max by (state) (ringfence_dialer_queue_requests)`, "{{state}}"), Alerts: []string{"DialQueueStuck", "CallsExpired"}},
				{Title: "5 Dialled: attempts by what became of them", Unit: "cps", Stacked: true, Queries: one(rate("ringfence_dialer_attempts_total", "result"), "{{result}}"), Alerts: []string{"CallsDialledLate", "CarrierRefuses"}},
				{Title: "5 Dialled: how long after due", About: "Without what waited for its workspace's own limits. A point leads to its trace.", Unit: "s", Warn: 1, Bad: 5, Traces: true, Queries: quantiles("ringfence_dialer_due_to_originate_seconds", `{held="no"}`), Alerts: []string{"CallsDialledLate"}},
				{Title: "6 Ended: calls by status", Unit: "cps", Stacked: true, Queries: one(rate("calls_ended_total", "status"), "{{status}}"), Alerts: []string{"CallsBreakOff"}},
				{Title: "6 Ended: causes", About: "The name of the Q.850 cause.", Unit: "cps", Stacked: true, Queries: one(rate("calls_ended_total", "cause"), "{{cause}}"), Alerts: []string{"CallsBreakOff"}},
				{Title: "7 Told: terminal event to delivered", About: "At the first try, and without what its own endpoint kept waiting: the delay is ours. A point leads to its trace.", Unit: "s", Warn: 5, Bad: 30, Traces: true,
					Queries: quantiles("webhook_terminal_to_delivered_seconds", `{try="first",held="no"}`), Alerts: []string{"EventsDeliveredLate"}},
			}},
			{"Told too late to be in the event", []Panel{
				{Title: "call.completed without charge or analysis", About: "They came after the event had gone out, and show in GET only.", Unit: "eps", Queries: one(rate("calls_late_news_total", "kind"), "{{kind}}"), Alerts: []string{"CallsCompletedIncomplete"}},
				{Title: "Orders told of again", About: "A quarter of an hour after they were due. waiting: a campaign that takes longer. lost, over: the order, or the news of its end, was.", Unit: "eps", Queries: one(rate("ringfence_dialer_overdue_orders_total", "found"), "{{found}}"), Alerts: []string{"CallsRepublished"}},
				{Title: "Gave up waiting", About: "capacity_timeout and queue_expired.", Unit: "cps", Queries: one(rate("ringfence_dialer_expired_total", ""), "calls"), Alerts: []string{"CallsExpired"}},
			}},
		},
	}
}

// dialer is the way to the telephone: trunks, room, audio.
func dialer() Board {
	return Board{
		UID: "ringfence-dialer", Title: "3 Dialer and carriers", About: "Do trunks take our calls, is there room, and does the audio keep pace?",
		Rows: []Row{
			{"Trunks", []Panel{
				{Title: "Open circuits", About: "Trunks to which no dialer has a closed circuit: they failed several times in a row, and rest.", Unit: "short", Number: true, Warn: 1, Bad: 1, Queries: one(`sum(1 - max by (trunk) (ringfence_dialer_circuit_state{state="closed"}))`, ""), Alerts: []string{"TrunkCircuitOpen"}},
				{Title: "Channels taken", Unit: "percentunit", Number: true, Warn: 0.8, Bad: 0.9, Queries: one(`sum(max by (trunk) (ringfence_dialer_slots)) / max(ringfence_dialer_channels > 0)`, ""), Alerts: []string{"ChannelsFull"}},
				{Title: "Refused by carriers", Unit: "percentunit", Number: true, Warn: 0.05, Bad: 0.2, Alerts: []string{"CarrierRefuses"},
					Queries: share(rate(`ringfence_dialer_attempts_total{result=~"refused|unknown"}`, ""), rate(`ringfence_dialer_attempts_total{result=~"dialed|refused|unknown"}`, ""))},
				{Title: "State unknown (1 h)", About: "The carrier did not say whether it dialled. Never dialled again.", Unit: "short", Number: true, Warn: 1, Bad: 10, Queries: one(`sum(increase(ringfence_dialer_attempts_total{result="unknown"}[1h]))`, ""), Alerts: []string{"DialStateUnknown"}},
				{Title: "Leaked places (1 h)", About: "A law of ours: always zero.", Unit: "short", Number: true, Warn: 1, Bad: 1, Queries: one(`sum(increase(ringfence_dialer_leaked_slots_total{kind="leaked"}[1h]))`, ""), Alerts: []string{"CallSlotsLeaked"}},
				{Title: "Orphaned calls (1 h)", About: "Calls of a dialer that died.", Unit: "short", Number: true, Warn: 1, Bad: 50, Queries: one(`sum(increase(ringfence_dialer_orphaned_calls_total[1h]))`, ""), Alerts: []string{"ServiceRestarts"}},
			}},
			{"Dialling", []Panel{
				{Title: "Attempts by what became of them", Unit: "cps", Stacked: true, Queries: one(rate("ringfence_dialer_attempts_total", "result"), "{{result}}"), Alerts: []string{"CarrierRefuses", "GateSilent"}},
				{Title: "Places taken, and channels", Unit: "short", Queries: []Query{{`max by (trunk) (ringfence_dialer_slots)`, "{{trunk}}"}, {`max(ringfence_dialer_channels)`, "channels of all trunks"}}, Alerts: []string{"ChannelsFull"}},
				{Title: "Circuits", About: "1 for the state in which a trunk's circuit is, on any replica.", Unit: "short", Queries: one(`max by (trunk, state) (ringfence_dialer_circuit_state)`, "{{trunk}}: {{state}}"), Alerts: []string{"TrunkCircuitOpen"}},
				{Title: "Circuits opened", Unit: "short", Queries: one(`sum by (trunk) (increase(ringfence_dialer_circuit_opened_total[$__rate_interval]))`, "{{trunk}}"), Alerts: []string{"TrunkCircuitOpen"}},
				{Title: "Calls under way", Unit: "short", Stacked: true, Queries: one(`max by (direction) (ringfence_dialer_live_calls)`, "{{direction}}")},
				{Title: "How long after due", About: "Without what waited for its workspace's own limits. A point leads to its trace.", Unit: "s", Warn: 1, Bad: 5, Traces: true, Queries: quantiles("ringfence_dialer_due_to_originate_seconds", `{held="no"}`), Alerts: []string{"CallsDialledLate"}},
			}},
			{"Each SIP trunk", []Panel{
				{Title: "Answers", About: "1: it answers some dialer's OPTIONS.", Unit: "short", Queries: one(`max by (sip_trunk) (ringfence_dialer_sip_trunk_up)`, "{{sip_trunk}}"), Alerts: []string{"SIPTrunkDown"}},
				{Title: "Knows where we are", About: "1: it took some dialer's last REGISTER; only trunks that want one.", Unit: "short", Queries: one(`max by (sip_trunk) (ringfence_dialer_sip_trunk_registered)`, "{{sip_trunk}}"), Alerts: []string{"SIPTrunkDown"}},
				{Title: "Calls offered, by its first word", About: "refused: for trouble of its own.", Unit: "cps", Stacked: true, Queries: one(rate("ringfence_dialer_sip_invites_total", "sip_trunk, result"), "{{sip_trunk}}: {{result}}"), Alerts: []string{"SIPTrunkRefuses"}},
			}},
			{"Audio (calls over SIP)", []Panel{
				{Title: "RTP streams, and ports that rest", Unit: "short", Queries: []Query{{`sum by (instance) (ringfence_dialer_rtp_streams)`, "{{instance}}: streams"}, {`sum by (instance) (ringfence_dialer_rtp_resting_ports)`, "{{instance}}: resting ports"}}},
				{Title: "Packets sent more than 10 ms late", About: "None while nobody speaks.", Unit: "percentunit", Warn: 0.01, Bad: 0.05, Alerts: []string{"MediaLate"},
					Queries: one("1 - sum by (instance) (rate(ringfence_dialer_rtp_send_late_seconds_bucket{le=\"0.01\"}"+within+")) / (sum by (instance) (rate(ringfence_dialer_rtp_send_late_seconds_count"+within+")) > 0) or (sum by (instance) (rate(ringfence_dialer_rtp_send_late_seconds_count"+within+")) == 0)", "{{instance}}")},
				{Title: "Frames left out, packets lost", Unit: "pps", Queries: []Query{{rate("ringfence_dialer_rtp_skipped_frames_total", "instance"), "{{instance}}: left out by us"}, {rate("ringfence_dialer_rtp_lost_packets_total", "instance"), "{{instance}}: lost on the way"}}, Alerts: []string{"MediaLate"}},
			}},
			{"Each replica", []Panel{
				{Title: "Attempts, by replica", About: "Replicas share the queue: one that takes nothing is in trouble of its own.", Unit: "cps", Stacked: true, Queries: one(rate("ringfence_dialer_attempts_total", "instance"), "{{instance}}")},
				{
					Title: "Circuits, by replica",
					About: "Trunks: 1 is closed; each dialer has its own circuits. Agents: the addresses that cannot be reached.",
					Unit:  "short",
					Queries: []Query{
						{`sum by (instance, trunk) (ringfence_dialer_circuit_state{state="closed"})`, "{{instance}}: {{trunk}}"},
						{
							`sum by (instance, kind, owner) (ringfence_dialer_agent_circuits_open)`,
							"{{instance}}: agents {{kind}}, {{owner}}",
						},
					},
					Alerts: []string{"TrunkCircuitOpen", "AgentUnreachable"},
				},
				{Title: "Certificates and models: time left",
					About: "Of the files that we hold (SIP over TLS, Kafka), and until OpenAI shuts down a model in use.",
					Unit:  "s", Warn: 21 * day, Bad: 3 * day, Below: true,
					Queries: []Query{
						{
							`min by (job, instance, certificate) (certificate_expires_timestamp_seconds) - time()`,
							"{{job}} {{instance}}: {{certificate}}",
						},
						{`min by (model) (ringfence_dialer_model_retires_timestamp_seconds) - time()`, "{{model}}"},
					}, Alerts: []string{"CertificateExpires", "ModelRetires"}},
			}},
		},
	}
}
