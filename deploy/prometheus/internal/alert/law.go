package alert

// laws are breaches of what must never be, and of what would make one unseen. Their counters stand at zero.
func laws() []Alert {
	return []Alert{
		{
			Name: "CallSlotsLeaked", Severity: Ticket,
			Expr:    `sum by (kind) (increase(ringfence_dialer_leaked_slots_total{kind="leaked"}[15m])) > 0`,
			Summary: "A place on a trunk outlived its call", Description: "{{ $value | humanize }} places were found taken by nobody and given back: a fault in the dialer.",
			Trial: []Series{{Name: `ringfence_dialer_leaked_slots_total{job="dialer",kind="leaked"}`, Ill: 1, Grows: true}},
		}, {
			Name: "WalletBooksDiffer", Severity: Page, For: "1m",
			Expr:    `max(billing_wallet_book_differences) > 0`,
			Summary: "Money does not add up", Description: "{{ $value }} differences between ledger, holds and balances.",
			Trial: []Series{{Name: `billing_wallet_book_differences{job="billing-wallet"}`, Ill: 1}},
		}, {
			Name: "WalletBooksUnchecked", Severity: Ticket, For: "10m",
			Expr:    `max(billing_wallet_books_age_seconds) > <3h>`,
			Summary: "The books of some wallet have not been compared for hours", Description: "The longest ago is {{ $value | humanizeDuration }}.",
			Trial: []Series{{Name: `billing_wallet_books_age_seconds{job="billing-wallet"}`, Well: 60, Ill: 20000}},
		}, {
			Name: "WalletLateSettlement", Severity: Ticket,
			Expr:    `sum by (kind) (increase(billing_wallet_late_settlements_total{kind=~"capture_after_release|second_capture|unknown_hold"}[1h])) > 0`,
			Summary: "A call ended whose hold was settled already, or never was", Description: "{{ $value | humanize }} times {{ $labels.kind }} in an hour: somebody was not charged for a call.",
			Trial: []Series{{Name: `billing_wallet_late_settlements_total{job="billing-wallet",kind="capture_after_release"}`, Ill: 1, Grows: true}},
		}, {
			Name: "WalletHoldsStuck", Severity: Page, For: "5m",
			Expr:    `max(billing_wallet_oldest_unconfirmed_seconds) > <15m> or max(billing_wallet_oldest_verdict_seconds) > <15m>`,
			Summary: "Customers' credit is held and not given back", Description: "A hold has waited {{ $value | humanizeDuration }} for the news that settles it.",
			Trial: []Series{{Name: `billing_wallet_oldest_unconfirmed_seconds{job="billing-wallet"}`, Ill: 2000}, {Name: `billing_wallet_oldest_verdict_seconds{job="billing-wallet"}`}},
		}, {
			Name: "ConsentChainBroken", Severity: Page,
			Expr:    `sum(increase(contacts_consent_chains_shrunk_total[1h])) > 0`,
			Summary: "Consent records were removed in the database", Description: "{{ $value | humanize }} chains of consent records are shorter than they were: the proof of who may be called is damaged.",
			Trial: []Series{{Name: `contacts_consent_chains_shrunk_total{job="contacts-compliance"}`, Ill: 1, Grows: true}},
		}, {
			Name: "ConsentUnwitnessed", Severity: Ticket, For: "10m",
			Expr:    `sum(increase(contacts_consent_witness_faults_total[10m])) > 0`,
			Summary: "The heads of the consent records cannot be written outside the database", Description: "{{ $value | humanize }} writings failed: meanwhile nobody could tell if the newest records were undone.",
			Trial: []Series{{Name: `contacts_consent_witness_faults_total{job="contacts-compliance"}`, Ill: 1, Grows: true}},
		}, {
			Name: "OptOutsUntold", Severity: Page, For: "5m",
			Expr:    `max(ringfence_dialer_untold_opt_outs) > 0`,
			Summary: "People asked in calls not to be called again, and it is not on record", Description: "{{ $value }} opt-outs wait for contacts-compliance. The dialer itself dials nobody at these numbers.",
			Trial: []Series{{Name: `ringfence_dialer_untold_opt_outs{job="dialer"}`, Ill: 3}},
		}, {
			Name: "ErasuresStuck", Severity: Ticket,
			Expr:    `sum(increase(contacts_erasures_told_again_total[1h])) > 0`,
			Summary: "A person asked to be erased and some service has not done so", Description: "{{ $value | humanize }} erasures were told of again in an hour.",
			Trial: []Series{{Name: `contacts_erasures_told_again_total{job="contacts-compliance"}`, Ill: 1, Grows: true}},
		}, {
			Name: "ClockSkewed", Severity: Page, For: "5m",
			Expr:    `max by (job, instance) (abs(postgres_clock_offset_seconds)) > 2`,
			Summary: "Two clocks are more than two seconds apart", Description: "{{ $labels.job }} on {{ $labels.instance }} and the database differ by {{ $value }} s. Calling windows and signatures are judged by clocks.",
			Trial: []Series{{Name: `postgres_clock_offset_seconds{job="calls",instance="a"}`, Well: 0.01, Ill: -7}},
		}, {
			Name: "RecordsLost", Severity: Page,
			Expr:    `sum by (job, topic) (increase(inbox_data_loss_total[1h])) > 0`,
			Summary: "Kafka no longer has records that were acknowledged", Description: "{{ $labels.job }} found {{ $labels.topic }} shorter than what it had read of it, and reads from the beginning.",
			Trial: []Series{{Name: `inbox_data_loss_total{job="calls",topic="dial-events.v1"}`, Ill: 1, Grows: true}},
		},
	}
}
