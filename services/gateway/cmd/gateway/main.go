// Command gateway decides who is asking, what the plan and key allow, and how often; everything else it hands to the
// service that owns it.
package main

import (
	"context"
	"errors"
	"log/slog"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/pgwatch"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/libs/trust"
	"ringfence.dev/services/gateway/internal/admitting"
	"ringfence.dev/services/gateway/internal/apikey"
	"ringfence.dev/services/gateway/internal/forwarding"
	"ringfence.dev/services/gateway/internal/httpapi"
	"ringfence.dev/services/gateway/internal/reference"
	"ringfence.dev/services/gateway/internal/store"
	"ringfence.dev/services/gateway/internal/sweeping"
	"ringfence.dev/services/gateway/migrations"
)

const name = "gateway"

func main() {
	service.Main(name, service.Commands[Config]{Serve: serve, Migrate: migrate})
}

func tracks() []pg.Migrations {
	return []pg.Migrations{outbox.Migrations, {Name: store.Schema, FS: migrations.FS}}
}

func migrate(ctx context.Context, cfg Config) error {
	return pg.Migrate(ctx, cfg.Postgres.MigrateURL, store.Schema, tracks()...)
}

func serve(ctx context.Context, cfg Config) error {
	tel, err := telemetry.Start(ctx, cfg.Telemetry, name)
	if err != nil {
		return err
	}
	defer tel.Close(ctx)

	pepper, faults := apikey.NewPepper(cfg.APIKeyPepper)
	operators, fault := cfg.operators(pepper)
	faults = errors.Join(faults, fault)
	proxies, fault := admitting.ParseProxies(cfg.TrustedProxies)
	faults = errors.Join(faults, fault)
	ready, fault := httpapi.NewReadiness(cfg.ReadyURLs)
	faults = errors.Join(faults, fault)
	keys, fault := trust.New(name, cfg.Trust)
	faults = errors.Join(faults, fault)
	shelf, fault := reference.New()
	faults = errors.Join(faults, fault)
	peers, fault := forwarding.New(keys, cfg.owners())
	if faults = errors.Join(faults, fault); faults != nil {
		return faults
	}
	defer peers.Close()

	pool, err := pg.Open(ctx, cfg.Postgres, store.Schema, tracks()...)
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
	st := store.New(pool, relay)
	if len(operators) > 0 {
		if err := st.SeedOperators(ctx, operators); err != nil {
			return err
		}
	} else {
		slog.WarnContext(ctx, "OPERATOR_TOKENS is empty: only operators seeded before can use /admin/v1")
	}
	tel.Ready("postgres", st.Ping)

	door := admitting.NewDoor(st, pepper, proxies)
	public := &httpserver.Server{Addr: cfg.HTTP.Addr, Handler: httpapi.NewPublic(door, peers, ready, shelf, tel),
		Header: httpapi.Uncounted()}
	admin := &httpserver.Server{Addr: cfg.AdminAddr, Variable: "ADMIN_ADDR",
		Handler: httpapi.NewAdmin(door, st, peers, pepper, ready, tel)}
	return service.Run(ctx, // what is fed first, what feeds last: they stop from the bottom up
		service.Part{Name: "private port", Run: tel.Private},
		service.Part{Name: "outbox relay", Run: relay.Run},
		service.Part{Name: "sweeper", Run: sweeping.New(st).Run},
		service.Part{Name: "admin", Run: admin.Run},
		service.Part{Name: "public", Run: public.Run},
	)
}
