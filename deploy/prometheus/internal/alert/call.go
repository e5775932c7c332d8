package alert

import "slices"

// brokeOff are calls that failed, but for those whose number or person is the cause (contract.md §2).
const brokeOff = `direction="outbound",status="failed",cause!~"unallocated_number|invalid_number_format|number_changed|no_route_destination|call_rejected"`

// calls are causes on the way of a call, from the queue to the carrier.
func calls() []Alert { return slices.Concat(queueing(), carrying(), trunks(), agents()) }

// agents returns the alerts about the AI agents that hold the conversations.
func agents() []Alert {
	return []Alert{
		{
			Name: "ModelRetires", Severity: Ticket, For: "1h",
			Expr:    `min by (model) (ringfence_dialer_model_retires_timestamp_seconds) - time() < <60d>`,
			Summary: "OpenAI shuts down a model in use within 60 days",
			// The value is negative after the shutdown.
			Description: "{{ $labels.model }}: {{ $value | humanizeDuration }} are left. Afterwards every call of its " +
				"agents fails.",
			Trial: []Series{{Name: `ringfence_dialer_model_retires_timestamp_seconds{job="dialer",model="gpt-realtime"}`,
				Well: 7e6, Ill: 1e6}},
		}, {
			Name: "AgentUnreachable", Severity: Page, For: "2m",
			Expr:    `max by (kind) (ringfence_dialer_agent_circuits_open{owner="operator"}) > 0`,
			Summary: "The operator's AI model cannot be reached, and its agents place no calls",
			Description: "Sessions of agents of kind {{ $labels.kind }} could not be opened several times in a row. Requests " +
				"stay queued.",
			Trial: []Series{{
				Name: `ringfence_dialer_agent_circuits_open{job="dialer",kind="openai_realtime",owner="operator"}`, Ill: 1,
			}},
		},
	}
}

func queueing() []Alert {
	return []Alert{
		{
			Name: "DialQueueStuck", Severity: Page, For: "2m",
			Expr: `max(ringfence_dialer_queue_oldest_due_seconds) > <5m>
and sum(increase(ringfence_dialer_attempts_total{result=~"dialed|blocked|rescheduled"}[5m])) == 0`,
			Summary: "Calls have been due for more than five minutes, and nothing is dialled", Description: "The oldest waits for {{ $value | humanizeDuration }}.",
			Trial: []Series{{Name: `ringfence_dialer_queue_oldest_due_seconds{job="dialer"}`, Ill: 900}, {Name: `ringfence_dialer_attempts_total{job="dialer",result="dialed"}`, Well: 60, Grows: true}},
			// A workspace that ordered more than its own limits let through.
			Calm: []Series{{Name: `ringfence_dialer_queue_oldest_due_seconds{job="dialer"}`, Ill: 1500}, {Name: `ringfence_dialer_attempts_total{job="dialer",result="dialed"}`, Well: 60, Ill: 60, Grows: true}},
		}, {
			Name: "DialQueueStuck", Severity: Ticket, For: "5m",
			Expr:    `max(ringfence_dialer_queue_oldest_due_seconds) > <1h>`,
			Summary: "Some call has been due for more than an hour", Description: "The oldest waits for {{ $value | humanizeDuration }}; others may be dialled.",
			Trial: []Series{{Name: `ringfence_dialer_queue_oldest_due_seconds{job="dialer"}`, Ill: 5000}},
		}, {
			Name: "CallsExpired", Severity: Page, For: "1m",
			Expr:    `sum(increase(ringfence_dialer_expired_total[15m])) > 0`,
			Summary: "Calls ended undialled because they had waited too long", Description: "{{ $value | humanize }} in a quarter of an hour: for want of room, or in the queue.",
			Trial: []Series{{Name: `ringfence_dialer_expired_total{job="dialer"}`, Ill: 5, Grows: true}},
		}, {
			Name: "GateSilent", Severity: Page, For: "3m",
			Expr: `sum(increase(ringfence_dialer_attempts_total{result="gate_silent"}[2m]))
/ sum(increase(ringfence_dialer_attempts_total[2m])) > 0.05`,
			Summary: "The dialer cannot ask whether people may be called, and dials nobody", Description: "{{ $value | humanizePercentage }} of the attempts were put back unasked.",
			Trial: []Series{
				{Name: `ringfence_dialer_attempts_total{job="dialer",result="dialed"}`, Well: 60, Grows: true},
				{Name: `ringfence_dialer_attempts_total{job="dialer",result="gate_silent"}`, Ill: 30, Grows: true},
			},
			// One answer that did not come while nothing else was dialled.
			Calm: []Series{{Name: `ringfence_dialer_attempts_total{job="dialer",result="gate_silent"}`, Ill: 1, Grows: true, Once: true}},
		}, {
			Name: "CallsRepublished", Severity: Ticket,
			Expr:    `sum by (found) (increase(ringfence_dialer_overdue_orders_total{found=~"lost|over"}[1h])) > 0`,
			Summary: "Calls had to be ordered again because the order, or the news of its end, was lost", Description: "{{ $value | humanize }} in an hour that were {{ $labels.found }}: the dialer had never heard of them (lost), or calls not of their end (over).",
			Trial: []Series{{Name: `ringfence_dialer_overdue_orders_total{job="dialer",found="lost"}`, Ill: 2, Grows: true}},
			// A campaign that takes longer than a quarter of an hour.
			Calm: []Series{{Name: `ringfence_dialer_overdue_orders_total{job="dialer",found="waiting"}`, Ill: 100, Grows: true}},
		},
	}
}

