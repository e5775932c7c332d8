// Package pg owns how a service reaches its Postgres schema: the pool, the two roles, forward-only
// migrations under a lock. It knows no table.
package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config is the database part of every service's environment.
type Config struct {
	// URL connects as the running role <schema>_app.
	URL string `env:"POSTGRES_URL,required" help:"database URL of the running role <schema>_app"`
	// MigrateURL connects as the owning role <schema>_owner; empty: migrations are somebody else's job
	// and the service only checks that they ran.
	MigrateURL string `env:"POSTGRES_MIGRATE_URL" help:"database URL of the owning role <schema>_owner; empty: the service checks that somebody migrated and does not migrate itself"`
	// DirectURL is the way past a pooler in transaction mode; empty: there is none.
	DirectURL string `env:"POSTGRES_DIRECT_URL" help:"database URL of the running role past a pooler in transaction mode, for what needs a session of its own (the outbox's relay, listening); empty: POSTGRES_URL leads to Postgres itself"`
	// MaxConns bounds the pool; zero means 16.
	MaxConns int32 `env:"POSTGRES_MAX_CONNS" envDefault:"16" help:"most connections of one process, its one or two sessions apart not counted; 0 means 16"`
	// StatementTimeout ends a statement that hangs; zero means 15 s.
	StatementTimeout time.Duration `env:"POSTGRES_STATEMENT_TIMEOUT" envDefault:"15s" help:"how long one statement may take, as a duration (15s, 500ms); 0 means 15s"`
}

// Migrations is one track of numbered SQL files with its own version table, so that libs' tables
// (outbox, inbox) and the service's move apart.
type Migrations struct {
	// Name is the track: "outbox", "inbox", or the service's schema.
	Name string
	FS   fs.FS
}

// DefaultMaxConns is the size of a pool whose Config.MaxConns is zero.
const DefaultMaxConns = 16

const (
	defaultStatementTimeout = 15 * time.Second
	openPatience            = 30 * time.Second
	connectTimeout          = 5 * time.Second
	// pingTimeout bounds the check of a connection that has rested, so that a database that went away without
	// a word costs a caller seconds, not minutes.
	pingTimeout = 3 * time.Second
	// silence is how long what was sent may stay unacknowledged; the kernel's own patience is a quarter of an hour.
	silence = 30 * time.Second
	// A process that was stopped, or hangs, keeps the rows that it has locked for hungInside when it is between two statements of a
	// transaction, for hungReading when it does not read an answer. Nothing of ours thinks that long with a transaction open.
	hungInside  = 5 * time.Second
	hungReading = 10 * time.Second
)

// Open makes the pool (traced with otelpgx, search_path set to the schema) and waits up to 30 s for the
// database to answer. A transaction that nobody goes on with is ended by the server after 5 s, unless the URL says otherwise
// (idle_in_transaction_session_timeout). With DirectURL set the pool leads through a pooler in transaction mode. With MigrateURL set it migrates first; without, it fails when a track is older than this build.
// Times come back in UTC.
func Open(ctx context.Context, cfg Config, schema string, tracks ...Migrations) (*pgxpool.Pool, error) {
	if cfg.MigrateURL != "" {
		if err := Migrate(ctx, cfg.MigrateURL, schema, tracks...); err != nil {
			return nil, err
		}
	}
	settings, err := poolConfig(cfg, schema)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("open pool of schema %s: %w", schema, err)
	}
	err = patiently(ctx, func(ctx context.Context) error { return checkVersions(ctx, pool, schema, tracks) })
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

func poolConfig(cfg Config, schema string) (*pgxpool.Config, error) {
	settings, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("parse POSTGRES_URL: %w", err)
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = DefaultMaxConns
	}
	if cfg.StatementTimeout == 0 {
		cfg.StatementTimeout = defaultStatementTimeout
	}
	settings.MaxConns = cfg.MaxConns
	settings.PingTimeout = pingTimeout
	settings.MaxConnLifetime = time.Hour
	settings.MaxConnLifetimeJitter = 5 * time.Minute
	equip(settings.ConnConfig, cfg, schema)
	if cfg.DirectURL != "" {
		if err := behindPooler(settings, cfg, schema); err != nil {
			return nil, err
		}
	}
	settings.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		conn.TypeMap().RegisterType(&pgtype.Type{
			Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
		})
		registerUUID(conn.TypeMap())
		return nil
	}
	return settings, nil
}

