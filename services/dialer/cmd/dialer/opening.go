package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/dialer/internal/consumer"
	"ringfence.dev/services/dialer/internal/replica"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/store/agentkeys"
	"ringfence.dev/services/dialer/internal/store/replicas"
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

// openPools opens the process's connections to Postgres. One of POSTGRES_MAX_CONNS is for heartbeats
// alone: they must not wait behind other work, or a busy process looks dead.
func openPools(ctx context.Context, cfg Config) (pools, error) {
	forWork, forBeats := cfg.Postgres, cfg.Postgres
	forWork.MaxConns = max(1, cmp.Or(cfg.Postgres.MaxConns, pg.DefaultMaxConns)-1)
	forBeats.MaxConns, forBeats.MigrateURL = 1, ""
	work, err := pg.Open(ctx, forWork, name, tracks()...)
	if err != nil {
		return pools{}, err
	}
	beats, err := pg.Open(ctx, forBeats, name)
	if err != nil {
		work.Close()
		return pools{}, err
	}
	return pools{work, beats}, nil
}

// secrets are what lies sealed.
type secrets struct {
	trunks *trunks.Store
	keys   *agentkeys.Store
}

// openSecrets keeps trunks and agents' keys, and brings what is sealed under the first sealing key.
func openSecrets(ctx context.Context, cfg Config, pool *pgxpool.Pool) (secrets, error) {
	box, err := seal.New(cfg.Sealing)
	if err != nil {
		return secrets{}, fmt.Errorf("read SEALING_KEYS: %w", err)
	}
	opened := secrets{trunks.New(pool, box), agentkeys.New(pool, box)}
	for what, reseal := range map[string]func(context.Context) (int, error){"passwords of trunks": opened.trunks.Reseal, "keys of agents": opened.keys.Reseal} {
		moved, err := reseal(ctx)
		if err != nil {
			slog.ErrorContext(ctx, "secrets stay under an old key", "secrets", what, "error", err)
		}
		if moved > 0 {
			slog.InfoContext(ctx, "secrets were sealed under the first key", "secrets", what, "moved", moved)
		}
	}
	return opened, nil
}

// newConsumer returns the consumer of this service's topics.
func newConsumer(
	cfg Config, pool *pgxpool.Pool, st *store.Store, relay *outbox.Relay, tel *telemetry.Telemetry, wakeDialing func(),
) *inbox.Consumer {
	handlers := consumer.New(st, consumer.Wakes{Dialing: wakeDialing, Relay: relay.Wake}, tel.Metrics).Handlers()
	return inbox.NewConsumer(name, cfg.Kafka, pool, handlers, relay, tel.Metrics)
}

// openReplica returns the job that stores this process's report.
func openReplica(reports *replicas.Store, report func() replica.Report) (*replica.Job, error) {
	owner, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make replica id: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read host name: %w", err)
	}
	put := func(ctx context.Context, r replica.Report) error { return reports.Put(ctx, owner, host, r) }
	return replica.NewJob(report, put, func(ctx context.Context) error { return reports.Remove(ctx, owner) }), nil
}
