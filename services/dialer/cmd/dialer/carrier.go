package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/phone"
	"ringfence.dev/libs/ssrf"
	"ringfence.dev/libs/telemetry"
	"ringfence.dev/services/dialer/internal/agent"
	"ringfence.dev/services/dialer/internal/agent/live"
	"ringfence.dev/services/dialer/internal/agent/mediaws"
	"ringfence.dev/services/dialer/internal/agent/realtime"
	"ringfence.dev/services/dialer/internal/calls"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/conversation"
	"ringfence.dev/services/dialer/internal/dial"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/httpapi"
	"ringfence.dev/services/dialer/internal/media"
	"ringfence.dev/services/dialer/internal/replicas"
	"ringfence.dev/services/dialer/internal/simcarrier"
	"ringfence.dev/services/dialer/internal/sip"
	"ringfence.dev/services/dialer/internal/sipcarrier"
	"ringfence.dev/services/dialer/internal/siptrace"
	"ringfence.dev/services/dialer/internal/store"
	"ringfence.dev/services/dialer/internal/summary"
)

// legPeriod is how long the database keeps the SIP legs of ended calls.
const legPeriod = 10 * time.Minute

// pools are the process's database connections. A heartbeat must never wait for a free connection,
// so heartbeats have a separate pool, beats.
type pools struct{ work, beats *pgxpool.Pool }

type carrierParts struct {
	carrier.Carrier
	run   func(context.Context) error
	drain time.Duration
	// trunkLimit returns the capacity of all trunks. All replicas share this capacity.
	trunkLimit func(context.Context) (dialqueue.Limit, error)
	// chooseNumber returns the number that the dialer calls from, and its trunk.
	chooseNumber func(ctx context.Context, wantedNumber string, excluded []string) (number, trunkID string, err error)
	report       func() replicas.Report
	// healthCheck is nil if the carrier is not SIP.
	healthCheck httpapi.Check
	// refresh applies the events of this process's live calls again after a failover of the
	// database.
	refresh func()
	// eventStream is nil if the carrier itself applies its events to calls.
	eventStream carrier.EventStream
	calls       *calls.Applier
	// store is restricted to the workspaces whose calls the carrier places: the live workspaces,
	// the test workspaces, or both.
	store *store.Store
}

// readEvents returns a function that reads the events of the carrier. Without an event stream, the
// returned function only waits until ctx ends.
func (l carrierParts) readEvents(
	relay *outbox.Relay, lookEvery time.Duration, ended func(),
) func(context.Context) error {
	return func(ctx context.Context) error {
		if l.eventStream == nil {
			<-ctx.Done()
			return nil
		}
		var both errgroup.Group
		both.Go(func() error { return calls.NewEventReader(l.store, l.eventStream, l.calls).Run(ctx) })
		both.Go(func() error {
			return calls.NewLiveCallCheck(l.store, l.eventStream, relay, lookEvery, ended).Run(ctx)
		})
		return both.Wait()
	}
}

func openCarrier(
	cfg Config,
	db pools,
	st *store.Store,
	relay *outbox.Relay,
	known secrets,
	recordings recordingParts,
	circuits *agent.Circuits,
	monitor *dialqueue.PauseMonitor,
	turns *calls.TurnPublisher,
	tel *telemetry.Telemetry,
) (carrierParts, error) {
	most := dialqueue.Limit{Live: cfg.TrunkChannels, PerSecond: cfg.TrunkCallsPerSecond}
	switch {
	case cfg.Carrier == "sim" && cfg.SimURL != "":
		over := simcarrier.New(simcarrier.Config{URL: cfg.SimURL, Token: cfg.SimToken})
		return carrierParts{
			Carrier: over, eventStream: over, calls: calls.NewApplier(st, relay, over.Find), store: st,
			run:        func(context.Context) error { return nil },
			trunkLimit: func(context.Context) (dialqueue.Limit, error) { return most, nil },
			report:     func() replicas.Report { return replicas.Report{AgentCircuits: circuits.Open()} },
			// No refresh is needed. After a failover, the dialer reads the carrier's events again from the
			// position that is stored in the database.
			refresh: func() {},
		}, nil
	case cfg.Carrier == "sim":
		return carrierParts{}, errors.New(
			"SIM_URL is missing: it is the simulated carrier's base URL, with CARRIER=sim",
		)
	case cfg.Carrier == "sip":
		st = st.Of(dialqueue.LiveMode)
		to := calls.NewApplier(st, relay, nil)
		opened, line, err := openSIP(cfg, db, st, to, known, recordings, circuits, monitor, turns, tel)
		if err != nil {
			return carrierParts{}, err
		}
		opened.chooseNumber, opened.healthCheck, opened.calls, opened.refresh = line.From, line.Check, to, line.Refresh
		opened.store = st
		opened.trunkLimit = func(ctx context.Context) (dialqueue.Limit, error) {
			sum, err := line.Limit(ctx)
			if err != nil {
				return dialqueue.Limit{}, err
			}
			return dialqueue.Limit{Live: min(sum.Live, most.Live), PerSecond: min(sum.PerSecond, most.PerSecond)}, nil
		}
		return opened, nil
	}
	return carrierParts{}, fmt.Errorf("CARRIER is %q: it must be sim or sip", cfg.Carrier)
}

