package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/dialer/internal/consumer"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/store/trunks"
)

// openStore is the store as a new instance: every start of the process is another.
func openStore(cfg Config, pool *pgxpool.Pool) (*store.Store, error) {
	instance, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make instance id: %w", err)
	}
	return store.New(pool, instance, store.Timing{
		InstanceLease: cfg.InstanceLease, ClaimLease: cfg.ClaimLease, QueueLimit: cfg.QueueLimit, CapacityLimit: cfg.CapacityLimit,
		RingLimit: cfg.RingLimit, WatchdogGrace: cfg.WatchdogGrace,
	}), nil
}

// openTrunks keeps trunks, and brings their passwords under the first sealing key.
func openTrunks(ctx context.Context, cfg Config, pool *pgxpool.Pool) (*trunks.Store, error) {
	box, err := seal.New(cfg.Sealing)
	if err != nil {
		return nil, fmt.Errorf("read SEALING_KEYS: %w", err)
	}
	lines := trunks.New(pool, box)
	moved, err := lines.Reseal(ctx)
	if err != nil {
		slog.ErrorContext(ctx, "passwords of trunks stay under an old key", "error", err)
	}
	if moved > 0 {
		slog.InfoContext(ctx, "passwords of trunks were sealed under the first key", "trunks", moved)
	}
	return lines, nil
}

func listen(cfg Config, pool *pgxpool.Pool, st *store.Store, relay *outbox.Relay, tel *telemetry.Telemetry, wakes ...func()) *inbox.Consumer {
	return inbox.NewConsumer(name, cfg.Kafka, pool, consumer.New(st).Handlers(), relay, tel.Metrics, wakes...)
}
