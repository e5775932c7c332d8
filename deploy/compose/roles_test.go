package compose_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"ringfence.dev/libs/pg"
	"ringfence.dev/test/kit"
)

// forbiddenPrivileges contains the privileges that an application role must not have, by schema and
// table.
var forbiddenPrivileges = map[string]map[string]string{
	"gateway":             {"audit_entries": "UPDATE DELETE TRUNCATE"},
	"calls":               {"abandoned_requests": "UPDATE DELETE TRUNCATE"},
	"contacts_compliance": {"policies": "UPDATE DELETE TRUNCATE", "consent_records": "UPDATE DELETE TRUNCATE", "decisions": "UPDATE DELETE TRUNCATE", "erasures": "DELETE TRUNCATE", "consent_heads": "DELETE TRUNCATE", "consent_starts": "DELETE TRUNCATE"},
	// The application role must not have these privileges. DELETE is permitted, because a trigger
	// refuses to delete fences (the rows that permit a dial) that are younger than 60 days.
	"dialer":             {"fences": "UPDATE TRUNCATE"},
	"billing_wallet":     {"transactions": "UPDATE DELETE TRUNCATE", "ledger_entries": "INSERT UPDATE DELETE TRUNCATE", "holds": "DELETE TRUNCATE", "wallets": "DELETE TRUNCATE"},
	"webhook_dispatcher": {"events": "UPDATE TRUNCATE", "attempts": "UPDATE TRUNCATE"},
}

// commonForbiddenPrivileges contains the forbidden privileges on the tables that every schema has.
var commonForbiddenPrivileges = map[string]string{"outbox": "UPDATE TRUNCATE", "outbox_leases": "INSERT DELETE TRUNCATE",
	"schema_outbox": "INSERT UPDATE DELETE TRUNCATE"}

