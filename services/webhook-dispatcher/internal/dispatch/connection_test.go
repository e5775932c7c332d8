package dispatch

import (
	"context"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/ssrf"
	"ringfence.dev/services/webhook-dispatcher/internal/deliveries"
)

// nameServer is a DNS server that responds with the next address of v4 or v6 and repeats the last
// one. For an invalid address, the response contains no address.
type nameServer struct {
	mu     sync.Mutex
	v4, v6 []netip.Addr
}

func (n *nameServer) next(kind uint16) netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := map[uint16]*[]netip.Addr{1: &n.v4, 28: &n.v6}[kind]
	if list == nil {
		return netip.Addr{}
	}
	first := (*list)[0]
	if len(*list) > 1 {
		*list = (*list)[1:]
	}
	return first
}

// resolver returns a resolver that queries the name server over UDP on loopback (RFC 1035, section
// 4.2.1).
func (n *nameServer) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	go func() {
		defer close(done)
		for buf := make([]byte, 1500); ; {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			end := 12
			for end < size && buf[end] != 0 {
				end += int(buf[end]) + 1
			}
			if end+5 > size {
				continue
			}
			kind := binary.BigEndian.Uint16(buf[end+1:])
			response := append([]byte{buf[0], buf[1], 0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0}, buf[12:end+5]...)
			if addr := n.next(kind); addr.IsValid() {
				data := addr.AsSlice()
				response[7] = 1
				response = append(response, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(data)))
				response = append(response, data...)
			}
			_, _ = conn.WriteTo(response, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

var errDialRefused = errors.New("the test refuses every connection")

// The host name first resolves to a public address and then to a private address. The client must
// check the address of each connection.
func TestSend_ChecksTheAddressAtEachConnection(t *testing.T) {
	t.Parallel()
	for _, private := range []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "168.63.129.16", "::ffff:127.0.0.1", "::ffff:169.254.169.254"} {
		t.Run(private, func(t *testing.T) {
			t.Parallel()
			public, later, none := netip.MustParseAddr("93.184.215.14"), netip.MustParseAddr(private), netip.Addr{}
			dns := &nameServer{v4: []netip.Addr{public, later}, v6: []netip.Addr{none}}
			if later.Is6() {
				dns = &nameServer{v4: []netip.Addr{public, none}, v6: []netip.Addr{none, later}}
			}
			g := ssrf.New(nil)
			var mu sync.Mutex
			var checked []string
			dialer := &net.Dialer{Timeout: time.Minute, Resolver: dns.resolver(t)}
			dialer.Control = func(network, address string, raw syscall.RawConn) error {
				err := g.Control(network, address, raw)
				mu.Lock()
				defer mu.Unlock()
				checked = append(checked, address)
				if err == nil {
					return errDialRefused
				}
				return err
			}
			c, err := newClient(ClientConfig{Timeout: time.Minute}, dialer)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(c.Close)
			w := deliveries.Work{DeliveryID: uuid.New(), EventID: uuid.New(), Attempt: 1, URL: "https://turning.example/", Secret: "whsec_test", Body: []byte(`{}`)}
			if response := c.Send(t.Context(), w); response.Failure != deliveries.ConnectionFailed {
				t.Errorf("Send to a public address = %+v, want the refusal of the test", response)
			}
			response := c.Send(t.Context(), w)
			if response.Failure != deliveries.BlockedAddress {
				t.Errorf("failure once the address is private = %q, want %q", response.Failure, deliveries.BlockedAddress)
			}
			if response.Connected {
				t.Error("a connection to a private address was opened, want none")
			}
			bare := later.Unmap().String()
			if want := []string{public.String() + ":443", bare + ":443"}; !slices.Equal(checked, want) {
				t.Errorf("addresses that the guard checked = %v, want %v", checked, want)
			}
		})
	}
}

func countingClient(t *testing.T, handler http.HandlerFunc) (c *Client, url string, connects func() int) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	g := ssrf.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})
	var mu sync.Mutex
	n := 0
	dialer := &net.Dialer{Control: func(network, address string, raw syscall.RawConn) error {
		mu.Lock()
		defer mu.Unlock()
		n++
		return g.Control(network, address, raw)
	}}
	c, err := newClient(ClientConfig{ExtraCAFile: file, Timeout: time.Minute}, dialer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, server.URL, func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

func TestSend_ReusesConnections(t *testing.T) {
	t.Parallel()
	sizes := map[string]int{"no body": 0, "a short one": 10, "one of 40 KiB": 40 << 10}
	for name, size := range sizes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, url, connects := countingClient(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, strings.Repeat("x", size))
			})
			for i := range 5 {
				w := deliveries.Work{URL: url, Secret: "whsec_test", Body: []byte(`{}`)}
				response := c.Send(t.Context(), w)
				if !response.Connected {
					t.Errorf("attempt %d = %+v, want a connection", i+1, response)
				}
				if want := i > 0; response.Reused != want {
					t.Errorf("attempt %d: Reused = %v, want %v", i+1, response.Reused, want)
				}
			}
			if n := connects(); n != 1 {
				t.Errorf("connections for 5 attempts = %d, want 1", n)
			}
		})
	}
}

// The test sends as many concurrent requests as one host may receive, and then the same number
// again. The later requests must reuse the connections of the earlier requests.
func TestSend_ReusesAllConnectionsThatAHostMayHave(t *testing.T) {
	t.Parallel()
	var arrived, leave sync.WaitGroup
	c, url, connects := countingClient(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived.Done()
		leave.Wait()
	})
	for range 2 {
		arrived.Add(c.PerHost())
		leave.Add(1)
		var sent sync.WaitGroup
		for range c.PerHost() {
			sent.Go(func() {
				if response := c.Send(t.Context(), deliveries.Work{URL: url, Secret: "whsec_test", Body: []byte(`{}`)}); response.Failure != "" {
					t.Errorf("Send = %+v, want success", response)
				}
			})
		}
		arrived.Wait()
		leave.Done()
		sent.Wait()
	}
	if n := connects(); n != c.PerHost() {
		t.Errorf("connections for two rounds of %[2]d concurrent requests = %[1]d, want %[3]d", n, c.PerHost(), c.PerHost())
	}
}
