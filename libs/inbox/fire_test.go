package inbox_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
)

const keys = 40

// produceFacts produces the records of each key in order. It produces a tenth of them twice.
func (b *bench) produceFacts(from, to int64) {
	b.Helper()
	var records []*kgo.Record
	for value := from; value <= to; value++ {
		for key := range keys {
			rec := record(fmt.Sprint("key-", key), value)
			records = append(records, rec)
			if rand.IntN(10) == 0 {
				records = append(records, again(rec))
			}
		}
	}
	b.produce(records...)
}

func (b *bench) wantAll(n int64) {
	b.Helper()
	b.eventually("all effects are there", func() bool { return b.count("SELECT count(*) FROM effect") >= int(n)*keys })
	for key := range keys {
		name := fmt.Sprint("key-", key)
		got := b.effects(name)
		for i := range n {
			if int64(len(got)) != n {
				b.Fatalf("effects of %s = %v, want %v", name, int64(len(got)), n)
			}
			if got[i] != i+1 {
				b.Fatalf("effects of %s: got[i] = %v, want %v", name, got[i], i+1)
			}
		}
	}
}

func TestConsumer_JoiningAndLeavingMembersApplyEachRecordOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run(b.pool)
	const rounds = 6
	for round := range int64(rounds) {
		stop := b.run(b.pool) // a second member joins while records arrive
		b.produceFacts(round*20+1, round*20+10)
		b.eventually("half of the round is done", func() bool { return b.count("SELECT count(*) FROM effect") >= int(round*20+5)*keys })
		b.produceFacts(round*20+11, round*20+20)
		stop() // the second member leaves while records wait
	}
	b.wantAll(rounds * 20)
}

func TestConsumer_DatabaseOutageLosesNoRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	proxy := newProxy(t, b.pool)
	b.run(proxy.pool(t))
	b.produceFacts(1, 5)
	b.wantAll(5)
	for round := range int64(3) {
		b.produceFacts(6+round*20, 15+round*20)
		b.eventually("it is in the middle of them", func() bool { return b.count("SELECT count(*) FROM effect") > int(6+round*20)*keys })
		proxy.cut()
		b.produceFacts(16+round*20, 25+round*20)
		proxy.mend()
	}
	b.wantAll(65)
}

// proxy forwards a pool's connections to Postgres. cut closes them and refuses further connections.
type proxy struct {
	t        testing.TB
	listener net.Listener
	target   string
	url      func(port uint16) string
	mu       sync.Mutex
	away     bool
	open     map[net.Conn]bool
}

func newProxy(t testing.TB, pool *pgxpool.Pool) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	conn := pool.Config().ConnConfig
	p := &proxy{t: t, listener: listener, target: fmt.Sprintf("%s:%d", conn.Host, conn.Port), open: map[net.Conn]bool{}}
	p.url = func(port uint16) string {
		return fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", conn.User, conn.Password, port, conn.Database)
	}
	go p.serve()
	return p
}

func (p *proxy) pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	port := p.listener.Addr().(*net.TCPAddr).Port
	pool, err := pg.Open(t.Context(), pg.Config{URL: p.url(uint16(port))}, schema, inbox.Migrations, outbox.Migrations)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		p.mu.Lock()
		if err != nil || p.away {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
		} else {
			p.open[client], p.open[server] = true, true
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				go func() { _, _ = io.Copy(way[0], way[1]); _ = way[0].Close() }()
			}
		}
		p.mu.Unlock()
	}
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = true
	for conn := range p.open {
		_ = conn.Close()
		delete(p.open, conn)
	}
}

func (p *proxy) mend() {
	time.AfterFunc(300*time.Millisecond, func() { p.mu.Lock(); p.away = false; p.mu.Unlock() })
}
