package main

import (
	"time"

	"ringfence.dev/libs/app"
)

type Config struct {
	app.Config

	// UnconfirmedAfter is the age at which billing-wallet reports an unconfirmed hold to the
	// service `calls`. A hold is unconfirmed until the event `requested` of its call request
	// arrives. billing-wallet repeats the report at the interval UnconfirmedAfter.
	UnconfirmedAfter time.Duration `env:"UNCONFIRMED_AFTER" envDefault:"2m" help:"Age at which a wallet hold is reported to the calls service if no event of its call request has arrived. The report is repeated at this interval. The calls service then publishes the request again, or the hold is released. If it is short, late events cause unnecessary reports. If it is long, credit stays reserved after a failed POST."`
	// ReconcileEvery is the time between two reconciliations of a wallet. If ReconcileEvery is 0,
	// only the operator's command reconcile compares wallets.
	ReconcileEvery time.Duration `env:"RECONCILE_EVERY" envDefault:"1h" help:"Interval at which the ledger of each wallet is compared with its balance and its holds. 0 means never; then only the command reconcile compares."`
}