func carrying() []Alert {
	return []Alert{
		{
			// Half open is not closed: between two rests one call at a time is let through.
			Name: "TrunkCircuitOpen", Severity: Page, For: "2m",
			Expr:    `max by (trunk) (ringfence_dialer_circuit_state{state="closed"}) == 0`,
			Summary: "A trunk's circuit is open on every dialer: nothing is dialled over it", Description: "Trunk {{ $labels.trunk }} failed several times in a row, and rests.",
			Trial: []Series{
				{Name: `ringfence_dialer_circuit_state{job="dialer",instance="a",trunk="sim",state="closed"}`, Well: 1},
				{Name: `ringfence_dialer_circuit_state{job="dialer",instance="b",trunk="sim",state="closed"}`, Well: 1},
			},
			// One dialer's own way to the trunk: the others take the calls.
			Calm: []Series{
				{Name: `ringfence_dialer_circuit_state{job="dialer",instance="a",trunk="sim",state="closed"}`, Well: 1},
				{Name: `ringfence_dialer_circuit_state{job="dialer",instance="b",trunk="sim",state="closed"}`, Well: 1, Ill: 1},
			},
		}, {
			Name: "CarrierRefuses", Severity: Page, For: "5m",
			Expr: `sum(rate(ringfence_dialer_attempts_total{result=~"refused|unknown"}[5m]))
/ sum(rate(ringfence_dialer_attempts_total{result=~"dialed|refused|unknown"}[5m])) > 0.2
and sum(increase(ringfence_dialer_attempts_total{result=~"refused|unknown"}[5m])) > 5`,
			Summary: "The carrier refuses more than a fifth of our calls", Description: "{{ $value | humanizePercentage }} of what was sent to a trunk was refused or not answered.",
			Trial: []Series{
				{Name: `ringfence_dialer_attempts_total{job="dialer",result="dialed"}`, Well: 60, Ill: 30, Grows: true},
				{Name: `ringfence_dialer_attempts_total{job="dialer",result="refused"}`, Ill: 30, Grows: true},
			},
			// Two of the night's three calls in ten minutes.
			Calm: []Series{
				{Name: `ringfence_dialer_attempts_total{job="dialer",result="dialed"}`, Ill: 0.05, Grows: true},
				{Name: `ringfence_dialer_attempts_total{job="dialer",result="refused"}`, Ill: 0.1, Grows: true},
			},
		}, {
			Name: "CallsBreakOff", Severity: Page, For: "5m",
			Expr: `sum(rate(calls_ended_total{` + brokeOff + `}[15m])) / sum(rate(calls_ended_total{direction="outbound"}[15m])) > 0.3
and sum(increase(calls_ended_total{` + brokeOff + `}[15m])) > 5`,
			Summary: "More than three in ten calls fail", Description: "{{ $value | humanizePercentage }} of the calls that ended had failed for no fault of the number's. The causes stand on the dashboard of the call path.",
			Trial: []Series{
				{Name: `calls_ended_total{job="calls",direction="outbound",status="completed",cause="normal_clearing"}`, Well: 60, Ill: 30, Grows: true},
				{Name: `calls_ended_total{job="calls",direction="outbound",status="failed",cause="network_out_of_order"}`, Ill: 30, Grows: true},
			},
			// A customer's list of numbers that do not exist.
			Calm: []Series{
				{Name: `calls_ended_total{job="calls",direction="outbound",status="completed",cause="normal_clearing"}`, Well: 60, Ill: 10, Grows: true},
				{Name: `calls_ended_total{job="calls",direction="outbound",status="failed",cause="unallocated_number"}`, Ill: 60, Grows: true},
			},
		}, {
			Name: "DialStateUnknown", Severity: Ticket,
			Expr:    `sum(increase(ringfence_dialer_attempts_total{result="unknown"}[1h])) > 0`,
			Summary: "It is not known whether some calls were dialled", Description: "{{ $value | humanize }} in an hour ended dial_state_unknown: the carrier did not say. Nobody is dialled again.",
			Trial: []Series{{Name: `ringfence_dialer_attempts_total{job="dialer",result="unknown"}`, Ill: 1, Grows: true}},
		}, {
			Name: "ChannelsFull", Severity: Ticket, For: "15m",
			Expr:    `sum(max by (trunk) (ringfence_dialer_slots)) / max(ringfence_dialer_channels > 0) > 0.9`,
			Summary: "The trunks are nearly full", Description: "{{ $value | humanizePercentage }} of the channels are taken. Calls begin to wait for room.",
			Trial: []Series{{Name: `ringfence_dialer_slots{job="dialer",trunk="sim"}`, Well: 10, Ill: 95}, {Name: `ringfence_dialer_channels{job="dialer"}`, Well: 100, Ill: 100}},
		}, {
			Name: "MediaLate", Severity: Ticket, For: "5m",
			Expr:    `sum(rate(ringfence_dialer_rtp_skipped_frames_total[5m])) > 0`,
			Summary: "A dialer is too slow for the audio of its calls", Description: "{{ $value | humanize }} frames of 20 ms a second are left out: people hear gaps.",
			Trial: []Series{{Name: `ringfence_dialer_rtp_skipped_frames_total{job="dialer"}`, Ill: 100, Grows: true}},
		}, {
			Name: "CallsCompletedIncomplete", Severity: Ticket, For: "5m",
			Expr: `sum(increase(calls_late_news_total[1h])) > 0.02 * sum(increase(calls_ended_total{status="completed"}[1h]))
and sum(increase(calls_late_news_total[1h])) > 0`,
			Summary: "call.completed goes out without its charge or its analysis", Description: "{{ $value | humanize }} charges or analyses came after the event in an hour. They show in GET only.",
			Trial: []Series{
				{Name: `calls_late_news_total{job="calls",kind="charge"}`, Ill: 10, Grows: true},
				{Name: `calls_ended_total{job="calls",direction="outbound",status="completed",cause="normal_clearing"}`, Well: 100, Ill: 100, Grows: true},
			},
		},
	}
}