// The test uses two databases. An administrator without superuser rights has run postgres.sql in
// one of them. The local stack has created the other database.
func TestRoles_AccessOnlyTheirSchema(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: no Postgres is started")
	}
	bin := os.Getenv("RINGFENCE_BIN")
	if bin == "" {
		t.Skip("RINGFENCE_BIN is not set: run `make charts`, which builds the programs and sets it")
	}
	server, err := kit.StartPostgres(bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	super := connected(t, server.URL)
	for _, step := range []string{"CREATE ROLE administrator LOGIN CREATEROLE PASSWORD 'example'", "ALTER DATABASE " + super.Config().Database + " OWNER TO administrator"} {
		if _, err := super.Exec(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	// Managed databases do not provide a superuser.
	administrator := connected(t, in(t, server.URL, "", "administrator", "example"))
	for _, step := range roleStatements(t, administrator) {
		if _, err := administrator.Exec(t.Context(), step); err != nil {
			t.Fatalf("postgres.sql: %v: %s", err, step)
		}
	}
	var owns bool
	if err := super.QueryRow(t.Context(),
		`SELECT bool_or(pg_has_role('administrator', oid, 'USAGE')) FROM pg_roles
			WHERE rolname LIKE '%\_owner' AND rolname <> 'pg_database_owner'`).Scan(&owns); err != nil {
		t.Errorf("who made the roles has kept the rights of an owner: QueryRow: %v", err)
	} else if owns {
		t.Error("who made the roles has kept the rights of an owner: owns = true, want false")
	}
	testRoles(t, bin, server.URL, "postgres.sql")
	if _, err := super.Exec(t.Context(), "CREATE DATABASE provisioned"); err != nil {
		t.Fatal(err)
	}
	second := in(t, server.URL, "provisioned", "", "")
	for _, name := range services {
		if err := pg.Provision(t.Context(), second, strings.ReplaceAll(name, "-", "_"), "example", "example"); err != nil {
			t.Fatal(err)
		}
	}
	testRoles(t, bin, second, "the local stack")
}

// roleStatements returns the statements of postgres.sql. It also executes the query before \gexec
// and adds the statements that the query returns, as psql does.
func roleStatements(t *testing.T, super *pgx.Conn) (steps []string) {
	t.Helper()
	var text []string
	for _, line := range lines(t, "deploy/compose/postgres.sql") {
		if !strings.HasPrefix(line, `\set`) {
			text = append(text, line)
		}
	}
	plain, query, _ := strings.Cut(strings.Join(text, "\n"), "SELECT format")
	steps = append(steps, plain)
	query, _, found := strings.Cut("SELECT format"+query, `\gexec`)
	rows, err := super.Query(t.Context(), query)
	if err != nil {
		t.Fatalf("Query: %v", err)
	}
	if !found {
		t.Fatal("found = false, want true")
	}
	made, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("pgx.CollectRows: %v", err)
	}
	if len(made) != len(services) {
		t.Fatalf("length of made = %d, want %d", len(made), len(services))
	}
	return append(steps, made...)
}

func in(t *testing.T, super, database, role, password string) string {
	t.Helper()
	address, err := url.Parse(super)
	if err != nil {
		t.Fatal(err)
	}
	if database != "" {
		address.Path = "/" + database
	}
	if role != "" {
		address.User = url.UserPassword(role, password)
	}
	return address.String()
}

func connected(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// testRoles migrates a database with the real programs and the environment of Compose, and then
// tests every application role.
func testRoles(t *testing.T, bin, super, by string) {
	t.Helper()
	var all sync.WaitGroup
	for _, name := range services {
		all.Go(func() {
			schema := strings.ReplaceAll(name, "-", "_")
			cmd := exec.Command(filepath.Join(bin, name), "migrate")
			for variable, value := range env(t, name) {
				if role, ok := map[string]string{"POSTGRES_URL": pg.AppRole(schema), "POSTGRES_MIGRATE_URL": pg.OwnerRole(schema)}[variable]; ok {
					value = in(t, super, "", role, "example")
				}
				cmd.Env = append(cmd.Env, variable+"="+value)
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s migrate: %v: %s", name, err, out)
			}
		})
	}
	all.Wait()
	tables := map[string][]string{}
	rows, err := connected(t, super).Query(t.Context(), `SELECT n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p', 'v', 'm') AND pg_get_userbyid(n.nspowner) LIKE '%\_owner'`)
	if err != nil {
		t.Fatal(err)
	}
	var schema, table string
	if _, err := pgx.ForEachRow(rows, []any{&schema, &table}, func() error { tables[schema] = append(tables[schema], table); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, name := range services {
		schema := strings.ReplaceAll(name, "-", "_")
		if len(tables[schema]) < 5 {
			t.Fatalf("%s: only %v were migrated by %s", schema, tables[schema], name)
		}
		role := &roleTester{t, connected(t, in(t, super, "", pg.AppRole(schema), "example")), by + ": " + pg.AppRole(schema)}
		role.wantOnlyOwnSchema(schema, tables)
		role.wantTablePrivileges(schema, forbiddenPrivileges[schema])
		role.wantTablePrivileges(schema, commonForbiddenPrivileges)
		role.wantTablePrivileges(schema, map[string]string{"schema_" + schema: "INSERT UPDATE DELETE TRUNCATE"})
	}
}

type roleTester struct {
	t    *testing.T
	conn *pgx.Conn
	who  string
}

func (i *roleTester) refused(statement string) {
	i.t.Helper()
	_, err := i.conn.Exec(i.t.Context(), statement)
	var fault *pgconn.PgError
	if !errors.As(err, &fault) {
		i.t.Errorf("%s: %s: %v, want an error of Postgres", i.who, statement, err)
		return
	}
	// SQLSTATE 42501 means a missing permission, and 55000 a view that cannot be written.
	if !slices.Contains([]string{"42501", "55000"}, fault.Code) {
		i.t.Errorf("%s: %s: code = %s, want 42501 or 55000", i.who, statement, fault.Code)
	}
}

func (i *roleTester) holds(what, question string, args ...any) {
	i.t.Helper()
	var may bool
	if err := i.conn.QueryRow(i.t.Context(), question, args...).Scan(&may); err != nil {
		i.t.Errorf("%s: %s: %v", i.who, what, err)
	}
	if may {
		i.t.Errorf("%s has the right to %s, want it without", i.who, what)
	}
}

// wantOnlyOwnSchema checks that the role cannot read or write in other schemas, cannot create
// objects, and has no other privileges.
func (i *roleTester) wantOnlyOwnSchema(own string, tables map[string][]string) {
	for schema, names := range tables {
		if schema == own {
			continue
		}
		i.holds("look into "+schema, "SELECT has_schema_privilege($1, 'USAGE') OR has_schema_privilege($1, 'CREATE')", schema)
		for _, name := range names {
			i.refused("SELECT FROM " + schema + "." + name)
			i.refused("DELETE FROM " + schema + "." + name)
		}
	}
	i.holds("use anything of another schema", `SELECT coalesce(bool_or(has_table_privilege(c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') OR has_any_column_privilege(c.oid, 'SELECT, INSERT, UPDATE, REFERENCES')), false)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm') AND pg_get_userbyid(n.nspowner) LIKE '%\_owner' AND n.nspname <> $1`, own)
	for _, statement := range []string{
		"CREATE TABLE mine (id int)", "CREATE TABLE public.mine (id int)", "CREATE TEMPORARY TABLE mine (id int)", "CREATE SCHEMA mine", "CREATE ROLE mine",
		"CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE DATABASE mine", "COPY outbox TO '/tmp/mine'", "DROP SCHEMA " + own,
	} {
		i.refused(statement)
	}
	i.holds("be another", `SELECT rolsuper OR rolcreatedb OR rolcreaterole OR rolreplication OR rolbypassrls OR EXISTS (SELECT FROM pg_auth_members WHERE member = r.oid)
		FROM pg_roles r WHERE rolname = current_user`)
}

// wantTablePrivileges checks the privileges of the role on the tables of its schema.
func (i *roleTester) wantTablePrivileges(schema string, forbidden map[string]string) {
	for table, deeds := range forbidden {
		for deed := range strings.FieldsSeq(deeds) {
			question := "SELECT has_table_privilege($1, $2)"
			if deed == "UPDATE" || deed == "INSERT" {
				question = "SELECT has_table_privilege($1, $2) OR has_any_column_privilege($1, $2)"
			}
			i.holds(deed+" "+table, question, schema+"."+table, deed)
		}
		if strings.Contains(deeds, "DELETE") {
			i.refused("DELETE FROM " + table)
		}
	}
}
