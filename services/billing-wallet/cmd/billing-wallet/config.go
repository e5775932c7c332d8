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
	UnconfirmedAfter time.Duration `env:"UNCONFIRMED_AFTER" envDefault:"2m" help:"age at which a hold whose call request has not arrived is reported to the service calls; also the time between two such reports"`
	// ReconcileEvery is the time between two reconciliations of a wallet. If ReconcileEvery is 0,
	// only the operator's command reconcile compares wallets.
	ReconcileEvery time.Duration `env:"RECONCILE_EVERY" envDefault:"1h" help:"time between two reconciliations of each wallet; 0: only the command reconcile compares"`
}
