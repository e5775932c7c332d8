package kit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"ringfence.dev/libs/testkit"
)

// Proxy forwards TCP connections to one address through toxiproxy. Its methods inject faults, which
// last until Restore is called.
type Proxy struct {
	Addr string

	proxy *toxiproxy.Proxy
}

// NewProxy listens at a free port of loopback. The port stays the same after Disconnect and
// Restore.
func NewProxy(target string) (*Proxy, error) {
	port, err := testkit.Port()
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{Addr: address, proxy: toxiproxy.NewProxy(server, target, address, target)}
	return p, p.proxy.Start()
}

// Disconnect closes the port and every connection. Restore opens the port again.
func (p *Proxy) Disconnect() { p.proxy.Stop() }

// DropRequests drops all data to the target. Connections stay open until Restore closes them.
func (p *Proxy) DropRequests() error { return p.poison("timeout", "upstream", `{"timeout": 0}`) }

// DropResponses drops all data from the target. Connections stay open until Restore closes them.
func (p *Proxy) DropResponses() error { return p.poison("timeout", "downstream", `{"timeout": 0}`) }

// DelayResponses delays each piece of a response by the given time ± 50 %.
func (p *Proxy) DelayResponses(milliseconds int) error {
	return p.poison("latency", "downstream", fmt.Sprintf(`{"latency": %d, "jitter": %d}`, milliseconds, milliseconds/2))
}

// TruncateResponses closes each connection after the given number of bytes of responses.
func (p *Proxy) TruncateResponses(bytes int) error {
	return p.poison("limit_data", "downstream", fmt.Sprintf(`{"bytes": %d}`, bytes))
}

func (p *Proxy) poison(toxic, stream, attributes string) error {
	text := fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "attributes": %s}`, toxic+" "+stream, toxic, stream, attributes)
	return limitDuration(func() error {
		_, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(text))
		return err
	})
}

// Restore removes all faults and listens at the same port again.
func (p *Proxy) Restore() error {
	return limitDuration(func() error {
		p.proxy.Toxics.ResetToxics(context.Background())
		if err := p.proxy.Start(); !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
			return err
		}
		return nil
	})
}

// Retarget closes every connection and forwards new connections to another address.
func (p *Proxy) Retarget(target string) error {
	p.proxy.Stop()
	return p.proxy.Update(&toxiproxy.Proxy{Listen: p.Addr, Upstream: target, Enabled: true})
}

// limitDuration calls a function of toxiproxy, and returns an error after 30 s. Without the limit,
// a connection that toxiproxy cannot close would block the caller forever.
func limitDuration(call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-time.After(30 * time.Second):
		return errors.New("toxiproxy did not close a connection in time")
	}
}
