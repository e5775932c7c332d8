package main

import (
	"time"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/recordingstore"
	"ringfence.dev/services/calls/internal/callrequests"
	"ringfence.dev/services/calls/internal/peers"
	"ringfence.dev/services/calls/internal/retention"
)

type Config struct {
	app.Config
	Peers     peers.Config
	Intake    callrequests.Config
	Retention retention.Config
	// Recordings contains the settings of the object storage for recordings. The dialer, which
	// uploads the recordings, has the same settings.
	Recordings recordingstore.Storage

	// RepublishAfter is the time after which an overdue call request is published again, and an
	// overdue call is reported to the dialer.
	RepublishAfter time.Duration `env:"REPUBLISH_AFTER" envDefault:"15m" help:"Time after which the dialer is asked again about a call request or a call that has not ended, because an event could be lost. The time starts when the request is due, or when the longest permitted call would have ended. The dialer never dials a request twice. If it is short, each waiting request causes many events."`
	// ChargeWait and AnalysisWait limit how long the event call.completed waits for the charge and
	// for the analysis.
	ChargeWait   time.Duration `env:"CHARGE_WAIT" envDefault:"5s" help:"Maximum time that the event call.completed waits for the charge, from the end of the call. If the charge arrives later, the event has no charge."`
	AnalysisWait time.Duration `env:"ANALYSIS_WAIT" envDefault:"10s" help:"Maximum time that the event call.completed waits for the analysis (outcome, summary and transcript), from the end of the call. If the analysis arrives later, the event does not contain it, and the opt-in event call.analyzed follows."`
	// KeepKeys is the time for which an idempotency key is kept after its request has ended.
	KeepKeys time.Duration `env:"IDEMPOTENCY_KEEP" envDefault:"720h" help:"How long an idempotency key is kept after the end of its call request. After that time, a POST with the same key creates a new request."`
}
