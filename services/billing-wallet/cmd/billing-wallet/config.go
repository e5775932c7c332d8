package main

import (
	"time"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
)

// Config is billing-wallet's environment.
type Config struct {
	HTTP      httpserver.Config
	Postgres  pg.Config
	Kafka     kafka.Config
	Outbox    outbox.Config
	Trust     trust.Config
	Telemetry telemetry.Config

	// UnconfirmedAfter is the age at which calls is asked about a hold without its request, and the time between two questions.
	UnconfirmedAfter time.Duration `env:"UNCONFIRMED_AFTER" envDefault:"2m" help:"age at which calls is asked about a hold whose request was never seen, and the time between two questions"`
	// ReconcileEvery is how often the books of each wallet are compared; zero: only by command.
	ReconcileEvery time.Duration `env:"RECONCILE_EVERY" envDefault:"1h" help:"how often the books of each wallet are compared beside the service; 0: only by the command reconcile"`
}
