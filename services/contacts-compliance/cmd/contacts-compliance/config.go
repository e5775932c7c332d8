package main

import (
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/contacts-compliance/internal/pruning"
	"ringfence.dev/services/contacts-compliance/internal/witnessing"
)

// Config is the environment of contacts-compliance.
type Config struct {
	HTTP      httpserver.Config
	Postgres  pg.Config
	Kafka     kafka.Config
	Outbox    outbox.Config
	Trust     trust.Config
	Telemetry telemetry.Config
	Keeping   pruning.Config
	Witness   witnessing.Config

	ConsentKeys []string `env:"CONSENT_KEYS" envSeparator:"," help:"keys of the consent records' chains as <id>=<base64 of 32 bytes or more>,…; the first signs, all check; empty: one made from SIGNING_KEY"`
}
