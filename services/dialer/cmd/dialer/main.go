// Command dialer dials every call request at most once, talks to carriers and AI agents, and ends every call.
package main

import (
	"context"
	"encoding/json"
	"fmt"
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
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/asking"
	"ringfence.dev/services/dialer/internal/bridging"
	"ringfence.dev/services/dialer/internal/dialing"
	"ringfence.dev/services/dialer/internal/erasure"
	"ringfence.dev/services/dialer/internal/failover"
	"ringfence.dev/services/dialer/internal/httpapi"
	"ringfence.dev/services/dialer/internal/measuring"
	"ringfence.dev/services/dialer/internal/recovering"
	"ringfence.dev/services/dialer/internal/reporting"
	"ringfence.dev/services/dialer/internal/retention"
	"ringfence.dev/services/dialer/internal/retirement"
	"ringfence.dev/services/dialer/internal/store/replicas"
	"ringfence.dev/services/dialer/internal/store/traces"
	"ringfence.dev/services/dialer/migrations"
)

// name is the service's, and its schema's.
const name = "dialer"

func main() {
	service.Main(name, service.Commands[Config]{
		Serve: serve, Migrate: migrate, Replay: replay,
		Further: []service.Command[Config]{{
			Name: "accept-intents", JSON: true, Run: acceptIntents,
			Help: "lets dialing begin although records of dial-intents.v1 are missing (docs/adr/0004)",
		}},
	})
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
	contacts, err := asking.New(cfg.ContactsURL, keys)
	if err != nil {
		return err
	}
	retirement.Warn(ctx, slog.Default(), cfg.models(), time.Now())
	db, err := openPools(ctx, cfg)
	if err != nil {
		return err
	}
	defer db.close()
	pool := db.work
	pgwatch.Pool(pool, tel.Metrics)
	bus, err := kafka.NewClient(cfg.Kafka, name, tel.Metrics)
	if err != nil {
		return err
	}
	defer bus.Close()
	st, err := openStore(cfg, db.work)
	if err != nil {
		return err
	}
	heart := recovering.NewHeart(st.On(db.beats), cfg.InstanceLease)
	intents, err := failover.NewPublisher(cfg.Kafka, tel.Metrics)
	if err != nil {
		return err
	}
	defer intents.Close()
	reconciler := failover.NewReconciler(cfg.Kafka, intents, st, cfg.InstanceLease, tel.Metrics)

	known, err := openSecrets(ctx, cfg, pool)
	if err != nil {
		return err
	}
	relay := outbox.NewRelay(pool, bus, tel.Metrics, cfg.Outbox)
	tapes, err := openTaping(cfg.Recordings, pool, st, relay.Wake, tel)
	if err != nil {
		return err
	}
	circuits := agent.NewCircuits(cfg.CircuitFailures, cfg.CircuitRest)
	tel.Metrics.MustRegister(circuits)
	trunk, err := openLines(cfg, db, st, known, tapes, circuits, tel)
	if err != nil {
		return err
	}
	recoverer := recovering.New(st, heart, trunk, relay, tel.Metrics)
	reporter := reporting.New(st, contacts)
	answerer := bridging.NewAnswerer(st, contacts, trunk, relay)
	limits := cfg.limits(trunk.limit, reconciler.MayDial, circuits)
	limits.From = trunk.from
	dialer := dialing.New(st, contacts, trunk, relay, heart, intents, limits, tel.Metrics)
	analyser, err := openAnalyser(cfg, st, known, relay)
	if err != nil {
		return err
	}
	ended := func() { dialer.Wake(); analyser.Wake() }
	bridge := bridging.New(st, trunk, relay, recoverer, ended, answerer.Wake, reporter.Wake)
	reports := replicas.New(pool)
	replicaJob, err := openReplica(reports, trunk.report)
	if err != nil {
		return err
	}
	api, err := httpapi.New(st, known.trunks, reports, traces.New(pool, cfg.InstanceLease), known.keys,
		httpapi.Recordings{Files: tapes.files, Links: tapes.links}, trunk.check, relay, keys, tel)
	if err != nil {
		return err
	}
	tel.Ready("postgres", pool.Ping)
	tel.Ready("dial intents", func(context.Context) error { return reconciler.Ready() })
	return service.RunPatiently(ctx, trunk.drain,
		service.Part{Name: "private port", Run: tel.Private},
		service.Part{Name: "outbox relay", Run: relay.Run},
		service.Part{Name: "heart", Run: heart.Run},
		service.Part{Name: "intent publisher", Run: intents.Run},
		service.Part{Name: "reconciler", Run: reconciler.Run},
		service.Part{Name: "fence review", Run: dialer.Review},
		service.Part{Name: "recovering", Run: recoverer.Run},
		service.Part{Name: "retention", Run: retention.New(st).Run},
		service.Part{Name: "erasure", Run: erasure.NewJob(st).Run},
		service.Part{Name: "replica report", Run: replicaJob.Run},
		service.Part{Name: "measuring", Run: measuring.New(pool, trunk.limit, tel.Metrics).Run},
		service.Part{Name: "model retirement", Run: retirement.New(st, cfg.models(), tel.Metrics).Run},
		service.Part{Name: "reporting", Run: reporter.Run},
		service.Part{Name: "analysing", Run: analyser.Run},
		service.Part{Name: "answering", Run: answerer.Run},
		service.Part{Name: "recording", Run: tapes.run},
		service.Part{Name: "bridging", Run: bridge.Run},
		service.Part{Name: "looking", Run: bridging.NewLooker(st, trunk, relay, cfg.LookEvery, dialer.Wake).Run},
		service.Part{Name: "lines", Run: trunk.run}, // what goes on over them is seen through before those above are told to stop
		service.Part{Name: "dialing", Run: dialer.Run},
		service.Part{Name: "consumer", Run: newConsumer(cfg, pool, st, relay, tel, dialer.Wake).Run},
		service.Part{Name: "http", Run: (&httpserver.Server{Addr: cfg.HTTP.Addr, Handler: api}).Run},
	)
}

// acceptIntents lets the serving processes reconcile with the records that dial-intents.v1 has, although older ones are
// missing. A request whose intent is missing may be dialed a second time.
func acceptIntents(ctx context.Context, cfg Config) error {
	pool, err := pg.Open(ctx, cfg.Postgres, name, tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	st, err := openStore(cfg, pool)
	if err != nil {
		return err
	}
	bounds, err := failover.Accept(ctx, cfg.Kafka, st)
	if err != nil {
		return err
	}
	if service.Scripted(ctx) {
		return json.NewEncoder(os.Stdout).Encode(map[string]any{
			"topic": kafka.DialIntents.Name, "topic_id": bounds.ID, "offsets": bounds.Start,
		})
	}
	fmt.Printf("accepted topic %s with the id %s from offsets %v\n", kafka.DialIntents.Name, bounds.ID, bounds.Start)
	return nil
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
	st, err := openStore(cfg, pool)
	if err != nil {
		return err
	}
	return newConsumer(cfg, pool, st, nil, tel, func() {}).PutBack(ctx, topic, os.Stdout)
}
