package dial_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/services/dialer/internal/callstate"
	"ringfence.dev/services/dialer/internal/carrier"
)

// cuttingConn is a database connection that closes instead of returning the response to the second
// commit.
type cuttingConn struct {
	net.Conn
	fencing, committing atomic.Bool
	cut                 *atomic.Bool
}

func (c *cuttingConn) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("UPDATE dial_queue q SET traceparent")) {
		c.fencing.Store(true)
	}
	if c.fencing.Load() && bytes.Contains(p, []byte("commit")) {
		c.committing.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *cuttingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.committing.Load() && n > 0 && c.cut.CompareAndSwap(false, true) {
		_ = c.Conn.Close()
		return 0, errors.New("the connection was cut")
	}
	return n, err
}

// The fence for the second trunk is committed, but the response to the commit is lost. No other
// process dials the request, so this process must find out that the commit succeeded.
func TestTryNextTrunk_DialsIfTheCommitResponseIsLost(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		first func(carrier.Originate) error
	}{
		{name: "the first trunk is overloaded", first: refuse(callstate.NormalTemporaryFailure, "one")},
		{name: "the first trunk refuses the operator's account", first: operatorFault("one")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d, cut := newFixture(t), &atomic.Bool{}
			settings := d.pool.Config()
			settings.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				return &cuttingConn{Conn: conn, cut: cut}, err
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), settings)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			d.pool = pool
			d.dialAll(&fakeCarrier{answers: []func(carrier.Originate) error{tt.first, accept}})
			if !cut.Load() {
				t.Error("cut = false, want the commit to be cut")
			}
			if got, want := d.calls(), []string{"void", "initiated"}; !slices.Equal(got, want) {
				t.Errorf("calls = %q, want %q", got, want)
			}
			state, inUse, _ := d.state()
			if want := "dialing"; state != want {
				t.Errorf("state = %q, want %q", state, want)
			}
			if inUse != 1 {
				t.Errorf("inUse = %d, want 1", inUse)
			}
		})
	}
}
