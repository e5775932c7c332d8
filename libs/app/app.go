// Package app runs a service from a specification. It sets up what every service has: telemetry,
// connection pool, Kafka client, outbox relay, consumer, and the commands migrate and replay.
package app

import (
	"cmp"
	"context"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/httpserver"
	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/telemetry"
)

// Config contains the environment variables that every service reads. A service embeds Config in
// its own configuration.
type Config struct {
	HTTP      httpserver.Config
	Postgres  pg.Config
	Kafka     kafka.Config
	Outbox    outbox.Config
	Trust     serviceauth.Config
	Telemetry telemetry.Config
}

func (c Config) common() Config { return c }

// Configured is the configuration of a service: a struct that embeds Config.
type Configured interface{ common() Config }

// Spec describes a service with the configuration C.
type Spec[C Configured] struct {
	// Name is the service's name: "billing-wallet". Its schema has the same name with underscores.
	Name string
	// Migrations are the migrations of the service. Package app adds the migrations of the outbox
	// and the inbox.
	Migrations fs.FS
	// Heartbeats is the number of connections of Runtime.Heartbeats. If it is 0, the service has no
	// such pool.
	Heartbeats int32
	// Check returns the faults of the configuration. It is called before any connection is opened.
	// Check can be nil.
	Check func(cfg C) error
	// Start returns the parts of the service: the components that run until the service stops. The
	// parts stop in reverse order, before the relay and the private port. If part A causes work for
	// part B, list A after B.
	Start func(ctx context.Context, cfg C, rt *Runtime) ([]service.Part, error)
	// Handlers returns the Kafka handlers for the command replay. The given Runtime has a pool but
	// no relay. Handlers is nil if the service reads no topic.
	Handlers func(cfg C, rt *Runtime) (inbox.Handlers, error)
	// Commands are the additional commands of the service. They can run while replicas are serving.
	Commands []Command[C]
}

// Command is an additional command of one service. The pool that Run receives has a current schema.
type Command[C Configured] struct {
	service.Command[C]
	Run func(ctx context.Context, cfg C, pool *pgxpool.Pool) error
}

// Runtime has the resources that a service uses.
type Runtime struct {
	Telemetry *telemetry.Telemetry
	Keys      *serviceauth.Keys
	Pool      *pgxpool.Pool
	Kafka     *kafka.Client
	Relay     *outbox.Relay
	// Heartbeats is a pool with one connection per heartbeat (Spec.Heartbeats). Its connections are
	// taken from POSTGRES_MAX_CONNS. A heartbeat must not wait for other work: otherwise the other
	// replicas would treat a busy process as dead.
	Heartbeats *pgxpool.Pool

	name      string
	config    Config
	inbox     *inbox.Consumer // nil before Consumer was called
	patient   bool
	workLimit time.Duration
}

// FinishWork lets running work continue for up to limit after SIGTERM. A second signal (SIGTERM or
// SIGINT) ends that work (service.RunPatiently).
func (rt *Runtime) FinishWork(limit time.Duration) { rt.patient, rt.workLimit = true, limit }

// HTTP returns the part that serves a handler on HTTP_ADDR, and the routes of the parked records.
func (rt *Runtime) HTTP(handler http.Handler) service.Part {
	server := &httpserver.Server{Addr: rt.config.HTTP.Addr, Handler: rt.serveParked(handler)}
	return service.Part{Name: "http", Run: server.Run}
}

// Consumer returns the part that reads records from Kafka and passes them to the handlers. A
// service calls it once, in Start.
func (rt *Runtime) Consumer(handlers inbox.Handlers) service.Part {
	rt.inbox = rt.consumer(handlers)
	return service.Part{Name: "consumer", Run: rt.inbox.Run}
}

func (rt *Runtime) consumer(handlers inbox.Handlers) *inbox.Consumer {
	return inbox.NewConsumer(rt.name, rt.config.Kafka, rt.Pool, handlers, rt.Relay, rt.Telemetry.Metrics)
}

// Run is the main function of a service. It does not return.
func Run[C Configured](s Spec[C]) {
	commands := service.Commands[C]{Serve: s.Serve, Migrate: s.migrate}
	if s.Handlers != nil {
		commands.Replay = s.replay
	}
	for _, c := range s.Commands {
		further := c.Command
		further.Run = func(ctx context.Context, cfg C) error { return s.onPool(ctx, cfg, c.Run) }
		commands.Further = append(commands.Further, further)
	}
	service.Main(s.Name, commands)
}

