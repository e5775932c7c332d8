package board

func compliance() Board {
	return Board{
		UID: "ringfence-compliance", Title: "4 Compliance", About: "Who may be called is asked, answered and on record; who objected is kept to.",
		Rows: []Row{
			{"Laws", []Panel{
				{Title: "Chains of consent that shrank (1 h)", About: "Somebody changed records in the database. Always zero.", Unit: "short", Number: true, Warn: 1, Bad: 1, Queries: one(`sum(increase(contacts_consent_chains_shrunk_total[1h]))`, ""), Alerts: []string{"ConsentChainBroken"}},
				{Title: "Heads not witnessed (1 h)", Unit: "short", Number: true, Warn: 1, Bad: 10, Queries: one(`sum(increase(contacts_consent_witness_faults_total[1h]))`, ""), Alerts: []string{"ConsentUnwitnessed"}},
				{Title: "Opt-outs not on record yet", About: "Heard in calls; until they are on record the dialer itself keeps to them.", Unit: "short", Number: true, Warn: 1, Bad: 5, Queries: one(`max(ringfence_dialer_untold_opt_outs)`, ""), Alerts: []string{"OptOutsUntold"}},
				{Title: "Erasures told of again (1 h)", Unit: "short", Number: true, Warn: 1, Bad: 5, Queries: one(`sum(increase(contacts_erasures_told_again_total[1h]))`, ""), Alerts: []string{"ErasuresStuck"}},
				{Title: "Clocks apart", About: "The most that any process and the database differ.", Unit: "s", Number: true, Warn: 0.5, Bad: 2, Queries: one(`max(abs(postgres_clock_offset_seconds))`, ""), Alerts: []string{"ClockSkewed"}},
				{Title: "Dials stopped by a silent gate", Unit: "cps", Number: true, Warn: 0.01, Bad: 1, Queries: one(rate(`ringfence_dialer_attempts_total{result="gate_silent"}`, ""), ""), Alerts: []string{"GateSilent"}},
			}},
			{"Decisions", []Panel{
				{Title: "At POST, by result", Unit: "cps", Stacked: true, Queries: one(rate(`contacts_decisions_total{stage="precheck"}`, "result"), "{{result}}")},
				{Title: "At dial time, by result", Unit: "cps", Stacked: true, Queries: one(rate(`contacts_decisions_total{stage="dial"}`, "result"), "{{result}}")},
				{Title: "Refused and put off, by rule", About: "Which gate was shut.", Unit: "cps", Stacked: true, Queries: one(rate(`contacts_decisions_total{rule!="none"}`, "rule"), "{{rule}}")},
				{Title: "How long an answer takes", About: "Questions of calls and dialer. A point leads to its trace.", Unit: "s", Warn: 0.1, Bad: 2, Traces: true, Queries: quantiles("http_request_duration_seconds", `{job="contacts-compliance"}`), Alerts: []string{"GateSilent"}},
				{Title: "Dials blocked or put off", Unit: "cps", Stacked: true, Queries: one(rate(`ringfence_dialer_attempts_total{result=~"blocked|rescheduled"}`, "result"), "{{result}}")},
				{Title: "Clocks", About: "How far the database's clock is ahead of each process's: one line apart is its node, all of them the database.", Unit: "s", Signed: true, Queries: one(`postgres_clock_offset_seconds`, "{{job}} {{instance}}"), Alerts: []string{"ClockSkewed"}},
			}},
		},
	}
}

func wallet() Board {
	return Board{
		UID: "ringfence-wallet", Title: "5 Wallet", About: "Does money add up, and is nobody's credit held for nothing?",
		Rows: []Row{
			{"Laws", []Panel{
				{Title: "Differences in the books", About: "Always zero.", Unit: "short", Number: true, Warn: 1, Bad: 1, Queries: one(`max(billing_wallet_book_differences)`, ""), Alerts: []string{"WalletBooksDiffer"}},
				{Title: "Books last compared", About: "The wallet that was longest ago.", Unit: "s", Number: true, Warn: 7200, Bad: 10800, Queries: one(`max(billing_wallet_books_age_seconds)`, ""), Alerts: []string{"WalletBooksUnchecked"}},
				{Title: "Oldest end that is not settled", Unit: "s", Number: true, Warn: 30, Bad: 900, Queries: one(`max(billing_wallet_oldest_verdict_seconds)`, ""), Alerts: []string{"WalletHoldsStuck"}},
				{Title: "Oldest hold without a request", Unit: "s", Number: true, Warn: 240, Bad: 900, Queries: one(`max(billing_wallet_oldest_unconfirmed_seconds)`, ""), Alerts: []string{"WalletHoldsStuck"}},
				{Title: "Ends that came too late (1 h)", About: "The hold had been settled otherwise.", Unit: "short", Number: true, Warn: 1, Bad: 10, Queries: one(`sum(increase(billing_wallet_late_settlements_total{kind=~"capture_after_release|second_capture|unknown_hold"}[1h]))`, ""), Alerts: []string{"WalletLateSettlement"}},
				{Title: "Open holds", Unit: "short", Number: true, Queries: one(`max(billing_wallet_open_holds)`, "")},
			}},
			{"Money on its way", []Panel{
				{Title: "Holds by result", Unit: "cps", Stacked: true, Queries: one(rate("billing_wallet_holds_total", "result"), "{{result}}")},
				{Title: "Settled: captured and released", Unit: "cps", Stacked: true, Queries: one(rate("billing_wallet_settlements_total", "result"), "{{result}}"), Alerts: []string{"WalletHoldsStuck"}},
				{Title: "Open holds, and those without a request", Unit: "short", Queries: []Query{{`max(billing_wallet_open_holds)`, "open"}, {`max(billing_wallet_unconfirmed_holds)`, "without a request"}}, Alerts: []string{"WalletHoldsStuck"}},
				{Title: "calls was asked about a hold", Unit: "eps", Queries: one(rate("billing_wallet_unconfirmed_total", ""), "questions"), Alerts: []string{"WalletHoldsStuck"}},
				{Title: "News that changed nothing", Unit: "eps", Stacked: true, Queries: one(rate("billing_wallet_late_settlements_total", "kind"), "{{kind}}"), Alerts: []string{"WalletLateSettlement"}},
				{Title: "How long a hold takes", About: "The question of calls. A point leads to its trace.", Unit: "s", Warn: 0.1, Bad: 1, Traces: true, Queries: quantiles("http_request_duration_seconds", `{job="billing-wallet"}`)},
			}},
		},
	}
}
