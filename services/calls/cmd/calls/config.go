package main

import (
	"time"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/recording"
	"ringfence.dev/services/calls/internal/asking"
	"ringfence.dev/services/calls/internal/intake"
	"ringfence.dev/services/calls/internal/keeping"
)

// Config is the environment of calls.
type Config struct {
	app.Config
	Peers   asking.Config
	Intake  intake.Config
	Keeping keeping.Config
	// Recordings is where recordings lie; the dialer has the same.
	Recordings recording.Storage

	// RepublishAfter is how long past its time a request may stay queued before it is ordered again.
	RepublishAfter time.Duration `env:"REPUBLISH_AFTER" envDefault:"15m" help:"how long past its time a queued request is ordered again"`
	// ChargeWait and AnalysisWait bound how long call.completed waits for each.
	ChargeWait   time.Duration `env:"CHARGE_WAIT" envDefault:"5s" help:"how long call.completed waits for the charge"`
	AnalysisWait time.Duration `env:"ANALYSIS_WAIT" envDefault:"10s" help:"how long call.completed waits for the analysis"`
	// KeepKeys is how long an idempotency key outlives its request's end.
	KeepKeys time.Duration `env:"IDEMPOTENCY_KEEP" envDefault:"720h" help:"how long an idempotency key outlives the end of its request"`
}