// Schema returns the name of the service's schema.
func (s Spec[C]) Schema() string { return strings.ReplaceAll(s.Name, "-", "_") }

// Tracks returns all migrations of the service's schema.
func (s Spec[C]) Tracks() []pg.Migrations {
	tracks := []pg.Migrations{outbox.Migrations}
	if s.Handlers != nil {
		tracks = append(tracks, inbox.Migrations)
	}
	return append(tracks, pg.Migrations{Name: s.Schema(), FS: s.Migrations})
}

// Serve runs the service until ctx ends.
func (s Spec[C]) Serve(ctx context.Context, cfg C) error {
	config := cfg.common()
	tel, err := telemetry.Start(ctx, config.Telemetry, s.Name)
	if err != nil {
		return err
	}
	defer tel.Close(ctx)
	if s.Check != nil {
		if err := s.Check(cfg); err != nil {
			return err
		}
	}
	keys, err := serviceauth.New(s.Name, config.Trust)
	if err != nil {
		return err
	}
	rt := &Runtime{Telemetry: tel, Keys: keys, name: s.Name, config: config}
	if err := s.openPools(ctx, rt); err != nil {
		return err
	}
	defer rt.closePools()
	pool := rt.Pool
	pg.Pool(pool, tel.Metrics)
	tel.Ready("postgres", pool.Ping)
	client, err := kafka.NewClient(config.Kafka, s.Name, tel.Metrics)
	if err != nil {
		return err
	}
	defer client.Close()
	rt.Kafka, rt.Relay = client, outbox.NewRelay(pool, client, tel.Metrics, config.Outbox)
	parts, err := s.Start(ctx, cfg, rt)
	if err != nil {
		return err
	}
	first := []service.Part{{Name: "private port", Run: tel.Private}, {Name: "outbox relay", Run: rt.Relay.Run}}
	if rt.patient {
		return service.RunPatiently(ctx, rt.workLimit, append(first, parts...)...)
	}
	return service.Run(ctx, append(first, parts...)...)
}

func (s Spec[C]) openPools(ctx context.Context, rt *Runtime) (err error) {
	work := rt.config.Postgres
	if s.Heartbeats > 0 {
		work.MaxConns = max(1, cmp.Or(work.MaxConns, pg.DefaultMaxConns)-s.Heartbeats)
	}
	if rt.Pool, err = pg.Open(ctx, work, s.Schema(), s.Tracks()...); err != nil || s.Heartbeats == 0 {
		return err
	}
	beats := rt.config.Postgres
	beats.MaxConns, beats.MigrateURL = s.Heartbeats, ""
	if rt.Heartbeats, err = pg.Open(ctx, beats, s.Schema()); err != nil {
		rt.Pool.Close()
	}
	return err
}

func (rt *Runtime) closePools() {
	rt.Pool.Close()
	if rt.Heartbeats != nil {
		rt.Heartbeats.Close()
	}
}

func (s Spec[C]) migrate(ctx context.Context, cfg C) error {
	return pg.Migrate(ctx, cfg.common().Postgres.MigrateURL, s.Schema(), s.Tracks()...)
}

// replay applies the parked records of a topic again. It needs no relay, because the serving
// replicas publish the events that the handlers write.
func (s Spec[C]) replay(ctx context.Context, cfg C, topic string) error {
	tel, err := telemetry.Start(ctx, cfg.common().Telemetry, s.Name)
	if err != nil {
		return err
	}
	defer tel.Close(ctx)
	return s.onPool(ctx, cfg, func(ctx context.Context, cfg C, pool *pgxpool.Pool) error {
		rt := &Runtime{Telemetry: tel, Pool: pool, name: s.Name, config: cfg.common()}
		handlers, err := s.Handlers(cfg, rt)
		if err != nil {
			return err
		}
		return rt.consumer(handlers).PutBack(ctx, topic, os.Stdout)
	})
}

// onPool runs f with a pool. It never migrates the schema: if the schema is not current, onPool
// returns an error.
func (s Spec[C]) onPool(
	ctx context.Context, cfg C, f func(ctx context.Context, cfg C, pool *pgxpool.Pool) error,
) error {
	postgres := cfg.common().Postgres
	postgres.MigrateURL = ""
	pool, err := pg.Open(ctx, postgres, s.Schema(), s.Tracks()...)
	if err != nil {
		return err
	}
	defer pool.Close()
	return f(ctx, cfg, pool)
}
