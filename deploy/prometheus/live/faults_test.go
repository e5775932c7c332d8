package live

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.dev/deploy/e2e/rig"
)

// fault is something that goes wrong, for as long as until must be waited for, and the alerts that must tell of it and go when it is mended.
type fault struct {
	name   string
	always bool
	alerts []string
	makes  func(t *testing.T, w *world, until func())
}

// overSIP is what is told of calls over SIP alone.
func overSIP(q query) bool {
	return strings.Contains(q.expr, "ringfence_dialer_rtp_") || strings.Contains(q.expr, "certificate_expires")
}

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
		{"contacts-compliance hangs", true, []string{"ServiceDown", "GateSilent", "DialQueueStuck", "OptOutsUntold"}, func(t *testing.T, w *world, until func()) {
			for n := range 8 { // these come due while nobody answers for them; without them nothing may be in the queue
				due := time.Now().Add(time.Duration(n+1) * 2 * time.Second).UTC()
				if _, err := w.tenant.Place(t.Context(), map[string]any{"to": fmt.Sprintf("+1415%05d00", w.numbers.Add(1)%100000), "scheduled_for": due}); err != nil {
					t.Fatal(err)
				}
			}
			w.stop(t, "contacts-compliance", func() {
				w.exec(t, `INSERT INTO dialer.opt_outs (call_id, workspace_id, phone_e164, evidence, heard_at) VALUES (gen_random_uuid(), $1, '+14155559999', 'never again', now())`, w.tenant.ID)
				until()
			})
		}},
		{"the carrier hangs", false, []string{"TrunkCircuitOpen", "DialStateUnknown (ticket)"}, stopped("simcarrier")},
		{"the broker hangs", false, []string{"OutboxStuck"}, stopped("broker")},
		{"the database is slow", false, []string{"APISlow"}, func(t *testing.T, w *world, until func()) {
			if err := w.proxy.Slow(700); err != nil {
				t.Fatal(err)
			}
			until()
			if err := w.proxy.Mend(); err != nil {
				t.Fatal(err)
			}
		}},
		{"the database is cut off", false, []string{"PostgresDown", "APIUnavailable", "ConsumerBehind", "ConsumerRetries (ticket)"}, func(t *testing.T, w *world, until func()) {
			w.proxy.Cut()
			until()
			if err := w.proxy.Mend(); err != nil {
				t.Fatal(err)
			}
		}},
		{"the dialer has hung", false, []string{"CallsDialledLate", "PromisesUnmeasured (ticket)", "CallsRepublished (ticket)"}, func(t *testing.T, w *world, until func()) {
			w.stop(t, "dialer", func() { // of the minute that stands for an hour, a seventh and more must be late
				began := time.Now()
				await(t, time.Minute, "calls have waited", func() bool { return time.Since(began) > 20*time.Second })
			})
			until()
		}},
		{"an endpoint refuses", false, []string{"WebhooksRefused (ticket)"}, switched(func(w *world) *atomic.Bool { return &w.breaks })},
		{"agents break off", false, []string{"CallsBreakOff"}, switched(func(w *world) *atomic.Bool { return &w.failing })},
		{"charges come late", false, []string{"CallsCompletedIncomplete (ticket)"}, func(t *testing.T, w *world, until func()) {
			w.stop(t, "billing-wallet", func() {
				began := time.Now()
				await(t, time.Minute, "calls have ended without a charge", func() bool { return time.Since(began) > 8*time.Second })
			})
			until()
		}},
		{"a secret that cannot be opened", false, []string{"WebhooksUnsendable"}, func(t *testing.T, w *world, until func()) {
			const other = `UPDATE webhook_dispatcher.webhook_subscription SET secret_sealed = set_byte(secret_sealed, 20, 255 - get_byte(secret_sealed, 20)) WHERE name = 'moody' AND workspace_id = $1`
			w.exec(t, other, w.tenant.ID)
			until()
			w.exec(t, other, w.tenant.ID)
		}},
		{"the webhooks' queue is locked", false, []string{"WebhookQueueStuck", "ConsumerStopped", "EventsDeliveredLate"}, func(t *testing.T, w *world, until func()) {
			w.locked(t, "webhook_dispatcher.webhook_queue", 50*time.Second)
			until()
		}},
		{"a call that nobody dialled in time", false, []string{"CallsExpired"}, func(t *testing.T, w *world, until func()) {
			late, err := w.tenant.Place(t.Context(), map[string]any{"to": "+14155559901", "scheduled_for": time.Now().Add(24 * time.Hour).UTC()})
			if err != nil {
				t.Fatal(err)
			}
			await(t, 20*time.Second, "the dialer has the call", func() bool {
				return w.exec(t, `UPDATE dialer.dial_queue SET due_at = now() - interval '25 hours', look_at = now() WHERE call_request_id = $1 AND state = 'queued'`, late.ID) == 1
			})
			until()
		}},
		{"a process comes to the end of its files", false, []string{"FilesNearLimit (ticket)"}, func(t *testing.T, w *world, until func()) {
			w.files(t, "billing-wallet", until)
		}},
		{"a process dies again and again", false, []string{"ServiceRestarts (ticket)"}, func(t *testing.T, w *world, until func()) {
			for n := range 3 {
				before := w.Processes()["webhook-dispatcher"]
				if !w.KillOne("webhook-dispatcher", 0) {
					t.Fatalf("there was no process to kill after %d", n)
				}
				await(t, 20*time.Second, "it is back", func() bool {
					now := w.Processes()["webhook-dispatcher"]
					return len(now) > 0 && !slices.Equal(now, before)
				})
			}
			until()
		}},
		{"a record that nobody can read", false, []string{"RecordsParked"}, func(t *testing.T, w *world, until func()) {
			w.publish(t, "dial-events.v1", "no event")
			until()
		}},
		{"a place without a call", false, []string{"CallSlotsLeaked (ticket)"}, func(t *testing.T, w *world, until func()) {
			w.exec(t, `INSERT INTO dialer.slots (call_request_id, workspace_id, trunk) VALUES (gen_random_uuid(), gen_random_uuid(), 'sim')`)
			until()
		}},
		{"a balance that no entry explains", false, []string{"WalletBooksDiffer"}, func(t *testing.T, w *world, until func()) {
			const move = `UPDATE billing_wallet.wallets SET wallet_micro = wallet_micro + $2, funding_micro = funding_micro - $2 WHERE workspace_id = $1`
			w.exec(t, move, w.tenant.ID, 1)
			until()
			w.exec(t, move, w.tenant.ID, -1)
		}},
	}
}

// made makes it, waits until every alert fires, mends it, and waits until they are gone.
func (f fault) made(t *testing.T, w *world, p *prometheus) {
	t.Helper()
	began, missing, beside := time.Now(), slices.Clone(f.alerts), []string{}
	f.makes(t, w, func() {
		err := rig.Until(t.Context(), 3*time.Minute, f.name+": its alerts fire", func() (bool, error) {
			firing := p.firing(t.Context())
			beside = slices.AppendSeq(beside, maps.Keys(firing))
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
	slices.Sort(beside)
	t.Logf("%s: beside them %v", f.name, slices.Compact(beside))
	t.Logf("%s: %s fired within %s and were gone %s later", f.name, strings.Join(f.alerts, ", "), fired.Round(100*time.Millisecond), (time.Since(began) - fired).Round(100*time.Millisecond))
}
