// The cost of one call by component: CPU, statements, round trips and bytes at Postgres, and bytes
// at Kafka.

package probe

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/kit"
)

const (
	// clients is the number of concurrent clients. Each client first places warmUpCalls calls,
	// which do not count, and then callsPerClient calls, which count.
	clients, callsPerClient, warmUpCalls = 32, 25, 3
	// idlePeriod is the duration of the measurement of the idle stack. The idle stack's polling is
	// subtracted from the cost of the calls.
	idlePeriod = 15 * time.Second
	late       = 2 * time.Minute
	first      = 8_500_000
)

// Setup describes a stack that connects to its Postgres through the proxy.
type Setup struct {
	Stack *kit.Stack
	Proxy *Proxy
	Meter *Meter
	Hooks *kit.Receiver
	// DB is the superuser's URL of the same Postgres, without the proxy.
	DB string
}

func services() []string {
	return []string{"gateway", "calls", "contacts-compliance", "dialer", "billing-wallet", "webhook-dispatcher"}
}

type bill struct {
	at         time.Time
	used       Time
	statements map[string]Counts
	passed     map[string]Traffic
	kafka      map[string]map[string]float64 // service → metric → bytes
	disk       disk
}

// disk is the number of bytes that Postgres has written: the WAL, and the tables with their
// indexes.
type disk struct{ log, tables float64 }

const written = `
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8, sum(pg_total_relation_size(oid))::float8
FROM pg_class WHERE relkind = 'r' AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)`

func (s Setup) disk(ctx context.Context) (d disk, err error) {
	db, err := pgx.Connect(ctx, s.DB)
	if err != nil {
		return d, err
	}
	defer db.Close(ctx)
	return d, db.QueryRow(ctx, written).Scan(&d.log, &d.tables)
}

// Measure prints the cost of a call.
func Measure(ctx context.Context, s Setup) error {
	w, err := s.Stack.NewWorkspace(ctx, "bench costs", "1000000")
	if err != nil {
		return err
	}
	if _, err := w.Subscribe(ctx, s.Hooks); err != nil {
		return err
	}
	if err := s.calls(ctx, w, 0, warmUpCalls); err != nil {
		return err
	}
	idle, err := s.bill(ctx)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(idlePeriod):
	}
	before, err := s.bill(ctx)
	if err != nil {
		return err
	}
	if err := s.calls(ctx, w, warmUpCalls, callsPerClient); err != nil {
		return err
	}
	after, err := s.bill(ctx)
	if err != nil {
		return err
	}
	delivered := len(s.Hooks.Deliveries(w.ID)) * callsPerClient / (warmUpCalls + callsPerClient)
	printUsage(idle, before, after, clients*callsPerClient, delivered)
	return nil
}

func (s Setup) calls(ctx context.Context, w *kit.Workspace, done, more int) error {
	var all sync.WaitGroup
	faults := make([]error, clients)
	for n := range clients {
		all.Go(func() {
			for i := done; i < done+more && faults[n] == nil; i++ {
				to := fmt.Sprintf("+1415%05d01", first/100+n*(warmUpCalls+callsPerClient)+i)
				_, faults[n] = w.Place(ctx, map[string]any{"to": to})
			}
		})
	}
	all.Wait()
	for _, fault := range faults {
		if fault != nil {
			return fault
		}
	}
	return kit.Until(ctx, late, "the terminal webhook of every call has arrived", func() (bool, error) {
		ended := map[string]bool{}
		for _, d := range s.Hooks.Deliveries(w.ID) {
			if d.Type != "call.ringing" && d.Type != "call.answered" {
				ended[d.CallID] = true
			}
		}
		return len(ended) >= clients*(done+more), nil
	})
}

func (s Setup) bill(ctx context.Context) (b bill, err error) {
	b = bill{at: time.Now(), statements: map[string]Counts{}, passed: map[string]Traffic{}, kafka: map[string]map[string]float64{}}
	if b.used, err = s.Meter.Used(ctx); err != nil {
		return b, err
	}
	if b.disk, err = s.disk(ctx); err != nil {
		return b, err
	}
	for _, name := range services() {
		role := strings.ReplaceAll(name, "-", "_")
		b.statements[name], b.passed[name] = s.Proxy.Of(role), s.Proxy.Passed(role)
		addresses, err := s.Stack.PrivateAddresses(name)
		if err != nil {
			return b, err
		}
		b.kafka[name] = map[string]float64{}
		for _, address := range addresses {
			if err := bytesOf(ctx, address, b.kafka[name]); err != nil {
				return b, err
			}
		}
	}
	return b, nil
}

func bytesOf(ctx context.Context, address string, into map[string]float64) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, rest, ok := strings.Cut(lines.Text(), "{")
		if !ok || !strings.HasPrefix(name, "kafka_") || !strings.HasSuffix(name, "_compressed_bytes_total") && !strings.HasSuffix(name, "_records_total") {
			continue
		}
		fields := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
		if len(fields) == 0 {
			continue
		}
		value, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", name, address, err)
		}
		into[name] += value
	}
	return lines.Err()
}

// printUsage prints the usage between the readings before and after, minus the usage of an idle
// stack in the same time.
func printUsage(idle, before, after bill, calls, deliveries int) {
	took := after.at.Sub(before.at)
	asIdle := took.Seconds() / before.at.Sub(idle.at).Seconds()
	per := func(spent, anyhow float64) float64 { return (spent - anyhow*asIdle) / float64(calls) }
	fmt.Printf("  %d calls in %s, %d under way, %d webhooks; the stack's own polling is taken off all but CPU\n",
		calls, took.Round(100*time.Millisecond), clients, deliveries)
	fmt.Printf("  %-20s %10s %10s %12s %12s %20s %20s\n", "a call, at Postgres", "statements", "trips", "bytes to", "bytes from", "to Kafka", "from Kafka")
	for _, name := range services() {
		sent, back := after.passed[name].Less(before.passed[name]), before.passed[name].Less(idle.passed[name])
		asked := per(float64(after.statements[name].Less(before.statements[name]).Sum()), float64(before.statements[name].Less(idle.statements[name]).Sum()))
		kafka := func(metric string) float64 {
			return per(after.kafka[name][metric]-before.kafka[name][metric], before.kafka[name][metric]-idle.kafka[name][metric])
		}
		fmt.Printf("  %-20s %10.1f %10.1f %12.0f %12.0f %7.1f rec. %6.0f B %7.1f rec. %6.0f B\n", name, asked, per(float64(sent.Trips), float64(back.Trips)),
			per(float64(sent.Sent), float64(back.Sent)), per(float64(sent.Received), float64(back.Received)),
			kafka("kafka_produce_records_total"), kafka("kafka_produce_compressed_bytes_total"), kafka("kafka_fetch_records_total"), kafka("kafka_fetch_compressed_bytes_total"))
	}
	fmt.Printf("    Postgres' log %.0f B a call, its tables and indexes %.0f B larger, before vacuum\n", per(after.disk.log-before.disk.log, before.disk.log-idle.disk.log),
		per(after.disk.tables-before.disk.tables, before.disk.tables-idle.disk.tables))
	if line := after.used.Less(before.used).Line("call", calls); line != "" {
		fmt.Printf("    %s\n", line)
	}
}
