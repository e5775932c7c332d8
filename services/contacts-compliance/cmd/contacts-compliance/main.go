// Command contacts-compliance stores contacts, opt-outs and consent. It decides whether and when a
// number may be called.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/service"
	"ringfence.dev/services/contacts-compliance/internal/checks"
	"ringfence.dev/services/contacts-compliance/internal/consentchain"
	"ringfence.dev/services/contacts-compliance/internal/consentlog"
	"ringfence.dev/services/contacts-compliance/internal/consumer"
	"ringfence.dev/services/contacts-compliance/internal/countryrules"
	"ringfence.dev/services/contacts-compliance/internal/erasurereports"
	"ringfence.dev/services/contacts-compliance/internal/httpapi"
	"ringfence.dev/services/contacts-compliance/internal/imports"
	"ringfence.dev/services/contacts-compliance/internal/retention"
	"ringfence.dev/services/contacts-compliance/internal/store"
	"ringfence.dev/services/contacts-compliance/internal/window"
)

func main() { app.Run(spec()) }

func spec() app.Spec[Config] {
	return app.Spec[Config]{
		Name: "contacts-compliance", Migrations: store.Migrations, Start: start, Handlers: handlers,
		Check: func(cfg Config) error { _, err := cfg.consentKeys(); return err },
		Commands: []app.Command[Config]{{
			Command: service.Command[Config]{
				Name: "verify",
				Help: "verifies every chain of consent records and prints the first wrong row of each",
				JSON: true,
			},
			Run: verify,
		}},
	}
}

func verify(ctx context.Context, cfg Config, pool *pgxpool.Pool) error {
	chains, err := cfg.consentKeys()
	if err != nil {
		return err
	}
	return consentlog.Verify(ctx, store.NewArchive(pool, chains), chains, cfg.HeadLog.Path, os.Stdout)
}

func start(ctx context.Context, cfg Config, rt *app.Runtime) ([]service.Part, error) {
	packs, err := countryrules.Embedded()
	if err != nil {
		return nil, err
	}
	for _, p := range packs.Ending(window.DateOf(time.Now().AddDate(0, 0, 180))) {
		slog.WarnContext(ctx, "policy pack expires soon and then refuses every call", "pack", p.Name, "covers_until",
			p.CoversUntil.String())
	}
	chains, err := cfg.consentKeys()
	if err != nil {
		return nil, err
	}
	if len(cfg.ConsentKeys) == 0 {
		slog.WarnContext(ctx, "CONSENT_KEYS is not set: consent records cannot be verified after SIGNING_KEY is rotated")
	}
	records, err := handlers(cfg, rt)
	if err != nil {
		return nil, err
	}
	st, archived, relay, metrics := store.New(rt.Pool, chains), store.NewArchive(rt.Pool,
		chains), rt.Relay, rt.Telemetry.Metrics
	importer := imports.New(st)
	api, err := httpapi.New(st, checks.New(st, packs, metrics), importer, relay.Wake, rt.Keys, rt.Telemetry)
	if err != nil {
		return nil, err
	}
	return []service.Part{
		rt.Consumer(records),
		{Name: "erasure republication", Run: erasurereports.NewRepublishJob(st, relay.Wake, metrics).Run},
		{Name: "retention", Run: retention.New(st, archived, cfg.Retention).Run},
		{Name: "importer", Run: importer.Run},
		{Name: "consent head log", Run: consentlog.NewHeadLog(archived, chains, cfg.HeadLog, metrics).Run},
		rt.HTTP(api),
	}, nil
}

func handlers(cfg Config, rt *app.Runtime) (inbox.Handlers, error) {
	chains, err := cfg.consentKeys()
	if err != nil {
		return nil, err
	}
	packs, err := countryrules.Embedded()
	if err != nil {
		return nil, err
	}
	return consumer.New(store.New(rt.Pool, chains), packs).Handlers(), nil
}

func (c Config) consentKeys() (*consentchain.Keys, error) {
	return consentchain.NewKeys(c.ConsentKeys, c.Trust.SigningKey)
}