// equip sets what every connection of the running role has.
func equip(conn *pgx.ConnConfig, cfg Config, schema string) {
	prepare(conn, schema)
	conn.RuntimeParams["statement_timeout"] = milliseconds(cfg.StatementTimeout)
	if _, given := conn.RuntimeParams[idleInside]; !given {
		conn.RuntimeParams[idleInside] = milliseconds(hungInside)
	}
	conn.RuntimeParams["tcp_user_timeout"] = milliseconds(hungReading)
	conn.Tracer = otelpgx.NewTracer(otelpgx.WithDisableAcquireTracer())
}

const idleInside = "idle_in_transaction_session_timeout"

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// prepare sets what every connection of ours has, whichever its role.
func prepare(conn *pgx.ConnConfig, schema string) {
	conn.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize()
	// Statements here read a few rows. Compiling one because its cost was guessed too high takes hundreds of times as long as running it.
	conn.RuntimeParams["jit"] = "off"
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = schema
	}
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = connectTimeout
	}
	dialer := &net.Dialer{Timeout: conn.ConnectTimeout, Control: endSilence, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	conn.DialFunc = dialer.DialContext
}

// past asks BeforeConnect of a pool for the way past the pooler.
type past struct{}

// behindPooler makes the pool fit for a pooler in transaction mode, which gives every transaction another session of the server: nothing is
// set at the start of a connection (the role's own settings hold, see Provision), and no statement is kept prepared unless the URL
// says default_query_exec_mode=cache_statement, for a pooler that follows prepared statements.
func behindPooler(settings *pgxpool.Config, cfg Config, schema string) error {
	direct, err := pgx.ParseConfig(cfg.DirectURL)
	if err != nil {
		return fmt.Errorf("parse POSTGRES_DIRECT_URL: %w", err)
	}
	equip(direct, cfg, schema)
	settings.ConnConfig.RuntimeParams = map[string]string{"application_name": settings.ConnConfig.RuntimeParams["application_name"]}
	if !strings.Contains(cfg.URL, "default_query_exec_mode") {
		settings.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	settings.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error {
		if ctx.Value(past{}) != nil {
			*conn = *direct.Copy()
		}
		return nil
	}
	return nil
}

// Dedicated connects beside the pool: a session that is the caller's alone, to lock and to listen in, and to close. With
// POSTGRES_DIRECT_URL it goes past the pooler.
func Dedicated(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	settings := pool.Config()
	if settings.BeforeConnect != nil {
		if err := settings.BeforeConnect(context.WithValue(ctx, past{}, true), settings.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, settings.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	if settings.AfterConnect != nil {
		if err := settings.AfterConnect(ctx, conn); err != nil {
			_ = conn.Close(ctx)
			return nil, err
		}
	}
	return conn, nil
}

// patiently repeats f while the database is away, up to 30 s.
func patiently(ctx context.Context, f func(context.Context) error) error {
	patience := time.NewTimer(openPatience)
	defer patience.Stop()
	for {
		err := f(ctx)
		if err == nil || !IsDown(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-patience.C:
			return fmt.Errorf("database did not answer within %s: %w", openPatience, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

const maxTries = 5

// InTx runs f in one transaction; a serialization failure or deadlock is tried again (at most 5 times), so f may run
// more than once.
func InTx(ctx context.Context, pool *pgxpool.Pool, f func(pgx.Tx) error) error {
	for try := 1; ; try++ {
		err := pgx.BeginFunc(ctx, pool, f)
		if err == nil || try == maxTries || !isConflict(err) {
			return err
		}
	}
}

func isConflict(err error) bool {
	var fault *pgconn.PgError
	return errors.As(err, &fault) && (fault.Code == "40001" || fault.Code == "40P01")
}
