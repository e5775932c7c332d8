package main

import (
	"time"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/services/calls/internal/callrequests"
	"ringfence.dev/services/calls/internal/calls"
	"ringfence.dev/services/calls/internal/peers"
)

// Config is the environment of calls.
type Config struct {
	app.Config
	Peers   peers.Config
	Intake  callrequests.Config
	Keeping calls.RetentionConfig
	// Recordings is where recordings lie; the dialer has the same.
	Recordings recordingstore.Storage

	// RepublishAfter is how long past its time a request may stay queued before it is ordered again.
	RepublishAfter time.Duration `env:"REPUBLISH_AFTER" envDefault:"15m" help:"how long past its time a queued request is ordered again"`
	// ChargeWait and AnalysisWait bound how long call.completed waits for each.
	ChargeWait   time.Duration `env:"CHARGE_WAIT" envDefault:"5s" help:"how long call.completed waits for the charge"`
	AnalysisWait time.Duration `env:"ANALYSIS_WAIT" envDefault:"10s" help:"how long call.completed waits for the analysis"`
	// KeepKeys is how long an idempotency key outlives its request's end.
	KeepKeys time.Duration `env:"IDEMPOTENCY_KEEP" envDefault:"720h" help:"how long an idempotency key outlives the end of its request"`
}
