// Command dialer dials every call request at most once, connects calls with AI agents, and ends
// every call.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/app"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/service"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/calls"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/dbfailover"
	"ringfence.dev/services/dialer/internal/dial"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/httpapi"
	"ringfence.dev/services/dialer/internal/peers"
	"ringfence.dev/services/dialer/internal/retention"
	"ringfence.dev/services/dialer/internal/store"
)

// serviceName is the name of the service and of its database schema.
const serviceName = "dialer"

func main() { app.Run(spec()) }

func spec() app.Spec[Config] {
	return app.Spec[Config]{
		// one connection for the heartbeat of the process, and one for the heartbeat of its SIP
		// legs
		Name: serviceName, Migrations: store.Migrations, Heartbeats: 2, Check: Config.validate, Start: start,
		Handlers: func(cfg Config, rt *app.Runtime) (inbox.Handlers, error) {
			st, err := openStore(cfg, rt.Pool)
			return handlers(st, rt, func() {}), err
		},
		Commands: []app.Command[Config]{{
			Command: service.Command[Config]{
				Name: "accept-intents", JSON: true,
				Help: "permits dialing although records of dial-intents.v1 are missing or undecodable (ADR 4)",
			},
			Run: acceptIntents,
		}},
	}
}

func start(ctx context.Context, cfg Config, rt *app.Runtime) ([]service.Part, error) {
	tel, keys, pool, relay := rt.Telemetry, rt.Keys, rt.Pool, rt.Relay
	db := pools{work: rt.Pool, beats: rt.Heartbeats}
	contacts, err := peers.New(cfg.ContactsURL, keys)
	if err != nil {
		return nil, err
	}
	wallet, err := peers.NewWallet(cfg.WalletURL, keys)
	if err != nil {
		return nil, err
	}
	agent.WarnRetiringModels(ctx, slog.Default(), cfg.configuredModels(), time.Now())
	st, err := openStore(cfg, pool)
	if err != nil {
		return nil, err
	}
	heartbeat := calls.NewHeartbeat(st.On(rt.Heartbeats), cfg.InstanceLease)
	intents, err := dbfailover.NewPublisher(cfg.Kafka, tel.Metrics)
	if err != nil {
		return nil, err
	}
	reconciler := dbfailover.NewReconciler(cfg.Kafka, intents, st, cfg.InstanceLease, tel.Metrics)

	known, err := openSecrets(ctx, cfg, pool)
	if err != nil {
		return nil, err
	}
	recordings, err := openRecordings(cfg.Recordings, pool, st, relay.Wake, tel)
	if err != nil {
		return nil, err
	}
	circuits := agent.NewCircuits(cfg.CircuitFailures, cfg.CircuitRest)
	tel.Metrics.MustRegister(circuits)
	monitor := dialqueue.NewPauseMonitor(st.LatestPauses, tel.Metrics)
	turns, err := calls.NewTurnPublisher(cfg.Kafka, st, tel.Metrics)
	if err != nil {
		return nil, err
	}
	trunk, err := openCarrier(cfg, db, st, relay, known, recordings, circuits, monitor, turns, tel)
	if err != nil {
		return nil, err
	}
	reconciler.OnChange(trunk.refresh)
	limits := cfg.limits(trunk.trunkLimit, reconciler.MayDial, circuits)
	limits.From, limits.Reconciled, limits.Pauses = trunk.chooseNumber, reconciler.Reconciled, monitor
	dialer := dial.New(trunk.store, contacts, trunk, relay, heartbeat, intents, limits, tel.Metrics)
	carriers, wakeDialers := carrier.Carriers{Live: trunk, Test: trunk}, dialer.Wake
	test := openTestCarrier(cfg, st, relay, limits)
	var testDialer *dial.Dialer
	if test != nil {
		carriers.Test = test
		// The metrics in this registry are not exported, because the metrics of dials count only live
		// workspaces.
		testDialer = dial.New(test.store, contacts, test, relay, heartbeat, intents, test.limits, prometheus.NewRegistry())
		wakeDialers = func() { dialer.Wake(); testDialer.Wake() }
	}
	recoverer := calls.NewRecoverer(st, heartbeat, carriers, relay, tel.Metrics)
	reporter := calls.NewOptOutReporter(st, contacts)
	answerer := calls.NewAnswerer(st, contacts, wallet, carriers, relay, recoverer.Wake)
	analyser, err := openAnalyser(cfg, st, known, relay)
	if err != nil {
		return nil, err
	}
	listeners := calls.Listeners{
		Ended:   func() { wakeDialers(); analyser.Wake() },
		Arrived: answerer.Wake, OptedOut: reporter.Wake, HangUp: recoverer.Wake,
		Spoken: turns.Add,
	}
	trunk.calls.Listen(listeners)
	var testParts []service.Part
	if test != nil {
		test.calls.Listen(listeners)
		testParts = []service.Part{
			{Name: "fence review of test workspaces", Run: testDialer.Review},
			{Name: "carrier events of test workspaces", Run: test.readEvents(relay, cfg.LookEvery, testDialer.Wake)},
			{Name: "dialer of test workspaces", Run: testDialer.Run},
		}
	}
	reports := store.NewReplicaReports(pool)
	replicaJob, err := openReplica(reports, trunk.report)
	if err != nil {
		return nil, err
	}
	api, err := httpapi.New(st, known.trunks, reports, store.NewTraces(pool, cfg.InstanceLease), known.keys,
		httpapi.Recordings{Enabled: recordings.recorder != nil, Files: recordings.files, Links: recordings.links},
		trunk.healthCheck, recoverer.Wake, relay, keys, tel)
	if err != nil {
		return nil, err
	}
	tel.Ready("dial intents", func(context.Context) error { return reconciler.Ready() })
	rt.FinishWork(trunk.drain)
	return slices.Concat([]service.Part{
		{Name: "heartbeat", Run: heartbeat.Run},
		{
			Name: "intent publisher",
			Run:  func(ctx context.Context) error { defer intents.Close(); return intents.Run(ctx) },
		},
		{Name: "turns of calls", Run: turns.Run},
		{Name: "reconciler", Run: reconciler.Run},
		{Name: "pauses", Run: monitor.Run},
		{Name: "fence review", Run: dialer.Review},
		{Name: "long calls", Run: dial.NewLongCallsJob(st).Run},
		{Name: "recovery", Run: recoverer.Run},
		{Name: "retention", Run: retention.New(st).Run},
		{Name: "erasure", Run: retention.NewErasureJob(st).Run},
		{Name: "replica report", Run: replicaJob.Run},
		{Name: "queue metrics", Run: dial.NewQueueMetrics(pool, trunk.trunkLimit, tel.Metrics).Run},
		{Name: "model retirement", Run: agent.NewRetirementMonitor(st.AgentModels, cfg.configuredModels(), tel.Metrics).Run},
		{Name: "opt-out reports", Run: reporter.Run},
		{Name: "analysis", Run: analyser.Run},
		{Name: "inbound calls", Run: answerer.Run},
		{Name: "recordings", Run: recordings.run},
		{Name: "recordings of simulated calls", Run: recordings.simulate(cfg.Carrier != "sim")},
		{Name: "carrier events", Run: trunk.readEvents(relay, cfg.LookEvery, dialer.Wake)},
		// When the process stops, the carrier waits for the end of the last call. The parts listed
		// above stop after the carrier.
		{Name: "carrier", Run: trunk.run},
		{Name: "dialer", Run: dialer.Run},
	}, testParts, []service.Part{rt.Consumer(handlers(st, rt, wakeDialers)), rt.HTTP(api)}), nil
}

// acceptIntents runs when an operator accepts that the oldest intents (records of dial-intents.v1)
// are lost. The serving processes then reconcile the database with the remaining intents. A call
// request whose intent is lost can be dialed a second time.
func acceptIntents(ctx context.Context, cfg Config, pool *pgxpool.Pool) error {
	st, err := openStore(cfg, pool)
	if err != nil {
		return err
	}
	bounds, err := dbfailover.Accept(ctx, cfg.Kafka, st)
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
