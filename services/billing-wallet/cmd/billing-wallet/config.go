package main

import (
	"time"

	"ringfence.dev/libs/app"
)

// Config is billing-wallet's environment.
type Config struct {
	app.Config

	// UnconfirmedAfter is the age at which calls is asked about a hold without its request, and the time between two questions.
	UnconfirmedAfter time.Duration `env:"UNCONFIRMED_AFTER" envDefault:"2m" help:"age at which calls is asked about a hold whose request was never seen, and the time between two questions"`
	// ReconcileEvery is how often the books of each wallet are compared; zero: only by command.
	ReconcileEvery time.Duration `env:"RECONCILE_EVERY" envDefault:"1h" help:"how often the books of each wallet are compared beside the service; 0: only by the command reconcile"`
}
