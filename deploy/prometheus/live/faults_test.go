package live

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/deploy/e2e/rig"
)

// fault is something that goes wrong, for as long as until must be waited for, and the alerts that must tell of it and go when it is mended.
type fault struct {
	name   string
	always bool
	alerts []string
	makes  func(t *testing.T, w *world, until func())
}

func overSIP(q query) bool { return strings.Contains(q.expr, "ringfence_dialer_rtp_") }

func stopped(process string) func(*testing.T, *world, func()) {
	return func(t *testing.T, w *world, until func()) { w.stop(t, process, until) }
}

// switched is a fault that a flag makes.
func switched(of func(*world) *atomic.Bool) func(*testing.T, *world, func()) {
	return func(_ *testing.T, w *world, until func()) {
		of(w).Store(true)
		until()
		of(w).Store(false)
	}
}

// faults in the order in which they are made.
func faults() []fault {
	return []fault{
		{"contacts-compliance hangs", true, []string{"ServiceDown", "GateSilent", "DialQueueStuck"}, func(t *testing.T, w *world, until func()) {
			for n := range 8 { // these come due while nobody answers for them; without them nothing may be in the queue
				due := time.Now().Add(time.Duration(n+1) * 2 * time.Second).UTC()
				if _, err := w.tenant.Place(t.Context(), map[string]any{"to": fmt.Sprintf("+1415%05d00", w.numbers.Add(1)%100000), "scheduled_for": due}); err != nil {
					t.Fatal(err)
				}
			}
			w.stop(t, "contacts-compliance", until)
		}},
		{"the carrier hangs", false, []string{"TrunkCircuitOpen"}, stopped("simcarrier")},
		{"the broker hangs", false, []string{"OutboxStuck"}, stopped("broker")},
		{"the database is cut off", false, []string{"PostgresDown", "APIUnavailable"}, func(t *testing.T, w *world, until func()) {
			w.proxy.Cut()
			until()
			if err := w.proxy.Mend(); err != nil {
				t.Fatal(err)
			}
		}},
		{"the dialer has hung", false, []string{"CallsDialledLate"}, func(t *testing.T, w *world, until func()) {
			w.stop(t, "dialer", func() { // of the minute that stands for an hour, a seventh and more must be late
				began := time.Now()
				await(t, time.Minute, "calls have waited", func() bool { return time.Since(began) > 20*time.Second })
			})
			until()
		}},
		{"an endpoint refuses", false, []string{"WebhooksRefused (ticket)"}, switched(func(w *world) *atomic.Bool { return &w.breaks })},
		{"numbers that do not exist", false, []string{"CallsBreakOff"}, switched(func(w *world) *atomic.Bool { return &w.failing })},
		{"a record that nobody can read", false, []string{"RecordsParked"}, func(t *testing.T, w *world, until func()) {
			w.publish(t, "dial-events.v1", "no event")
			until()
		}},
		{"a place without a call", false, []string{"CallSlotsLeaked"}, func(t *testing.T, w *world, until func()) {
			w.exec(t, `INSERT INTO dialer.slots (call_request_id, workspace_id, trunk) VALUES (gen_random_uuid(), gen_random_uuid(), 'sim')`)
			until()
		}},
		{"a balance that no entry explains", false, []string{"WalletBooksDiffer"}, func(t *testing.T, w *world, until func()) {
			const move = `UPDATE billing_wallet.wallets SET wallet_micro = wallet_micro %s, funding_micro = funding_micro %s WHERE workspace_id = '%s'`
			w.exec(t, fmt.Sprintf(move, "+ 1", "- 1", w.tenant.ID))
			until()
			w.exec(t, fmt.Sprintf(move, "- 1", "+ 1", w.tenant.ID))
		}},
	}
}

// made makes it, waits until every alert fires, mends it, and waits until they are gone.
func (f fault) made(t *testing.T, w *world, p *prometheus) {
	t.Helper()
	began, missing := time.Now(), slices.Clone(f.alerts)
	f.makes(t, w, func() {
		err := rig.Until(t.Context(), 3*time.Minute, f.name+": its alerts fire", func() (bool, error) {
			firing := p.firing(t.Context())
			missing = slices.DeleteFunc(missing, func(name string) bool { return firing[name] })
			return len(missing) == 0, nil
		})
		if err != nil {
			t.Errorf("%v: not %v, but %v", err, missing, p.firing(t.Context()))
		}
	})
	fired := time.Since(began)
	var left []string
	err := rig.Until(t.Context(), 120*time.Second, f.name+": its alerts go", func() (bool, error) {
		firing := p.firing(t.Context())
		left = slices.DeleteFunc(slices.Clone(f.alerts), func(name string) bool { return !firing[name] })
		return firing != nil && len(left) == 0, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, left)
	}
	t.Logf("%s: %s fired within %s and were gone %s later", f.name, strings.Join(f.alerts, ", "), fired.Round(100*time.Millisecond), (time.Since(began) - fired).Round(100*time.Millisecond))
}

func (w *world) publish(t *testing.T, topic, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", ports(t, w.home)["kafka"])))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(value), Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (w *world) exec(t *testing.T, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}
