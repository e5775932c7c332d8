package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/seal"
	"ringfence.dev/services/webhook-dispatcher/internal/dispatch"
	"ringfence.dev/services/webhook-dispatcher/internal/retention"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

// Config is the configuration of webhook-dispatcher, read from the environment.
type Config struct {
	app.Config
	Seal      seal.Config
	Sending   dispatch.ClientConfig
	Dispatch  dispatch.Config
	Retention retention.Config
}

// newBox returns the seal.Box that encrypts and decrypts the secrets of subscriptions.
func (c Config) newBox() (*seal.Box, error) {
	box, err := seal.New(c.Seal)
	if err != nil {
		return nil, fmt.Errorf("read SEALING_KEYS: %w", err)
	}
	return box, nil
}

func (c Config) check() error {
	var faults []error
	delays := c.Dispatch.RetryDelays
	if len(delays) == 0 || !slices.IsSorted(delays) || delays[0] <= 0 {
		faults = append(faults, errors.New("RETRY_DELAYS must be durations above zero in ascending order"))
	}
	if c.Dispatch.Lease-store.StartLimit(c.Dispatch.Lease) < c.Sending.Timeout {
		faults = append(faults, fmt.Errorf("WEBHOOK_LEASE (%s) must be longer than WEBHOOK_TIMEOUT (%s) by a fifth of the lease, or by 5s: otherwise two processes can send the same attempt",
			c.Dispatch.Lease, c.Sending.Timeout))
	}
	if c.Sending.Timeout <= 0 || c.Dispatch.Poll <= 0 || c.Dispatch.MaxInFlight < 1 || c.Sending.MaxPerHost < 1 {
		faults = append(faults, errors.New("WEBHOOK_TIMEOUT, WEBHOOK_POLL, WEBHOOK_MAX_IN_FLIGHT and WEBHOOK_MAX_PER_HOST must be above zero"))
	}
	if c.Retention.Keep < 24*time.Hour {
		faults = append(faults, errors.New("WEBHOOK_KEEP must be at least 24h: history is deleted by whole days"))
	}
	return errors.Join(faults...)
}
