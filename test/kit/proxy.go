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

// Proxy forwards TCP to one address through toxiproxy, and can be hurt. Every hurt lasts until Mend.
type Proxy struct {
	Addr string

	proxy *toxiproxy.Proxy
}

// NewProxy listens on a free loopback port, where it will be found again after a cut.
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

// Cut closes the port and every connection.
func (p *Proxy) Cut() { p.proxy.Stop() }

// Deafen lets nothing more reach the target; connections stay open, and are closed by Mend.
func (p *Proxy) Deafen() error { return p.poison("timeout", "upstream", `{"timeout": 0}`) }

// Mute lets the target hear everything and nothing of what it says come back; connections stay open, and are closed by Mend.
func (p *Proxy) Mute() error { return p.poison("timeout", "downstream", `{"timeout": 0}`) }

// Slow holds back each piece of an answer for so many milliseconds, give or take half.
func (p *Proxy) Slow(milliseconds int) error {
	return p.poison("latency", "downstream", fmt.Sprintf(`{"latency": %d, "jitter": %d}`, milliseconds, milliseconds/2))
}

// Tear breaks each connection in the middle of what is said, after so many bytes of answers.
func (p *Proxy) Tear(bytes int) error {
	return p.poison("limit_data", "downstream", fmt.Sprintf(`{"bytes": %d}`, bytes))
}

func (p *Proxy) poison(toxic, stream, attributes string) error {
	text := fmt.Sprintf(`{"name": %q, "type": %q, "stream": %q, "attributes": %s}`, toxic+" "+stream, toxic, stream, attributes)
	return bounded(func() error {
		_, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(text))
		return err
	})
}

// Mend ends every hurt and listens (again) on the same port.
func (p *Proxy) Mend() error {
	return bounded(func() error {
		p.proxy.Toxics.ResetToxics(context.Background())
		if err := p.proxy.Start(); !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
			return err
		}
		return nil
	})
}

// Retarget forwards to another address from now on; every connection is closed.
func (p *Proxy) Retarget(target string) error {
	p.proxy.Stop()
	return p.proxy.Update(&toxiproxy.Proxy{Listen: p.Addr, Upstream: target, Enabled: true})
}

// bounded gives up on toxiproxy, which waits for each connection's pipe: one whose reader has just died is never let go.
func bounded(deed func() error) error {
	done := make(chan error, 1)
	go func() { done <- deed() }()
	select {
	case err := <-done:
		return err
	case <-time.After(30 * time.Second):
		return errors.New("toxiproxy does not let go of a connection")
	}
}
