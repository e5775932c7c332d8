// Command billing-wallet decides what a workspace may spend: wallets, holds, the ledger and rates. Why a
// call ended is not its business.
package main

import (
	"context"
	"errors"
	"flag"
	"os"

	"github.com/google/uuid"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgwatch"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/billing-wallet/internal/confirming"
	"ringfence.dev/services/billing-wallet/internal/consumer"
	"ringfence.dev/services/billing-wallet/internal/holding"
	"ringfence.dev/services/billing-wallet/internal/httpapi"
	"ringfence.dev/services/billing-wallet/internal/reconciling"
	"ringfence.dev/services/billing-wallet/internal/settling"
	"ringfence.dev/services/billing-wallet/internal/store"
	"ringfence.dev/services/billing-wallet/migrations"
)

const (
	name   = "billing-wallet"
	schema = "billing_wallet"
)

func main() {
	var only uuid.UUID
	service.Main(name, service.Commands[Config]{Serve: serve, Migrate: migrate, Replay: replay, Further: []service.Command[Config]{{
		Name: "reconcile", Help: "compares all books with each other, prints every difference and ends: with status 1 when there is one",
		Flags: func(flags *flag.FlagSet) {
			flags.TextVar(&only, "workspace", uuid.Nil, "compares the books of the workspace with this `id` alone")
		},
		JSON: true,
		Run:  func(ctx context.Context, cfg Config) error { return reconcile(ctx, cfg, only) },
	}}})
}

// tracks are the schema's tables, in the order they are made.
func tracks() []pg.Migrations {
	return []pg.Migrations{outbox.Migrations, inbox.Migrations, {Name: schema, FS: migrations.FS}}
}

func serve(ctx context.Context, cfg Config) error {
	if cfg.UnconfirmedAfter <= 0 {
		return errors.New("UNCONFIRMED_AFTER must be more than zero")
	}
	if cfg.ReconcileEvery < 0 {
		return errors.New("RECONCILE_EVERY must not be less than zero")
	}
	tel, err := telemetry.Start(ctx, cfg.Telemetry, name)
	if err != nil {
		return err
	}
	defer tel.Close(ctx)
	keys, err := trust.New(name, cfg.Trust)
	if err != nil {
		return err
	}
	pool, err := pg.Open(ctx, cfg.Postgres, schema, tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	pgwatch.Pool(pool, tel.Metrics)
	bus, err := kafka.NewClient(cfg.Kafka, name, tel.Metrics)
	if err != nil {
		return err
	}
	defer bus.Close()

	relay := outbox.NewRelay(pool, bus, tel.Metrics, cfg.Outbox)
	st := store.New(pool)
	desk := holding.New(st, tel.Metrics)
	settler := settling.New(st, relay, tel.Metrics)
	asker := confirming.New(st, relay, cfg.UnconfirmedAfter, tel.Metrics)
	events := inbox.NewConsumer(name, cfg.Kafka, pool, consumer.New(st, settler.Soon).Handlers(), relay, tel.Metrics)
	routes, err := httpapi.New(st, desk).Routes(tel, keys)
	if err != nil {
		return err
	}
	server := httpserver.Server{Addr: cfg.HTTP.Addr, Handler: routes}
	tel.Ready("postgres", pool.Ping)
	return service.Run(ctx,
		service.Part{Name: "private port", Run: tel.Private},
		service.Part{Name: "outbox relay", Run: relay.Run},
		service.Part{Name: "settling", Run: settler.Run},
		service.Part{Name: "confirming", Run: asker.Run},
		service.Part{Name: "auditor", Run: reconciling.NewAuditor(st, cfg.ReconcileEvery, tel.Metrics).Run},
		service.Part{Name: "consumer", Run: events.Run},
		service.Part{Name: "http", Run: server.Run},
	)
}

func migrate(ctx context.Context, cfg Config) error {
	return pg.Migrate(ctx, cfg.Postgres.MigrateURL, schema, tracks()...)
}

func reconcile(ctx context.Context, cfg Config, only uuid.UUID) error {
	pool, err := pg.Open(ctx, cfg.Postgres, schema, tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	return reconciling.Walk{Store: store.New(pool), Out: os.Stdout, Progress: os.Stderr}.Run(ctx, only)
}

func replay(ctx context.Context, cfg Config, topic string) error {
	tel, err := telemetry.Start(ctx, cfg.Telemetry, name)
	if err != nil {
		return err
	}
	defer tel.Close(ctx)
	pool, err := pg.Open(ctx, cfg.Postgres, schema, tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	handlers := consumer.New(store.New(pool), func() {}).Handlers() // the running service settles
	return inbox.NewConsumer(name, cfg.Kafka, pool, handlers, nil, tel.Metrics).PutBack(ctx, topic, os.Stdout)
}
