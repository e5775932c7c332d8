package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/seal"
	"ringfence.dev/services/dialer/internal/consumer"
	"ringfence.dev/services/dialer/internal/replicas"
	"ringfence.dev/services/dialer/internal/store"
)

// openStore returns a store with a new instance id. So each start of the process counts as a new
// instance.
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

type secrets struct {
	trunks *store.Trunks
	keys   *store.AgentKeys
}

// openSecrets opens the stores of encrypted secrets. It encrypts all secrets again with the first
// sealing key, so that an operator can remove older keys.
func openSecrets(ctx context.Context, cfg Config, pool *pgxpool.Pool) (secrets, error) {
	box, err := seal.New(cfg.Sealing)
	if err != nil {
		return secrets{}, fmt.Errorf("read SEALING_KEYS: %w", err)
	}
	opened := secrets{store.NewTrunks(pool, box), store.NewAgentKeys(pool, box)}
	for what, reseal := range map[string]func(context.Context) (int, error){"passwords of trunks": opened.trunks.Reseal, "keys of agents": opened.keys.Reseal} {
		moved, err := reseal(ctx)
		if err != nil {
			slog.ErrorContext(ctx, "reseal of secrets failed", "secrets", what, "error", err)
		}
		if moved > 0 {
			slog.InfoContext(ctx, "secrets resealed", "secrets", what, "count", moved)
		}
	}
	return opened, nil
}

func handlers(st *store.Store, rt *app.Runtime, wakeDialing func()) inbox.Handlers {
	return consumer.New(st, consumer.Wakes{Dialing: wakeDialing, Relay: rt.Relay.Wake}, rt.Telemetry.Metrics).Handlers()
}

// openReplica returns the job that regularly stores this process's report. Operators read the
// reports.
func openReplica(reports *store.ReplicaReports, report func() replicas.Report) (*replicas.Job, error) {
	owner, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("make replica id: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("read host name: %w", err)
	}
	put := func(ctx context.Context, r replicas.Report) error { return reports.Put(ctx, owner, host, r) }
	return replicas.NewJob(report, put, func(ctx context.Context) error { return reports.Remove(ctx, owner) }), nil
}
