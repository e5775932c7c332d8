package pg_test

import (
	"net"
	"testing"
)

// TestOpen_AnswerThatIsNotReadIsEnded: the server is not idle in such a transaction, it writes.
func TestOpen_AnswerThatIsNotReadIsEnded(t *testing.T) {
	t.Parallel()
	pool, id, tx := aThing(t)
	conn := tx.Conn().PgConn()
	if _, overTCP := conn.Conn().(*net.TCPConn); !overTCP {
		return // who reads no Unix socket is known only when it closes
	}
	if _, err := tx.Exec(t.Context(), "SET LOCAL tcp_user_timeout = '500ms'"); err != nil {
		t.Fatal(err)
	}
	answers := conn.Exec(t.Context(), "SELECT repeat('x', 1000000) FROM generate_series(1, 200)")
	change(t, pool, id)
	if err := answers.Close(); err == nil {
		t.Error("the whole answer came in the end")
	}
}
