package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
)

const (
	alonePostgres = "RELAY_ALONE_POSTGRES"
	aloneKafka    = "RELAY_ALONE_KAFKA"
	aloneStop     = "RELAY_ALONE_STOP"
)

// In a process that startRelayProcess started, TestMain runs a relay instead of the tests.
func TestMain(m *testing.M) {
	if os.Getenv(alonePostgres) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, "relay:", runRelay(context.Background()))
	os.Exit(1)
}

func runRelay(ctx context.Context) error {
	pool, err := pg.Open(ctx, pg.Config{URL: os.Getenv(alonePostgres)}, schema)
	if err != nil {
		return err
	}
	cfg := kafka.Config{Brokers: []string{os.Getenv(aloneKafka)}}
	client, err := kafka.NewClient(cfg, "alone", nil, kgo.WithHooks(processStopper{os.Getenv(aloneStop)}))
	if err != nil {
		return err
	}
	return outbox.NewRelay(pool, client, nil, outbox.Config{}).Run(ctx)
}

// processStopper is a hook of the Kafka client. If the file exists, the next record makes
// processStopper send SIGSTOP to its own process.
type processStopper struct{ file string }

func (s processStopper) OnProduceRecordBuffered(*kgo.Record) {
	if os.Remove(s.file) == nil {
		goesOn := make(chan os.Signal, 1)
		signal.Notify(goesOn, syscall.SIGCONT)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		// SIGSTOP does not take effect immediately. Wait here, so that the client gets no further row
		// before the process is halted.
		<-goesOn
	}
}

type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	stop string
}

func startRelayProcess(t testing.TB, pool *pgxpool.Pool, cfg kafka.Config) *process {
	t.Helper()
	address, err := url.Parse(pool.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	address.RawQuery += "&application_name=alone"
	p := &process{t: t, stop: filepath.Join(t.TempDir(), "stop"), cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), alonePostgres+"="+address.String(), aloneKafka+"="+cfg.Brokers[0], aloneStop+"="+p.stop)
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) awaitStopped() {
	p.t.Helper()
	testkit.Until(p.t, "the process is stopped", func() bool {
		state, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(p.cmd.Process.Pid)).Output()
		return err == nil && strings.HasPrefix(strings.TrimSpace(string(state)), "T")
	})
}

func leader(t testing.TB, pool *pgxpool.Pool) (holder string) {
	t.Helper()
	const statement = `SELECT coalesce(max(holder::text) FILTER (WHERE expires_at > clock_timestamp()), '')
		FROM outbox_leases`
	if err := pool.QueryRow(t.Context(), statement).Scan(&holder); err != nil {
		t.Fatal(err)
	}
	return holder
}

// The first process is halted and loses the lease. When it continues, it must not lead until the
// second relay has stopped.
func TestRelay_StoppedLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	first := startRelayProcess(t, pool, cfg)
	testkit.Until(t, "the first process leads", func() bool { return leader(t, pool) != "" })
	firstID := leader(t, pool)
	second, stop := startRelay(t, pool, cfg)
	var load sync.WaitGroup
	load.Go(func() { writeAll(t, pool, 40, second.Wake) })
	testkit.Until(t, "there is something to relay", func() bool { return countRows(t, pool) > 0 })
	first.signal(syscall.SIGSTOP)
	testkit.Until(t, "the second takes over",
		func() bool { holder := leader(t, pool); return holder != "" && holder != firstID })
	secondID := leader(t, pool)
	load.Wait()
	writeAll(t, pool, 20, second.Wake)
	testkit.Until(t, "the second publishes", func() bool { return countRows(t, pool) == 0 })
	first.signal(syscall.SIGCONT)
	writeAll(t, pool, 20, second.Wake)
	if got := leader(t, pool); got != secondID {
		t.Errorf("leader = %q, want the second, %s", got, secondID)
	}
	stop()
	testkit.Until(t, "the first leads again", func() bool { return leader(t, pool) == firstID })
	writeAll(t, pool, 20, func() {})
	byKey, _ := firstDeliveries(t, collectAll(t, pool, cfg, 100*aggregates))
	wantComplete(t, byKey, 100)
}

