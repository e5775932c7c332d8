package main

import (
	"errors"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/compliancev1"
)

// The connection breaks after the commit of the fence and before its response. No other process
// takes the call over, so this process itself must find out whether the commit succeeded.
func TestFence_RequestIsDialedOnceIfTheCommitResponseIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	cut := newCutter(t, r.pool.Config().ConnConfig.Host, r.pool.Config().ConnConfig.Port)
	r.dialer("POSTGRES_URL=" + cut.through(t, r.pool.Config().ConnString()))
	release := lockFences(t, r)
	id := r.request("+14155550201")
	super := pgtest.Super(t, r.pool, serviceName)
	await(t, "the insert of the fence is delayed", func() bool {
		var port int32
		err := super.QueryRow(t.Context(), `SELECT client_port FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event = 'PgSleep' AND query LIKE '%INSERT INTO fences%'`).Scan(&port)
		cut.port.Store(port)
		return err == nil
	})
	release()
	if facts := r.ends(id); names(facts) != talked {
		t.Errorf("facts = %s", names(facts))
	}
	if n := len(r.log("originate", "+14155550201")); n != 1 {
		t.Errorf("dialed %d times, want once", n)
	}
	if !cut.done.Load() {
		t.Errorf("the commit was not cut off")
	}
}

// The workspace is suspended after the commit of the fence. The gates in contacts-compliance still
// permit the call, so the dialer itself must block it.
func TestFence_SuspensionAfterTheFenceBlocksTheCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	r.dialer()
	release := lockFences(t, r)
	id := r.request("+14155550202")
	waitUntilTooOld(t, r, id)
	r.announce(false, false)
	await(t, "the dialer has stored the suspension", func() bool {
		var enabled bool
		err := r.pool.QueryRow(t.Context(), "SELECT api_enabled FROM workspaces").Scan(&enabled)
		return err == nil && !enabled
	})
	release()
	facts := r.ends(id)
	if got := names(facts); got != "dialing blocked" {
		t.Errorf(`facts: names(facts) = %q, want "dialing blocked"`, got)
	} else if got := last(facts).GetBlocked().GetErrorCode(); got != "api_not_enabled" {
		t.Errorf(`facts: last(facts).GetBlocked().GetErrorCode() = %q, want "api_not_enabled"`, got)
	}
	if n := len(r.log("originate", "+14155550202")); n != 0 {
		t.Errorf("dialed %d times for a suspended workspace", n)
	}
}

func TestOptOut_RefusedReportDoesNotDelayOtherReports(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	r.gate.optOut = func(int) error {
		if r.gate.optOuts[len(r.gate.optOuts)-1].GetPhoneE164() == "+14155550203" {
			return connect.NewError(connect.CodeInvalidArgument, errors.New("not this one"))
		}
		return nil
	}
	for _, number := range []string{"+14155550203", "+14155550204"} {
		_, err := r.pool.Exec(t.Context(), `INSERT INTO opt_outs (call_id, workspace_id, phone_e164, evidence, heard_at) VALUES ($1, $2, $3, 'stop', now())`,
			uuid.Must(uuid.NewV7()), r.workspace, number)
		if err != nil {
			t.Fatal(err)
		}
	}
	r.dialer()
	await(t, "the other opt-out is acknowledged", func() bool {
		var n int
		err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM opt_outs WHERE acknowledged_at IS NOT NULL").Scan(&n)
		return err == nil && n == 1
	})
	if got := r.gate.heard("+14155550204"); got != 1 {
		t.Errorf(`r.gate.heard("+14155550204") = %v, want 1`, got)
	} else if r.gate.heard("+14155550203") == 0 {
		t.Error(`r.gate.heard("+14155550203") = 0, want more`)
	}
}

// cuttingProxy forwards connections to Postgres. If port is set, cuttingProxy drops the next
// response of Postgres on the connection with this local port, and closes the connection.
type cuttingProxy struct {
	addr, target string
	port         atomic.Int32
	done         atomic.Bool
}

func newCutter(t *testing.T, host string, port uint16) *cuttingProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cuttingProxy{addr: listener.Addr().String(), target: net.JoinHostPort(host, strconv.Itoa(int(port)))}
	var open sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); open.Wait() })
	open.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { c.serve(in) })
		}
	})
	return c
}

func (c *cuttingProxy) through(t *testing.T, conn string) string {
	t.Helper()
	u, err := url.Parse(conn)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = c.addr
	return u.String()
}

func (c *cuttingProxy) serve(in net.Conn) {
	defer func() { _ = in.Close() }()
	out, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	own := int32(out.LocalAddr().(*net.TCPAddr).Port)
	pump := func(from, to net.Conn, look func() bool) {
		defer func() { _, _ = from.Close(), to.Close() }()
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 && look() {
				return
			}
			if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	var both sync.WaitGroup
	both.Go(func() { pump(in, out, func() bool { return false }) })
	both.Go(func() {
		// Postgres sends the results of the insert and of the commit in one response. Dropping this
		// response also drops the response to the commit.
		pump(out, in, func() bool {
			mine := c.port.Load() == own
			if mine {
				c.done.Store(true)
			}
			return mine
		})
	})
	both.Wait()
}

func TestDial_RepeatsTheCheckUntilTheGatesAreAvailable(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	r.gate.answer = func(_ *compliancev1.CheckRequest, times int) (*compliancev1.CheckResponse, error) {
		if times <= 2 {
			return nil, connect.NewError(connect.CodeUnavailable, errors.New("away"))
		}
		return open(), nil
	}
	r.dialer()
	id := r.request("+14155550113")
	if got := names(r.ends(id)); got != talked {
		t.Errorf("events = %q, want %q", got, talked)
	}
	if got := r.gate.asked(id); got < 3 {
		t.Errorf("dial-time checks = %d, want at least 3", got)
	}
}
