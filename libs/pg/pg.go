// Package pg connects a service to its Postgres schema. It contains the connection pool, the two
// roles of a schema, migrations, transactions and metrics.
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

// Config contains the settings of Postgres.
type Config struct {
	// URL is the URL of the database with the role <schema>_app, which the service uses at run time.
	URL string `env:"POSTGRES_URL,required" help:"URL of the database with the role <schema>_app, which the service uses at run time."`
	// MigrateURL is the URL of the database with the role <schema>_owner, which owns the schema. If it
	// is empty, the service does not migrate the schema, and only checks its versions.
	MigrateURL string `env:"POSTGRES_MIGRATE_URL" help:"URL of the database with the role <schema>_owner, which owns the schema. The service then migrates its schema at its start. If empty, the service only checks that the schema is current."`
	// DirectURL is a URL of the database that bypasses a pooler in transaction mode. If it is empty,
	// there is no pooler.
	DirectURL string `env:"POSTGRES_DIRECT_URL" help:"URL of the database that bypasses a pooler in transaction mode. The outbox relay and LISTEN use it, because they need sessions. If empty, POSTGRES_URL must connect without a pooler."`
	// MaxConns is the maximum number of connections in the pool. 0 means DefaultMaxConns.
	MaxConns int32 `env:"POSTGRES_MAX_CONNS" envDefault:"16" help:"Maximum number of connections in the pool of one process, which opens one or two more outside of the pool. If it is too small, requests wait for a connection. All processes together must stay below max_connections of Postgres. 0 means 16."`
	// StatementTimeout is the timeout of a statement. 0 means 15 s.
	StatementTimeout time.Duration `env:"POSTGRES_STATEMENT_TIMEOUT" envDefault:"15s" help:"Maximum duration of one SQL statement. Postgres cancels a longer one. 0 means 15s."`
}

// Migrations is one track of migrations: numbered SQL files with a separate version table. The
// tables of the outbox, of the inbox and of the service are separate tracks.
type Migrations struct {
	// Name is "outbox", "inbox", or the name of the service's schema.
	Name string
	FS   fs.FS
}

// DefaultMaxConns is used if Config.MaxConns is 0.
const DefaultMaxConns = 16

const (
	defaultStatementTimeout = 15 * time.Second
	openTimeout             = 30 * time.Second
	connectTimeout          = 5 * time.Second
	// pingTimeout limits the check of an idle connection. If the server no longer responds, a caller
	// waits for seconds and not for minutes.
	pingTimeout = 3 * time.Second
	// unackedTimeout is how long sent data may stay unacknowledged before the connection is closed.
	// The default of the kernel is 15 minutes.
	unackedTimeout = 30 * time.Second
	// A process that hangs keeps its row locks. So the server ends a transaction that is idle for
	// idleTimeout, or whose client does not read a response for unreadTimeout.
	idleTimeout   = 5 * time.Second
	unreadTimeout = 10 * time.Second
)

// Open returns a pool of connections to the schema. It waits up to 30 s for the database. If
// cfg.MigrateURL is set, Open migrates the schema first. Otherwise it returns an error if the
// database lacks migrations that this version needs.
//
// Open returns ErrOldSchema for a schema that was created before the first release, because it
// cannot be migrated. Times are returned in UTC. The server ends a transaction that is idle for 5
// s, unless cfg.URL sets idle_in_transaction_session_timeout.
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
	err = retryUntilUp(ctx, func(ctx context.Context) error { return checkVersions(ctx, pool, schema, tracks) })
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
	applyAppSettings(settings.ConnConfig, cfg, schema)
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

// applyAppSettings applies the settings of all connections with the application role.
func applyAppSettings(conn *pgx.ConnConfig, cfg Config, schema string) {
	applySettings(conn, schema)
	conn.RuntimeParams["statement_timeout"] = milliseconds(cfg.StatementTimeout)
	if _, given := conn.RuntimeParams[idleInTransaction]; !given {
		conn.RuntimeParams[idleInTransaction] = milliseconds(idleTimeout)
	}
	conn.RuntimeParams["tcp_user_timeout"] = milliseconds(unreadTimeout)
	conn.Tracer = otelpgx.NewTracer(otelpgx.WithDisableAcquireTracer())
}

const idleInTransaction = "idle_in_transaction_session_timeout"

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// applySettings applies the settings of all connections, for both roles.
func applySettings(conn *pgx.ConnConfig, schema string) {
	conn.RuntimeParams["search_path"] = pgx.Identifier{schema}.Sanitize()
	// The queries read few rows. If the planner overestimates the cost of a query, Postgres compiles
	// it, which takes much longer than running it.
	conn.RuntimeParams["jit"] = "off"
	if conn.RuntimeParams["application_name"] == "" {
		conn.RuntimeParams["application_name"] = schema
	}
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = connectTimeout
	}
	dialer := &net.Dialer{Timeout: conn.ConnectTimeout, Control: setUnackedTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	conn.DialFunc = dialer.DialContext
}

// bypassKey is the key of a context value. With this value, the pool's BeforeConnect function
// bypasses the pooler.
type bypassKey struct{}

// behindPooler adapts the pool to a pooler in transaction mode. The connections set no parameters,
// because the role has these settings (see Provision). Statements are not prepared, unless the URL
// contains default_query_exec_mode=cache_statement.
func behindPooler(settings *pgxpool.Config, cfg Config, schema string) error {
	direct, err := pgx.ParseConfig(cfg.DirectURL)
	if err != nil {
		return fmt.Errorf("parse POSTGRES_DIRECT_URL: %w", err)
	}
	applyAppSettings(direct, cfg, schema)
	settings.ConnConfig.RuntimeParams = map[string]string{"application_name": settings.ConnConfig.RuntimeParams["application_name"]}
	if !strings.Contains(cfg.URL, "default_query_exec_mode") {
		settings.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	settings.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error {
		if ctx.Value(bypassKey{}) != nil {
			*conn = *direct.Copy()
		}
		return nil
	}
	return nil
}

// Dedicated opens a connection outside of the pool, for locks and LISTEN. If POSTGRES_DIRECT_URL is
// set, it bypasses the pooler. The caller must close the connection.
func Dedicated(ctx context.Context, pool *pgxpool.Pool) (*pgx.Conn, error) {
	settings := pool.Config()
	if settings.BeforeConnect != nil {
		if err := settings.BeforeConnect(context.WithValue(ctx, bypassKey{}, true), settings.ConnConfig); err != nil {
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

// retryUntilUp repeats f while the database is unavailable, for up to 30 s.
func retryUntilUp(ctx context.Context, f func(context.Context) error) error {
	timeout := time.NewTimer(openTimeout)
	defer timeout.Stop()
	for {
		err := f(ctx)
		if err == nil || !IsDown(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-timeout.C:
			return fmt.Errorf("database did not respond within %s: %w", openTimeout, err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

const maxTries = 5

// InTx runs f in a transaction. After a serialization failure or a deadlock, it runs f again, up to
// 5 times in total.
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
