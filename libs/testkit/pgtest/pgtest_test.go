package pgtest

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestNew_DropsTheDatabaseAfterTheTest(t *testing.T) {
	var name string
	t.Run("test with a database", func(t *testing.T) {
		pool := New(t, "pgtest")
		name = pool.Config().ConnConfig.Database
		if got := databases(t, name); got != 1 {
			t.Errorf("databases called %s during the test = %d, want 1", name, got)
		}
	})
	if got := databases(t, name); got != 0 {
		t.Errorf("databases called %s after the test = %d, want 0", name, got)
	}
}

func TestAdminConn_ReconnectsIfTheConnectionIsClosed(t *testing.T) {
	if databases(t, "postgres") == 0 {
		t.Fatal("the server has no database postgres")
	}
	closeConn := func(admin *pgx.Conn) error { return admin.Close(t.Context()) }
	err := serverConn.withConn(t.Context(), os.Getenv(serverVariable), closeConn)
	if err != nil {
		t.Fatal(err)
	}
	if got := databases(t, "postgres"); got != 1 {
		t.Errorf("databases called postgres after reconnecting = %d, want 1", got)
	}
}

func databases(t *testing.T, name string) (n int) {
	t.Helper()
	super := os.Getenv(serverVariable)
	if super == "" {
		t.Skipf("%s is not set", serverVariable)
	}
	err := serverConn.withConn(t.Context(), super, func(admin *pgx.Conn) error {
		return admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname = $1", name).Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
