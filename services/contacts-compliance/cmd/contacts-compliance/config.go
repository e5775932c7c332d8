package main

import (
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
)

// Config is the environment of contacts-compliance. It reads and writes no topic, so it knows no broker.
type Config struct {
	HTTP      httpserver.Config
	Postgres  pg.Config
	Trust     trust.Config
	Telemetry telemetry.Config
}
