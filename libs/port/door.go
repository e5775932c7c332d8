package port

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// settle is how long connections that are being made may take to arrive at a door that is being shut, counted from the last.
const settle = 25 * time.Millisecond

// Door is an open port that can be shut without failing anybody: the kernel resets the connections that a closed listener had not accepted yet,
// although their clients see them as made.
type Door struct {
	*net.TCPListener
	shutting atomic.Bool
}

// Accept waits for the next connection. Once the door is shut it answers those who stand there already, and then net.ErrClosed.
func (d *Door) Accept() (net.Conn, error) {
	for {
		conn, err := d.AcceptTCP()
		if err == nil {
			return conn, nil
		}
		if !d.shutting.Load() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err //nolint:wrapcheck // whoever serves looks at it
		}
		if !d.someWait() {
			return nil, net.ErrClosed
		}
		if err := d.SetDeadline(time.Now().Add(settle)); err != nil {
			return nil, err //nolint:wrapcheck // as above
		}
	}
}

// Shut lets nobody new knock: the kernel drops the first packet of a new connection, and its client tries again within a second, when
// another replica has the port or nobody. It answers false where the system cannot do that (it is Linux that can); the door stays open then.
func (d *Door) Shut() bool {
	if err := d.turnAway(); err != nil {
		return false
	}
	d.shutting.Store(true)
	return d.SetDeadline(time.Now().Add(settle)) == nil
}
