// Command webhook-dispatcher delivers public events to the endpoints of customers.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/webhook-dispatcher/internal/consumer"
	"ringfence.dev/services/webhook-dispatcher/internal/dispatch"
	"ringfence.dev/services/webhook-dispatcher/internal/eventstream"
	"ringfence.dev/services/webhook-dispatcher/internal/httpapi"
	"ringfence.dev/services/webhook-dispatcher/internal/retention"
	"ringfence.dev/services/webhook-dispatcher/internal/store"
)

func main() { app.Run(spec()) }

func spec() app.Spec[Config] {
	return app.Spec[Config]{
		Name: "webhook-dispatcher", Migrations: store.Migrations, Start: start,
		Check: func(cfg Config) error { _, err := cfg.newBox(); return errors.Join(cfg.check(), err) },
		Handlers: func(cfg Config, rt *app.Runtime) (inbox.Handlers, error) {
			box, err := cfg.newBox()
			if err != nil {
				return nil, err
			}
			// The command `replay` runs no dispatcher and no event streams, so it has nothing to
			// wake. The running replicas find the queued deliveries and the events when they poll.
			wakes := consumer.Wakes{Queued: func([]store.Due) {}, WakeStreams: func([]uuid.UUID) {}, Dispatcher: func() {},
				Relay: func() {}}
			return consumer.New(store.New(rt.Pool, box), wakes).Handlers(), nil
		},
		Commands: []app.Command[Config]{{
			Command: service.Command[Config]{
				Name: "reseal", Help: "Seal every secret with the first key of SEALING_KEYS and exit. Run it again after an error.",
				JSON: true,
			},
			Run: func(ctx context.Context, cfg Config, pool *pgxpool.Pool) error {
				box, err := cfg.newBox()
				if err != nil {
					return err
				}
				return resealCommand{store: store.New(pool, box), out: os.Stdout, progress: os.Stderr}.run(ctx)
			},
		}},
	}
}

func start(_ context.Context, cfg Config, rt *app.Runtime) ([]service.Part, error) {
	box, err := cfg.newBox()
	if err != nil {
		return nil, err
	}
	reach := ssrf.New(cfg.Sending.AllowNetworks)
	client, err := dispatch.NewClient(cfg.Sending, reach)
	if err != nil {
		return nil, err
	}
	st := store.New(rt.Pool, box)
	dispatcher := dispatch.New(st, client, cfg.Dispatch, rt.Telemetry.Metrics)
	retentionJob := retention.New(st, cfg.Retention)
	hub := eventstream.New(st, rt.Telemetry.Metrics)
	wakes := consumer.Wakes{
		Queued: dispatcher.Add, WakeStreams: hub.Wake, Dispatcher: dispatcher.Wake, Relay: rt.Relay.Wake,
	}
	return []service.Part{
		{Name: "retention", Run: retentionJob.Run},
		{Name: "dispatcher", Run: dispatcher.Run},
		{Name: "event streams", Run: hub.Run},
		{Name: "turns of calls", Run: eventstream.NewTurnReader(cfg.Kafka, hub).Run},
		rt.Consumer(consumer.New(st, wakes).Handlers()),
		rt.HTTP(httpapi.New(st, hub, reach.Reachable, dispatcher.Wake, retentionJob.Wake).Routes(rt.Keys, rt.Telemetry)),
	}, nil
}