// testCarrier is the carrier of the test workspaces if the live workspaces use SIP trunks. Without
// SIM_URL it refuses every call.
type testCarrier struct {
	carrierParts
	limits dial.Limits
}

// openTestCarrier returns nil if the carrier of the live workspaces also serves the test
// workspaces.
func openTestCarrier(cfg Config, st *store.Store, relay *outbox.Relay, limits dial.Limits) *testCarrier {
	if cfg.Carrier == "sim" {
		return nil
	}
	st = st.Of(dialqueue.TestMode)
	most := dialqueue.Limit{Live: cfg.TrunkChannels, PerSecond: cfg.TrunkCallsPerSecond}
	limits.OfTrunk = func(context.Context) (dialqueue.Limit, error) { return most, nil }
	limits.From, limits.Agents, limits.Failures = nil, nil, cfg.CircuitFailures
	if cfg.SimURL == "" {
		refusal := dialqueue.NoTestCarrier()
		limits.Refuse = &refusal
		return &testCarrier{limits: limits, carrierParts: carrierParts{
			Carrier: carrier.NoTestCarrier{}, calls: calls.NewApplier(st, relay, nil), store: st,
		}}
	}
	over := simcarrier.New(simcarrier.Config{URL: cfg.SimURL, Token: cfg.SimToken, TestOnly: true})
	return &testCarrier{limits: limits, carrierParts: carrierParts{
		Carrier: over, eventStream: over, calls: calls.NewApplier(st, relay, over.Find), store: st,
	}}
}

