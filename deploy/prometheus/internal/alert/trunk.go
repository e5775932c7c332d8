package alert

// trunks are those of SIP, each by itself: calls go over the others meanwhile, and nobody notices, but those who call in.
func trunks() []Alert {
	return []Alert{
		{
			Name: "SIPTrunkDown", Severity: Page, For: "5m",
			Expr: `max by (sip_trunk) (ringfence_dialer_sip_trunk_up) == 0
or max by (sip_trunk) (ringfence_dialer_sip_trunk_registered) == 0`,
			Summary: "A SIP trunk does not answer, or does not know where we are", Description: "{{ $labels.sip_trunk }} answers no dialer's OPTIONS, or takes no dialer's REGISTER: nobody who calls in over it reaches us.",
			Trial: []Series{
				{Name: `ringfence_dialer_sip_trunk_up{job="dialer",instance="a",sip_trunk="north"}`, Well: 1, Ill: 1},
				{Name: `ringfence_dialer_sip_trunk_registered{job="dialer",instance="a",sip_trunk="north"}`, Well: 1},
				{Name: `ringfence_dialer_sip_trunk_up{job="dialer",instance="a",sip_trunk="south"}`, Well: 1, Ill: 1},
			},
			// One dialer's own way there.
			Calm: []Series{
				{Name: `ringfence_dialer_sip_trunk_up{job="dialer",instance="a",sip_trunk="north"}`, Well: 1},
				{Name: `ringfence_dialer_sip_trunk_up{job="dialer",instance="b",sip_trunk="north"}`, Well: 1, Ill: 1},
			},
		}, {
			Name: "SIPTrunkRefuses", Severity: Ticket, For: "5m",
			Expr: `sum by (sip_trunk) (increase(ringfence_dialer_sip_invites_total{result!="answered"}[15m]))
/ sum by (sip_trunk) (increase(ringfence_dialer_sip_invites_total[15m])) > 0.5
and sum by (sip_trunk) (increase(ringfence_dialer_sip_invites_total{result!="answered"}[15m])) > 5`,
			Summary: "A SIP trunk refuses more than half of its calls", Description: "{{ $labels.sip_trunk }}: {{ $value | humanizePercentage }} were refused for its own trouble, or met silence. Others may take them.",
			Trial: []Series{
				{Name: `ringfence_dialer_sip_invites_total{job="dialer",instance="a",sip_trunk="north",result="answered"}`, Well: 10, Ill: 1, Grows: true},
				{Name: `ringfence_dialer_sip_invites_total{job="dialer",instance="a",sip_trunk="north",result="refused"}`, Ill: 10, Grows: true},
				{Name: `ringfence_dialer_sip_invites_total{job="dialer",instance="a",sip_trunk="south",result="answered"}`, Well: 10, Ill: 20, Grows: true},
			},
			// A call now and then, and a trunk that is used up for a moment.
			Calm: []Series{
				{Name: `ringfence_dialer_sip_invites_total{job="dialer",instance="a",sip_trunk="north",result="answered"}`, Well: 1, Ill: 0.1, Grows: true},
				{Name: `ringfence_dialer_sip_invites_total{job="dialer",instance="a",sip_trunk="north",result="refused"}`, Ill: 0.2, Grows: true},
			},
		},
	}
}
