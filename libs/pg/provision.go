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

// OwnerRole and AppRole name the two roles of a schema: the first migrates and owns, the second is what the service runs as.
func OwnerRole(schema string) string { return schema + "_owner" }

// AppRole is the running role's name.
func AppRole(schema string) string { return schema + "_app" }

// roleTries is how often Provision is up against others at once.
const roleTries = 20

// Provision creates a schema with its owning and running role (passwords given), default
// privileges and the running role's settings included, as a superuser. It is idempotent. No other role gets any right on it.
func Provision(ctx context.Context, superURL, schema, ownerPassword, appPassword string) error {
	settings, err := pgx.ParseConfig(superURL)
	if err != nil {
		return fmt.Errorf("parse superuser URL: %w", err)
	}
	var conn *pgx.Conn
	err = patiently(ctx, func(ctx context.Context) error {
		conn, err = pgx.ConnectConfig(ctx, settings)
		return err
	})
	if err != nil {
		return fmt.Errorf("provision schema %s: %w", schema, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()

	for try := 1; ; try++ {
		err = provision(ctx, conn, schema, ownerPassword, appPassword)
		// Roles belong to the whole cluster: another database may be provisioned this instant.
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
		return fmt.Errorf("ask for the database's name: %w", err)
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
			// What a connection of ours sets at its start (prepare, equip), for those that a pooler opens.
			"ALTER ROLE " + app + " SET search_path = " + name,
			"ALTER ROLE " + app + " SET jit = off",
			"ALTER ROLE " + app + " SET statement_timeout = " + milliseconds(defaultStatementTimeout),
			"ALTER ROLE " + app + " SET " + idleInside + " = " + milliseconds(hungInside),
			"ALTER ROLE " + app + " SET tcp_user_timeout = " + milliseconds(hungReading),
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

// provisionRole makes the role when it is missing and sets its password either way.
func provisionRole(ctx context.Context, conn *pgx.Conn, role, password string) error {
	var exists bool
	err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", role).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for role %s: %w", role, err)
	}
	verb := "CREATE"
	if exists {
		verb = "ALTER"
	}
	// The password never stands in an error: the statement is not wrapped into it.
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
	// duplicate_object and unique_violation: made by another; XX000 is "tuple concurrently updated".
	return fault.Code == "42710" || fault.Code == "23505" || fault.Code == "XX000"
}
