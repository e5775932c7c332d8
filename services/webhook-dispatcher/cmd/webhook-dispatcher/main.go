// Command webhook-dispatcher owns that every event reaches every subscriber that should have it.
package main

import (
	"context"
	"fmt"
	"os"

	"ringfence.dev/libs/guard"
	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgwatch"
	"ringfence.dev/libs/seal"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/webhook-dispatcher/internal/consumer"
	"ringfence.dev/services/webhook-dispatcher/internal/dispatch"
	"ringfence.dev/services/webhook-dispatcher/internal/httpapi"
	"ringfence.dev/services/webhook-dispatcher/internal/resealing"
	"ringfence.dev/services/webhook-dispatcher/internal/retention"
	"ringfence.dev/services/webhook-dispatcher/internal/sending"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
	"ringfence.dev/services/webhook-dispatcher/migrations"
)

const (
	name   = "webhook-dispatcher"
	schema = "webhook_dispatcher"
)

func main() {
	service.Main(name, service.Commands[Config]{Serve: serve, Migrate: migrate, Replay: replay, Further: []service.Command[Config]{
		{Name: "reseal", Help: "seals every secret under the first of SEALING_KEYS and ends; again after a fault", JSON: true, Run: reseal},
	}})
}

// tracks are the migrations this schema is made of.
func tracks() []pg.Migrations {
	return []pg.Migrations{outbox.Migrations, inbox.Migrations, {Name: schema, FS: migrations.FS}}
}

func serve(ctx context.Context, cfg Config) error {
	if err := cfg.check(); err != nil {
		return err
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
	box, err := seal.New(cfg.Seal)
	if err != nil {
		return fmt.Errorf("read SEALING_KEYS: %w", err)
	}
	reach := guard.New(cfg.Sending.AllowNetworks)
	client, err := sending.New(cfg.Sending, reach)
	if err != nil {
		return err
	}
	pool, err := pg.Open(ctx, cfg.Postgres, schema, tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	pgwatch.Pool(pool, tel.Metrics)
	tel.Ready("postgres", pool.Ping)
	bus, err := kafka.NewClient(cfg.Kafka, name, tel.Metrics)
	if err != nil {
		return err
	}
	defer bus.Close()

	st := store.New(pool, box)
	relay := outbox.NewRelay(pool, bus, tel.Metrics, cfg.Outbox) // for what the consumer parks
	dispatcher := dispatch.New(st, client, cfg.Dispatch, tel.Metrics)
	retentionJob := retention.New(st, cfg.Retention)
	handlers := consumer.New(st, consumer.Wakes{Dispatcher: dispatcher.Wake, Relay: relay.Wake}).Handlers()
	events := inbox.NewConsumer(name, cfg.Kafka, pool, handlers, relay, tel.Metrics)
	routes := httpapi.New(st, reach.Reachable, dispatcher.Wake, retentionJob.Wake).Routes(keys, tel)
	server := httpserver.Server{Addr: cfg.HTTP.Addr, Handler: routes}
	return service.Run(ctx,
		service.Part{Name: "private port", Run: tel.Private},
		service.Part{Name: "outbox relay", Run: relay.Run},
		service.Part{Name: "retention", Run: retentionJob.Run},
		service.Part{Name: "dispatcher", Run: dispatcher.Run},
		service.Part{Name: "consumer", Run: events.Run},
		service.Part{Name: "http", Run: server.Run},
	)
}

func migrate(ctx context.Context, cfg Config) error {
	return pg.Migrate(ctx, cfg.Postgres.MigrateURL, schema, tracks()...)
}

// reseal brings every secret under the first sealing key, beside the serving replicas.
func reseal(ctx context.Context, cfg Config) error {
	box, err := seal.New(cfg.Seal)
	if err != nil {
		return fmt.Errorf("read SEALING_KEYS: %w", err)
	}
	pool, err := pg.Open(ctx, cfg.Postgres, schema, tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	return resealing.Walk{Store: store.New(pool, box), Out: os.Stdout, Progress: os.Stderr}.Run(ctx)
}

// replay puts parked records back; the running service sends what comes of them.
func replay(ctx context.Context, cfg Config, topic string) error {
	tel, err := telemetry.Start(ctx, cfg.Telemetry, name)
	if err != nil {
		return err
	}
	defer tel.Close(ctx)
	box, err := seal.New(cfg.Seal)
	if err != nil {
		return fmt.Errorf("read SEALING_KEYS: %w", err)
	}
	pool, err := pg.Open(ctx, cfg.Postgres, schema, tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	handlers := consumer.New(store.New(pool, box), consumer.Wakes{Dispatcher: func() {}, Relay: func() {}}).Handlers()
	return inbox.NewConsumer(name, cfg.Kafka, pool, handlers, nil, tel.Metrics).PutBack(ctx, topic, os.Stdout)
}
