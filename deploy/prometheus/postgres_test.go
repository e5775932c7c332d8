package prometheus_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// postgresNames lists the names of Postgres 15 and PgBouncer 1.18 that the database runbooks can
// contain: settings, functions, tables, files and programs.
var postgresNames = []string{
	"archive_command", "archive_mode", "archive_timeout", "hot_standby", "max_connections", "primary_conninfo", "recovery_target_action", "recovery_target_time", "restore_command",
	"superuser_reserved_connections", "synchronous_commit", "synchronous_standby_names", "wal_level",
	"pg_advisory_xact_lock", "pg_is_in_recovery", "pg_promote", "pg_control_checkpoint", "pg_last_wal_replay_lsn", "pg_shadow", "pg_stat_activity", "pg_stat_replication", "pg_stat_wal_receiver", "pg_switch_wal", "pg_wal", "touch recovery.signal", "touch standby.signal",
	"pg_basebackup", "pg_ctl", "pg_dump", "pg_receivewal", "pg_rewind", "pg_verifybackup",
	"auth_query", "default_pool_size", "max_client_conn", "max_prepared_statements",
}

func TestRunbooks_DatabaseTablesExist(t *testing.T) {
	t.Parallel()
	tables := 0
	for name, text := range pagesOf(t) {
		for _, found := range table.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(name, "postgres-") || found[2] == "md" {
				continue
			}
			if tables++; !schemaCreates(t, found[1], found[2]) {
				t.Errorf("%s names %s, which no migration makes", name, found[0])
			}
		}
	}
	if tables == 0 {
		t.Error("the pages name no table")
	}
	if schemaCreates(t, "dialer", "dreams") {
		t.Error("made reports a table that no migration creates")
	}
}

// schemaCreates reports whether a migration of the schema, or of a package in libs, creates a table
// or a function with this name.
func schemaCreates(t *testing.T, schema, name string) bool {
	t.Helper()
	files, err := filepath.Glob("../../services/" + strings.ReplaceAll(schema, "_", "-") + "/internal/store/migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatalf("%s has no migrations", schema)
	}
	shared, err := filepath.Glob("../../libs/*/migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, shared...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?m)^CREATE (TABLE|VIEW|(OR REPLACE )?FUNCTION) ` + name + `\b`).Match(text) {
			return true
		}
	}
	return false
}

func TestRunbooks_ConnectionNumbersMatchTheCode(t *testing.T) {
	t.Parallel()
	of := func(file, pattern string) int {
		t.Helper()
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no %s", file, pattern)
		}
		n, err := strconv.Atoi(string(found[1]))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	pool := of("libs/pg/pg.go", `env:"POSTGRES_MAX_CONNS" envDefault:"(\d+)"`)
	one := 6 * (pool + 1)
	charts := 2*one + 4*(pool+1) + 6*2
	page := pagesOf(t)["postgres-connections.md"]
	for _, words := range []string{
		fmt.Sprintf("| each of the six | %d | 1 |", pool),
		fmt.Sprintf("Each replica can hold %d connections.", pool+1),
		fmt.Sprintf("can together hold **%d**.", one),
		fmt.Sprintf("With two replicas each, they can hold %d.", 2*one),
		fmt.Sprintf("| %d + 12 for six migrations = %d | %d |", one, one+12,
			of("docker-compose.yml", `max_connections=(\d+)`)),
		fmt.Sprintf("| %d + 4 × %d during an update + 12 for six migrations = %d | %d |", 2*one, pool+1, charts,
			of("helm/ringfence/values.yaml", `maxConnections: (\d+)`)),
		"add 3 for `superuser_reserved_connections` and 10 for people",
	} {
		if !strings.Contains(page, words) {
			t.Errorf("postgres-connections.md does not say: %s", words)
		}
	}
	if reserved := of("helm/ringfence/values.yaml", `reserved: (\d+)`); reserved != 3+10 {
		t.Errorf("the charts keep %d", reserved)
	}
}
