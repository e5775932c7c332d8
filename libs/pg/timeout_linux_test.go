package pg_test

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/testkit/pgtest"
)

func TestOpen_ConnectionsTimeOutOnUnacknowledgedData(t *testing.T) {
	t.Parallel()
	conn, err := pgtest.New(t, "unackedTimeout", outbox.Migrations).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	socket, ok := conn.Conn().PgConn().Conn().(*net.TCPConn)
	if !ok {
		return // a Unix socket has no TCP_USER_TIMEOUT
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var milliseconds int
	if err := raw.Control(func(fd uintptr) {
		milliseconds, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}); err != nil {
		t.Errorf("TCP_USER_TIMEOUT: Control: %v", err)
	} else if milliseconds != 30_000 {
		t.Errorf("TCP_USER_TIMEOUT: milliseconds = %v, want 30_000", milliseconds)
	}
}
