// Command contacts-compliance decides who may be called, when, and why.
package main

import (
	"context"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/contacts-compliance/internal/gating"
	"ringfence.dev/services/contacts-compliance/internal/httpapi"
	"ringfence.dev/services/contacts-compliance/internal/pruning"
	"ringfence.dev/services/contacts-compliance/internal/store"
	"ringfence.dev/services/contacts-compliance/migrations"
)

const (
	name   = "contacts-compliance"
	schema = "contacts_compliance"
)

func main() {
	service.Main(name, service.Commands[Config]{Serve: serve, Migrate: migrate})
}

func tables() pg.Migrations { return pg.Migrations{Name: schema, FS: migrations.FS} }

func migrate(ctx context.Context, cfg Config) error {
	return pg.Migrate(ctx, cfg.Postgres.MigrateURL, schema, tables())
}

func serve(ctx context.Context, cfg Config) error {
	tel, err := telemetry.Start(ctx, cfg.Telemetry, name)
	if err != nil {
		return err
	}
	defer func() { _ = tel.Close(ctx) }() // spans are lost at worst
	keys, err := trust.New(name, cfg.Trust)
	if err != nil {
		return err
	}
	pool, err := pg.Open(ctx, cfg.Postgres, schema, tables())
	if err != nil {
		return err
	}
	defer pool.Close()
	tel.Ready("postgres", pool.Ping)

	st := store.New(pool)
	listener, err := httpapi.New(st, gating.New(st), keys, tel)
	if err != nil {
		return err
	}
	return service.Run(ctx,
		service.Part{Name: "private port", Run: tel.Private},
		service.Part{Name: "pruning", Run: pruning.New(st).Run},
		service.Part{Name: "http", Run: (&httpserver.Server{Addr: cfg.HTTP.Addr, Handler: listener, ReusePort: cfg.HTTP.ReusePort}).Run},
	)
}
