// Command contacts-compliance decides who may be called, when, and why.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgwatch"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/contacts-compliance/internal/consumer"
	"ringfence.dev/services/contacts-compliance/internal/erasing"
	"ringfence.dev/services/contacts-compliance/internal/gating"
	"ringfence.dev/services/contacts-compliance/internal/httpapi"
	"ringfence.dev/services/contacts-compliance/internal/importing"
	"ringfence.dev/services/contacts-compliance/internal/ledger"
	"ringfence.dev/services/contacts-compliance/internal/pack"
	"ringfence.dev/services/contacts-compliance/internal/pruning"
	"ringfence.dev/services/contacts-compliance/internal/store"
	"ringfence.dev/services/contacts-compliance/internal/store/archive"
	"ringfence.dev/services/contacts-compliance/internal/verifying"
	"ringfence.dev/services/contacts-compliance/internal/window"
	"ringfence.dev/services/contacts-compliance/internal/witnessing"
	"ringfence.dev/services/contacts-compliance/migrations"
)

const (
	name   = "contacts-compliance"
	schema = "contacts_compliance"
)

func main() {
	service.Main(name, service.Commands[Config]{Serve: serve, Migrate: migrate, Replay: replay, Further: []service.Command[Config]{{
		Name: "verify", Help: "walks over every chain of consent records and names the first row of each that is not as it was written",
		JSON: true, Run: verify,
	}}})
}

func tracks() []pg.Migrations {
	return []pg.Migrations{outbox.Migrations, inbox.Migrations, {Name: schema, FS: migrations.FS}}
}

func migrate(ctx context.Context, cfg Config) error {
	return pg.Migrate(ctx, cfg.Postgres.MigrateURL, schema, tracks()...)
}

func verify(ctx context.Context, cfg Config) error {
	chains, err := ledger.NewKeys(cfg.ConsentKeys, cfg.Trust.SigningKey)
	if err != nil {
		return err
	}
	cfg.Postgres.MigrateURL = "" // it only reads
	pool, err := pg.Open(ctx, cfg.Postgres, schema, tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	return verifying.Run(ctx, archive.New(pool, chains), chains, cfg.Witness.Path, os.Stdout)
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
	packs, err := pack.Embedded()
	if err != nil {
		return err
	}
	for _, p := range packs.Ending(window.DateOf(time.Now().AddDate(0, 0, 180))) {
		slog.WarnContext(ctx, "a policy pack comes to its end: after that day it refuses every call", "pack", p.Name, "covers_until", p.CoversUntil.String())
	}
	pool, err := pg.Open(ctx, cfg.Postgres, schema, tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	pgwatch.Pool(pool, tel.Metrics)
	tel.Ready("postgres", pool.Ping)

	chains, err := ledger.NewKeys(cfg.ConsentKeys, cfg.Trust.SigningKey)
	if err != nil {
		return err
	}
	if len(cfg.ConsentKeys) == 0 {
		slog.WarnContext(ctx, "the consent records are signed under a key made from SIGNING_KEY: set CONSENT_KEYS, or they cannot be verified once that one is rotated")
	}
	bus, err := kafka.NewClient(cfg.Kafka, name, tel.Metrics)
	if err != nil {
		return err
	}
	defer bus.Close()
	st, records := store.New(pool, chains), archive.New(pool, chains)
	importer, relay := importing.New(st), outbox.NewRelay(pool, bus, tel.Metrics, cfg.Outbox)
	listener, err := httpapi.New(st, gating.New(st, packs, tel.Metrics), importer, relay.Wake, keys, tel)
	if err != nil {
		return err
	}
	reports := inbox.NewConsumer(name, cfg.Kafka, pool, consumer.New(st, packs).Handlers(), relay, tel.Metrics)
	return service.Run(ctx,
		service.Part{Name: "private port", Run: tel.Private},
		service.Part{Name: "outbox relay", Run: relay.Run},
		service.Part{Name: "consumer", Run: reports.Run},
		service.Part{Name: "erasing", Run: erasing.New(st, relay.Wake, tel.Metrics).Run},
		service.Part{Name: "pruning", Run: pruning.New(st, records, cfg.Keeping).Run},
		service.Part{Name: "importing", Run: importer.Run},
		service.Part{Name: "witnessing", Run: witnessing.New(records, chains, cfg.Witness, tel.Metrics).Run},
		service.Part{Name: "http", Run: (&httpserver.Server{Addr: cfg.HTTP.Addr, Handler: listener}).Run},
	)
}

// replay puts the parked records of one topic back.
func replay(ctx context.Context, cfg Config, topic string) error {
	tel, err := telemetry.Start(ctx, cfg.Telemetry, name)
	if err != nil {
		return err
	}
	defer tel.Close(ctx)
	chains, err := ledger.NewKeys(cfg.ConsentKeys, cfg.Trust.SigningKey)
	if err != nil {
		return err
	}
	pool, err := pg.Open(ctx, cfg.Postgres, schema, tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	packs, err := pack.Embedded()
	if err != nil {
		return err
	}
	handlers := consumer.New(store.New(pool, chains), packs).Handlers()
	return inbox.NewConsumer(name, cfg.Kafka, pool, handlers, nil, tel.Metrics).PutBack(ctx, topic, os.Stdout)
}
