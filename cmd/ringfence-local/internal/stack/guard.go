package stack

import (
	"encoding/binary"
	"errors"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Limits on the size of a Kafka request, in bytes without the size field. The smallest request has
// an API key, an API version and a correlation id. The largest accepted request is far larger than
// any request of our clients.
const (
	leastFrame = 8
	mostFrame  = 100 << 20
	headBytes  = 8 // the size, API key and API version of a Kafka request
)

var errNotKafka = errors.New("not a Kafka request: connection dropped")

// guardListener returns a listener that closes a connection on a huge frame or an unknown request
// type. kfake would dereference nil on an unknown request type.
func guardListener(ln net.Listener, advertised string) net.Listener {
	return guardedListener{ln, advertised}
}

type guardedListener struct {
	net.Listener
	advertised string // the address that kfake sends to its clients, or empty for the address of Listener
}

type address string

func (address) Network() string  { return "tcp" }
func (a address) String() string { return string(a) }

func (g guardedListener) Addr() net.Addr {
	if g.advertised == "" {
		return g.Listener.Addr()
	}
	return address(g.advertised)
}

func (g guardedListener) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &guardedConn{Conn: conn}, nil
}

// guardedConn checks the header of each frame before it passes on the first byte of the frame. Only
// one goroutine reads a connection.
type guardedConn struct {
	net.Conn
	head [headBytes]byte
	// ready contains the bytes of the header that Read has not returned yet. body is the number of
	// remaining bytes of the frame.
	ready []byte
	body  uint32
}

func (w *guardedConn) Read(into []byte) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	if len(w.ready) == 0 && w.body == 0 {
		if err := w.next(); err != nil {
			return 0, err
		}
	}
	if len(w.ready) > 0 {
		n := copy(into, w.ready)
		w.ready = w.ready[n:]
		return n, nil
	}
	if uint64(len(into)) > uint64(w.body) {
		into = into[:w.body]
	}
	n, err := w.Conn.Read(into)
	w.body -= uint32(n)
	return n, err
}

func (w *guardedConn) next() error {
	for have := 0; have < headBytes; {
		n, err := w.Conn.Read(w.head[have:])
		have += n
		if err != nil && have < headBytes {
			return err
		}
	}
	size := binary.BigEndian.Uint32(w.head[:])
	key := int16(binary.BigEndian.Uint16(w.head[4:]))
	if size < leastFrame || size > mostFrame || kmsg.RequestForKey(key) == nil {
		_ = w.Close()
		return errNotKafka
	}
	w.ready, w.body = w.head[:], size-(headBytes-4)
	return nil
}
