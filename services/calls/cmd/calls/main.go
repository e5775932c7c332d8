// Command calls is the service that stores call requests and calls and publishes their public
// events.
package main

import (
	"context"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/service"
	"ringfence.dev/services/calls/internal/callrequests"
	"ringfence.dev/services/calls/internal/callstate"
	"ringfence.dev/services/calls/internal/consumer"
	"ringfence.dev/services/calls/internal/httpapi"
	"ringfence.dev/services/calls/internal/peers"
	"ringfence.dev/services/calls/internal/recordings"
	"ringfence.dev/services/calls/internal/retention"
	"ringfence.dev/services/calls/internal/store"
)

func main() { app.Run(spec()) }

func spec() app.Spec[Config] {
	return app.Spec[Config]{
		Name: "calls", Migrations: store.Migrations, Start: start, Handlers: handlers,
		Check: func(cfg Config) error { _, err := recordings.NewLinks(cfg.Recordings); return err },
	}
}

func start(_ context.Context, cfg Config, rt *app.Runtime) ([]service.Part, error) {
	peers, err := peers.New(cfg.Peers, rt.Keys)
	if err != nil {
		return nil, err
	}
	links, err := recordings.NewLinks(cfg.Recordings)
	if err != nil {
		return nil, err
	}
	st, relay, metrics := store.New(rt.Pool, links), rt.Relay, rt.Telemetry.Metrics
	api := httpapi.New(
		callrequests.New(cfg.Intake, st, peers, relay.Wake, relay.OldestAge, metrics),
		callrequests.NewCanceler(st, peers, relay.Wake),
		st, links, peers, relay.Wake,
	)
	return []service.Part{
		{Name: "completion", Run: consumer.NewCompletionJob(st, cfg.waits(), relay.Wake).Run},
		{Name: "republication", Run: callrequests.NewRepublishJob(st, cfg.RepublishAfter, relay.Wake, metrics).Run},
		{Name: "overdue calls", Run: callrequests.NewOverdueJob(st, cfg.RepublishAfter, relay.Wake).Run},
		{Name: "retention", Run: retention.New(st, cfg.Retention).Run},
		{Name: "erasure", Run: retention.NewErasureJob(st, relay.Wake).Run},
		{Name: "key expiry", Run: callrequests.NewKeyExpiryJob(st, cfg.KeepKeys).Run},
		rt.Consumer(handlersOf(cfg, rt, st)),
		rt.HTTP(api.Handler(rt.Telemetry, rt.Keys)),
	}, nil
}

func handlers(cfg Config, rt *app.Runtime) (inbox.Handlers, error) {
	links, err := recordings.NewLinks(cfg.Recordings)
	if err != nil {
		return nil, err
	}
	return handlersOf(cfg, rt, store.New(rt.Pool, links)), nil
}

func handlersOf(cfg Config, rt *app.Runtime, st *store.Store) inbox.Handlers {
	return consumer.New(st, cfg.waits(), rt.Relay.Wake, rt.Telemetry.Metrics).Handlers()
}

func (c Config) waits() callstate.Waits {
	return callstate.Waits{Charge: c.ChargeWait, Analysis: c.AnalysisWait}
}
