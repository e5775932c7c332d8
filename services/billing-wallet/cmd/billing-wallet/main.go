// Command billing-wallet is the service that stores wallets, holds and the ledger, and decides what
// a workspace can spend.
package main

import (
	"context"
	"errors"
	"flag"
	"os"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/service"
	"ringfence.dev/services/billing-wallet/internal/consumer"
	"ringfence.dev/services/billing-wallet/internal/httpapi"
	"ringfence.dev/services/billing-wallet/internal/reconcile"
	"ringfence.dev/services/billing-wallet/internal/settlement"
	"ringfence.dev/services/billing-wallet/internal/store"
)

func main() { app.Run(spec()) }

func spec() app.Spec[Config] {
	var only uuid.UUID
	return app.Spec[Config]{
		Name: "billing-wallet", Migrations: store.Migrations, Check: Config.check, Start: start,
		Handlers: func(_ Config, rt *app.Runtime) (inbox.Handlers, error) {
			// The command replay needs no settler: a replica that runs the service settles the holds later.
			return consumer.New(store.New(rt.Pool), func() {}).Handlers(), nil
		},
		Commands: []app.Command[Config]{{
			Command: service.Command[Config]{
				Name: "reconcile",
				Help: "compares balances, transactions and holds, prints every difference, and exits with status 1 if there is one",
				Flags: func(flags *flag.FlagSet) {
					flags.TextVar(&only, "workspace", uuid.Nil, "compares only the workspace with this `id`")
				},
				JSON: true,
			},
			Run: func(ctx context.Context, _ Config, pool *pgxpool.Pool) error {
				return reconcile.Walk{Store: store.New(pool), Out: os.Stdout, Progress: os.Stderr}.Run(ctx, only)
			},
		}},
	}
}

func (c Config) check() error {
	if c.UnconfirmedAfter <= 0 {
		return errors.New("UNCONFIRMED_AFTER must be more than zero")
	}
	if c.ReconcileEvery < 0 {
		return errors.New("RECONCILE_EVERY must not be less than zero")
	}
	return nil
}

func start(_ context.Context, cfg Config, rt *app.Runtime) ([]service.Part, error) {
	st, metrics := store.New(rt.Pool), rt.Telemetry.Metrics
	settler := settlement.NewSettler(st, rt.Relay, metrics)
	routes, err := httpapi.New(st, store.NewHoldBatcher(st, metrics)).Routes(rt.Telemetry, rt.Keys)
	if err != nil {
		return nil, err
	}
	return []service.Part{
		{Name: "settler", Run: settler.Run},
		{Name: "confirmer", Run: settlement.NewConfirmer(st, rt.Relay, cfg.UnconfirmedAfter, metrics).Run},
		{Name: "auditor", Run: reconcile.NewAuditor(st, cfg.ReconcileEvery, metrics).Run},
		rt.Consumer(consumer.New(st, settler.Wake).Handlers()),
		rt.HTTP(routes),
	}, nil
}
