// Command calls keeps what was asked for and what became of it.
package main

import (
	"context"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgwatch"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/calls/internal/asking"
	"ringfence.dev/services/calls/internal/call"
	"ringfence.dev/services/calls/internal/canceling"
	"ringfence.dev/services/calls/internal/completing"
	"ringfence.dev/services/calls/internal/consumer"
	"ringfence.dev/services/calls/internal/erasure"
	"ringfence.dev/services/calls/internal/freeing"
	"ringfence.dev/services/calls/internal/httpapi"
	"ringfence.dev/services/calls/internal/intake"
	"ringfence.dev/services/calls/internal/keeping"
	"ringfence.dev/services/calls/internal/linking"
	"ringfence.dev/services/calls/internal/republishing"
	"ringfence.dev/services/calls/internal/store"
	"ringfence.dev/services/calls/migrations"
)

// name is the service's, and its schema's.
const name = "calls"

func main() {
	service.Main(name, service.Commands[Config]{Serve: serve, Migrate: migrate, Replay: replay})
}

func tracks() []pg.Migrations {
	return []pg.Migrations{outbox.Migrations, inbox.Migrations, {Name: name, FS: migrations.FS}}
}

func migrate(ctx context.Context, cfg Config) error {
	return pg.Migrate(ctx, cfg.Postgres.MigrateURL, name, tracks()...)
}

func serve(ctx context.Context, cfg Config) error {
	tel, err := telemetry.Start(ctx, cfg.Telemetry, name)
	if err != nil {
		return err
	}
	defer tel.Close(ctx)
	keys, err := trust.New(name, cfg.Trust)
	if err != nil {
		return err
	}
	peers, err := asking.New(cfg.Peers, keys)
	if err != nil {
		return err
	}
	links, err := linking.New(cfg.Recordings)
	if err != nil {
		return err
	}
	pool, err := pg.Open(ctx, cfg.Postgres, name, tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	pgwatch.Pool(pool, tel.Metrics)
	tel.Ready("database", pool.Ping)
	bus, err := kafka.NewClient(cfg.Kafka, name, tel.Metrics)
	if err != nil {
		return err
	}
	defer bus.Close()

	st := store.New(pool)
	relay := outbox.NewRelay(pool, bus, tel.Metrics, cfg.Outbox)
	waits := call.Waits{Charge: cfg.ChargeWait, Analysis: cfg.AnalysisWait}
	api := httpapi.New(
		intake.New(cfg.Intake, st, peers, relay.Wake, relay.OldestAge, tel.Metrics),
		canceling.New(st, peers, relay.Wake),
		st, links, peers, relay.Wake,
	)
	server := httpserver.Server{Addr: cfg.HTTP.Addr, Handler: api.Handler(tel, keys)}
	return service.Run(ctx,
		service.Part{Name: "private port", Run: tel.Private},
		service.Part{Name: "outbox relay", Run: relay.Run},
		service.Part{Name: "completing", Run: completing.New(st, waits, relay.Wake).Run},
		service.Part{Name: "republishing", Run: republishing.New(st, cfg.RepublishAfter, relay.Wake, tel.Metrics).Run},
		service.Part{Name: "keeping", Run: keeping.New(st, cfg.Keeping).Run},
		service.Part{Name: "erasure", Run: erasure.NewJob(st, relay.Wake).Run},
		service.Part{Name: "freeing", Run: freeing.New(st, cfg.KeepKeys).Run},
		service.Part{Name: "consumer", Run: listen(cfg, pool, st, waits, relay, tel).Run},
		service.Part{Name: "http", Run: server.Run},
	)
}

func listen(cfg Config, pool *pgxpool.Pool, st *store.Store, waits call.Waits, relay *outbox.Relay, tel *telemetry.Telemetry) *inbox.Consumer {
	handlers := consumer.New(st, waits, relay.Wake, tel.Metrics).Handlers()
	return inbox.NewConsumer(name, cfg.Kafka, pool, handlers, relay, tel.Metrics)
}

// replay puts the parked records of one topic back. What they cause is published by the serving process.
func replay(ctx context.Context, cfg Config, topic string) error {
	tel, err := telemetry.Start(ctx, cfg.Telemetry, name)
	if err != nil {
		return err
	}
	defer tel.Close(ctx)
	pool, err := pg.Open(ctx, cfg.Postgres, name, tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	waits := call.Waits{Charge: cfg.ChargeWait, Analysis: cfg.AnalysisWait}
	return listen(cfg, pool, store.New(pool), waits, nil, tel).PutBack(ctx, topic, os.Stdout)
}
