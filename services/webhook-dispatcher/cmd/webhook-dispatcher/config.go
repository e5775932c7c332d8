package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/webhook-dispatcher/internal/dispatch"
	"ringfence.dev/services/webhook-dispatcher/internal/retention"
	"ringfence.dev/services/webhook-dispatcher/internal/sending"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// Config is the environment of webhook-dispatcher.
type Config struct {
	HTTP      httpserver.Config
	Postgres  pg.Config
	Kafka     kafka.Config
	Outbox    outbox.Config
	Trust     trust.Config
	Telemetry telemetry.Config
	Seal      seal.Config
	Sending   sending.Config
	Dispatch  dispatch.Config
	Retention retention.Config
}

// check finds what cannot work together.
func (c Config) check() error {
	var faults []error
	delays := c.Dispatch.RetryDelays
	if len(delays) == 0 || !slices.IsSorted(delays) || delays[0] <= 0 {
		faults = append(faults, errors.New("RETRY_DELAYS must be rising durations above zero"))
	}
	if c.Dispatch.Lease-store.StartLimit(c.Dispatch.Lease) < c.Sending.Timeout {
		faults = append(faults, fmt.Errorf("WEBHOOK_LEASE (%s) must be longer than WEBHOOK_TIMEOUT (%s) by a fifth of itself, or by 5s: two processes would send the same attempt",
			c.Dispatch.Lease, c.Sending.Timeout))
	}
	if c.Sending.Timeout <= 0 || c.Dispatch.Poll <= 0 || c.Dispatch.MaxInFlight < 1 || c.Sending.MaxPerHost < 1 {
		faults = append(faults, errors.New("WEBHOOK_TIMEOUT, WEBHOOK_POLL, WEBHOOK_MAX_IN_FLIGHT and WEBHOOK_MAX_PER_HOST must be above zero"))
	}
	if c.Retention.Keep < 24*time.Hour {
		faults = append(faults, errors.New("WEBHOOK_KEEP must be a day (24h) or more: history goes by days"))
	}
	return errors.Join(faults...)
}
