package pg_test

import (
	"net"
	"testing"
)

// The server is still sending the result of a statement. So idle_in_transaction_session_timeout
// does not apply to the session.
func TestOpen_EndsSessionsThatDoNotReadTheirResults(t *testing.T) {
	t.Parallel()
	pool, id, tx := lockedRow(t)
	conn := tx.Conn().PgConn()
	if _, overTCP := conn.Conn().(*net.TCPConn); !overTCP {
		return // on a Unix socket, the server cannot detect a client that does not read
	}
	if _, err := tx.Exec(t.Context(), "SET LOCAL tcp_user_timeout = '500ms'"); err != nil {
		t.Fatal(err)
	}
	answers := conn.Exec(t.Context(), "SELECT repeat('x', 1000000) FROM generate_series(1, 200)")
	changeRow(t, pool, id)
	if err := answers.Close(); err == nil {
		t.Error("the whole result arrived, want an error")
	}
}