func openSIP(
	cfg Config,
	db pools,
	st *store.Store,
	to *calls.Applier,
	known secrets,
	recordings recordingParts,
	circuits *agent.Circuits,
	monitor *dialqueue.PauseMonitor,
	turns *calls.TurnPublisher,
	tel *telemetry.Telemetry,
) (carrierParts, *sipcarrier.Carrier, error) {
	bind, err := netip.ParseAddr(cfg.SIP.RTP)
	if err != nil {
		return carrierParts{}, nil, fmt.Errorf("read RTP_ADDR: %w", err)
	}
	advertised, err := cfg.SIP.advertisedAddress()
	if err != nil {
		return carrierParts{}, nil, err
	}
	cfg.SIP.Advertised = advertised.String()
	var line *sipcarrier.Carrier
	rejected := sipcarrier.NewRejectedCalls()
	tel.Metrics.MustRegister(rejected)
	inbound, opened := sipcarrier.NewInboundFilter(known.trunks), make(chan struct{})
	host, err := os.Hostname()
	if err != nil {
		return carrierParts{}, nil, fmt.Errorf("read host name: %w", err)
	}
	trace := &siptrace.Recorder{Replica: host}
	settings := sip.Config{
		UDP: cfg.SIP.UDP, TCP: cfg.SIP.TCP, TLS: cfg.SIP.TLS, Advertised: advertised.String(), UserAgent: "ringfence",
		Admit:    inbound.Admit,
		Rejected: rejected.AddUnknown, Peer: inbound.Peer,
		Trace: trace,
		TrunkAt: func(peer netip.AddrPort, transport string) (uuid.UUID, bool) {
			t, ok := inbound.Trunk(peer, transport)
			return t.TrunkID, ok
		},
		Arrive: func(a *sip.Arrival) {
			<-opened
			if t, ok := inbound.CallFrom(context.Background(), a.Source, a.Transport); ok {
				line.Arrive(a, t)
				return
			}
			rejected.AddArrived(a)
		},
	}
	if cfg.SIP.TLS != "" {
		pair, err := tls.LoadX509KeyPair(cfg.SIP.Certificate, cfg.SIP.Key)
		if err != nil {
			return carrierParts{}, nil, fmt.Errorf("read SIP_TLS_CERT_FILE and SIP_TLS_KEY_FILE: %w", err)
		}
		settings.Certificate = &pair
		current := func() (*tls.Certificate, error) { return &pair, nil }
		if err := telemetry.Certificate(tel.Metrics, "SIP_TLS_CERT_FILE", current); err != nil {
			return carrierParts{}, nil, err
		}
	}
	agents, err := openAgents(cfg, circuits)
	if err != nil {
		return carrierParts{}, nil, err
	}
	streams, err := media.New(
		media.Settings{Bind: bind, PortLow: cfg.SIP.PortLow, PortHigh: cfg.SIP.PortHigh},
		tel.Metrics,
	)
	if err != nil {
		return carrierParts{}, nil, err
	}
	ua, err := sip.New(settings)
	if err != nil {
		return carrierParts{}, nil, fmt.Errorf("listen for SIP: %w", err)
	}
	var recorder conversation.CallRecorder
	if recordings.recorder != nil {
		recorder = recordings.recorder
	}
	owner, err := uuid.NewV7()
	if err != nil {
		return carrierParts{}, nil, err
	}
	conversations := conversation.NewSIPCalls(st, known.keys, streams, advertised, agents, recorder)
	conversations.OnTurn(func(callID uuid.UUID, number int, turn agent.Turn) {
		turns.Add(calls.Turn{CallID: callID, Number: number, Turn: turn})
	})
	line = sipcarrier.New(ua, store.NewLegs(db.work, db.beats, owner, cfg.InstanceLease), to, known.trunks,
		conversations, sipcarrier.Config{
			RingLimit: cfg.RingLimit, Ring: cfg.RingLimit + time.Minute, Keep: legPeriod, Drain: cfg.SIP.Drain,
			CircuitFailures: cfg.CircuitFailures, CircuitRest: cfg.CircuitRest,
			Serves: st.Serves, Rejected: rejected, Trace: trace, Pauses: monitor,
			MayReach: func(ctx context.Context, callID uuid.UUID, to string) error {
				whose, err := st.WorkspaceOfCall(ctx, callID)
				if err == nil && (whose.Test || !whose.MayReach(phone.Number(to))) {
					err = errors.New("the workspace may not call that number")
				}
				return err
			},
		})
	tel.Metrics.MustRegister(line)
	recorded := store.NewTraces(db.work, cfg.InstanceLease)
	listening := cfg.SIP.listening()
	slog.Info("SIP listening", "udp", listening.UDP, "tcp", listening.TCP, "tls", listening.TLS,
		"advertised", listening.Advertised, "rtp", listening.RTP)
	report := func() replicas.Report {
		return replicas.Report{
			Trunks: line.Trunks(), Rejected: rejected.Last(), SIP: &listening, AgentCircuits: circuits.Open(),
		}
	}
	return carrierParts{Carrier: line, report: report, drain: cfg.SIP.Drain, run: func(ctx context.Context) error {
		defer ua.Close()
		// Inbound calls wait until this channel is closed. The listeners of the applier must be
		// registered before the first call.
		close(opened)
		// The parent ctx ends before the last calls end. The audio of these calls must continue.
		paced, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		var both errgroup.Group
		both.Go(func() error { return streams.Run(paced) })
		both.Go(func() error { return inbound.Run(paced) })
		both.Go(func() error { return siptrace.NewJob(trace, recorded, owner).Run(paced) })
		err := line.Run(ctx)
		stop()
		return errors.Join(err, both.Wait())
	}}, line, nil
}

// openAgents returns the agent.Opener of each kind of agent.
func openAgents(cfg Config, circuits *agent.Circuits) (map[string]agent.Opener, error) {
	guard, err := cfg.newGuard()
	if err != nil {
		return nil, err
	}
	return map[string]agent.Opener{
		agent.Realtime: circuits.Watch(realtime.New(cfg.Realtime, guard, nil)),
		agent.Live:     circuits.Watch(live.New(cfg.Live, guard, nil, slog.Default())),
		agent.MediaWS:  circuits.Watch(mediaws.New(guard, nil)),
		agent.Scripted: agent.New(
			func(wait time.Duration, do func()) func() bool { return time.AfterFunc(wait, do).Stop },
		),
	}, nil
}

func openAnalyser(cfg Config, st *store.Store, known secrets, relay *outbox.Relay) (*summary.Analyser, error) {
	guard, err := cfg.newGuard()
	if err != nil {
		return nil, err
	}
	return summary.NewAnalyser(st, known.keys, summary.NewSummariser(cfg.Summary, guard, nil), relay), nil
}

// newGuard returns the guard that checks the URLs of agents against SSRF.
func (c Config) newGuard() (*ssrf.Guard, error) {
	var networks []netip.Prefix
	for _, text := range c.SIP.AllowNetworks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("read AGENT_ALLOW_NETWORKS: %w", err)
		}
		networks = append(networks, network)
	}
	return ssrf.New(networks), nil
}
