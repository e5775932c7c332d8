package pg

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// OwnerRole returns the name of the role that owns a schema and migrates it.
func OwnerRole(schema string) string { return schema + "_owner" }

// AppRole returns the name of the role that the service uses at run time.
func AppRole(schema string) string { return schema + "_app" }

// roleTries is the maximum number of attempts of Provision. An attempt fails if another process
// changes the same roles concurrently.
const roleTries = 20

// Provision creates a schema with its two roles, their passwords, default privileges and settings.
// It needs a superuser, and can be called again. Other roles get no access to the schema.
func Provision(ctx context.Context, superURL, schema, ownerPassword, appPassword string) error {
	settings, err := pgx.ParseConfig(superURL)
	if err != nil {
		return fmt.Errorf("parse superuser URL: %w", err)
	}
	var conn *pgx.Conn
	err = retryUntilUp(ctx, func(ctx context.Context) error {
		conn, err = pgx.ConnectConfig(ctx, settings)
		return err
	})
	if err != nil {
		return fmt.Errorf("provision schema %s: %w", schema, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()

	for try := 1; ; try++ {
		err = provision(ctx, conn, schema, ownerPassword, appPassword)
		// Roles belong to the whole cluster. So Provision for another database can conflict with this
		// call.
		if err == nil || try == roleTries || !isRoleRace(err) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(50 * time.Millisecond)):
		}
	}
	if err != nil {
		return fmt.Errorf("provision schema %s: %w", schema, err)
	}
	return nil
}

func provision(ctx context.Context, conn *pgx.Conn, schema, ownerPassword, appPassword string) error {
	if err := provisionRole(ctx, conn, OwnerRole(schema), ownerPassword); err != nil {
		return err
	}
	if err := provisionRole(ctx, conn, AppRole(schema), appPassword); err != nil {
		return err
	}
	var database string
	if err := conn.QueryRow(ctx, "SELECT current_database()").Scan(&database); err != nil {
		return fmt.Errorf("read the name of the database: %w", err)
	}
	db, name := pgx.Identifier{database}.Sanitize(), pgx.Identifier{schema}.Sanitize()
	owner, app := pgx.Identifier{OwnerRole(schema)}.Sanitize(), pgx.Identifier{AppRole(schema)}.Sanitize()
	defaults := "ALTER DEFAULT PRIVILEGES FOR ROLE " + owner + " IN SCHEMA " + name
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, statement := range []string{
			"CREATE SCHEMA IF NOT EXISTS " + name + " AUTHORIZATION " + owner,
			"ALTER SCHEMA " + name + " OWNER TO " + owner,
			"REVOKE ALL ON SCHEMA " + name + " FROM PUBLIC",
			"REVOKE CREATE ON SCHEMA public FROM PUBLIC",
			"REVOKE TEMPORARY ON DATABASE " + db + " FROM PUBLIC",
			"GRANT CONNECT ON DATABASE " + db + " TO " + owner + ", " + app,
			"GRANT USAGE ON SCHEMA " + name + " TO " + app,
			defaults + " GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO " + app,
			defaults + " GRANT USAGE ON SEQUENCES TO " + app,
			// On direct connections, applySettings and applyAppSettings set these parameters. A pooler does
			// not pass them on, so the role needs them too.
			"ALTER ROLE " + app + " SET search_path = " + name,
			"ALTER ROLE " + app + " SET jit = off",
			"ALTER ROLE " + app + " SET statement_timeout = " + milliseconds(defaultStatementTimeout),
			"ALTER ROLE " + app + " SET " + idleInTransaction + " = " + milliseconds(idleTimeout),
			"ALTER ROLE " + app + " SET tcp_user_timeout = " + milliseconds(unreadTimeout),
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

// provisionRole creates the role if it does not exist, and sets its password.
func provisionRole(ctx context.Context, conn *pgx.Conn, role, password string) error {
	var exists bool
	err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role).Scan(&exists)
	if err != nil {
		return fmt.Errorf("find role %s: %w", role, err)
	}
	verb := "CREATE"
	if exists {
		verb = "ALTER"
	}
	// The error must not contain the statement, because the statement contains the password.
	var statement string
	err = conn.QueryRow(ctx, `SELECT format(
		'%s ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION PASSWORD %L', $1::text, $2::text, $3::text)`,
		verb, role, password).Scan(&statement)
	if err != nil {
		return fmt.Errorf("quote role %s: %w", role, err)
	}
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s role %s: %w", verb, role, err)
	}
	return nil
}

func isRoleRace(err error) bool {
	var fault *pgconn.PgError
	if !errors.As(err, &fault) {
		return false
	}
	// duplicate_object and unique_violation mean that another process has created the role. XX000 is
	// "tuple concurrently updated".
	return fault.Code == "42710" || fault.Code == "23505" || fault.Code == "XX000"
}