// The halted leader continues after another relay has published the same rows and later rows.
func TestRelay_StoppedLeaderPublishesNoMoreRows(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	first := startRelayProcess(t, pool, cfg)
	testkit.Until(t, "the first process leads", func() bool { return leader(t, pool) != "" })
	if err := os.WriteFile(first.stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const facts = 50
	var events []outbox.Event
	for seq := range facts {
		events = append(events, fact(keyOf(0), seq+1))
	}
	if err := put(t, pool, events...); err != nil {
		t.Fatal(err)
	}
	first.awaitStopped()
	second, _ := startRelay(t, pool, cfg)
	testkit.Until(t, "the second has published what the first had read", func() bool { return countRows(t, pool) == 0 })
	if err := put(t, pool, fact(keyOf(0), facts+1)); err != nil {
		t.Fatal(err)
	}
	second.Wake()
	testkit.Until(t, "and what followed", func() bool { return countRows(t, pool) == 0 })
	first.signal(syscall.SIGCONT)
	testkit.Until(t, "the first waits for its turn", func() bool {
		var waits int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE application_name = 'alone' AND datname = current_database()
				AND query LIKE '%outbox_leases%OR expires_at <=%'`).Scan(&waits)
		return err == nil && waits == 1
	})
	if err := put(t, pool, fact(keyOf(0), facts+2)); err != nil {
		t.Fatal(err)
	}
	second.Wake()
	last := func(records []*kgo.Record) bool {
		return len(records) > 0 && seqOf(t, records[len(records)-1]) == facts+2
	}
	byKey, duplicates := firstDeliveries(t, collect(t, cfg, kafka.CallRequests.Name, last))
	for i, seq := range byKey[keyOf(0)] {
		if seq != i+1 {
			t.Fatalf("fact %d came at place %d", seq, i+1)
		}
	}
	// When the leader was halted, one row was already in its Kafka client. This row can be published
	// twice.
	if n := len(byKey[keyOf(0)]); n != facts+2 {
		t.Errorf("n = %v, want %v", n, facts+2)
	} else if duplicates > 1 {
		t.Errorf("duplicates = %v, want at most 1", duplicates)
	}
}

// wire is a connection to Kafka that a test can interrupt.
type wire struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return nil, errors.New("the wire is cut")
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		w.conns = append(w.conns, conn)
	}
	return conn, err
}

func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	if cut {
		for _, conn := range w.conns {
			_ = conn.Close()
		}
	}
}

func TestRelay_LeaderWithoutKafkaIsReplaced(t *testing.T) {
	t.Parallel()
	pool, cfg := pgtest.New(t, schema, outbox.Migrations), kafkatest.New(t)
	var way wire
	first := outbox.NewRelay(pool, newClient(t, cfg, kgo.Dialer(way.dial)), nil, outbox.Config{})
	first.SetAckTimeout(time.Second)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = first.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	if err := put(t, pool, fact("first", 1)); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the first leads", func() bool { return countRows(t, pool) == 0 })
	second, _ := startRelay(t, pool, cfg)
	var load sync.WaitGroup
	load.Go(func() { writeAll(t, pool, 60, first.Wake) })
	testkit.Until(t, "there is something to relay", func() bool { return countRows(t, pool) > 0 })
	way.set(true)
	load.Wait()
	testkit.Until(t, "the second publishes", func() bool { return countRows(t, pool) == 0 })
	way.set(false)
	writeAll(t, pool, 20, second.Wake)
	byKey, _ := firstDeliveries(t, collectAll(t, pool, cfg, 1+80*aggregates))
	wantComplete(t, byKey, 80)
}
