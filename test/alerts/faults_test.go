package alerts

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

// fault is a fault with the alerts that must fire during the fault and resolve afterwards. The
// fault lasts until `until` returns.
type fault struct {
	name   string
	always bool
	alerts []string
	makes  func(t *testing.T, w *testStack, until func())
}

func overSIP(q query) bool {
	for _, name := range []string{"ringfence_dialer_rtp_", "ringfence_dialer_sip_", "ringfence_certificate_expires"} {
		if strings.Contains(q.expr, name) {
			return true
		}
	}
	return false
}

func stopped(process string) func(*testing.T, *testStack, func()) {
	return func(t *testing.T, w *testStack, until func()) { w.pauseProcesses(t, process, until) }
}

// flagFault returns a function that injects a fault: it sets a flag of the test stack until the
// fault is over.
func flagFault(flag func(*testStack) *atomic.Bool) func(*testing.T, *testStack, func()) {
	return func(_ *testing.T, w *testStack, until func()) {
		flag(w).Store(true)
		until()
		flag(w).Store(false)
	}
}

func faults() []fault { return slices.Concat(processFaults(), firstStackFaults(), secondStackFaults()) }

// processFaults returns the faults that stop a process, and the faults that need only one invalid
// row or record.
func processFaults() []fault {
	return []fault{
		{
			"contacts-compliance hangs",
			true,
			[]string{"ServiceDown", "ComplianceCheckUnavailable", "DialQueueStuck", "OptOutsUnreported"},
			func(t *testing.T, w *testStack, until func()) {
				// The eight call requests become due while the service is stopped. Without them its
				// queue could be empty.
				for n := range 8 {
					w.placeLater(t, time.Duration(n+1)*2*time.Second)
				}
				w.pauseProcesses(t, "contacts-compliance", func() {
					w.exec(
						t,
						`INSERT INTO dialer.opt_outs (call_id, workspace_id, phone_e164, evidence, heard_at)
						VALUES (gen_random_uuid(), $1, '+14155559999', 'never again', now())`,
						w.tenant.ID,
					)
					until()
				})
			},
		},
		{"the carrier hangs", false, []string{"TrunkCircuitOpen", "DialStateUnknown (ticket)"}, stopped("simcarrier")},
		{"the broker hangs", false, []string{"OutboxStuck", "DialingStopped"}, stopped("broker")},
		{
			"the database is slow",
			false,
			[]string{"APISlow", "APISlow (ticket)"},
			func(t *testing.T, w *testStack, until func()) {
				if err := w.proxy.DelayResponses(300); err != nil {
					t.Fatal(err)
				}
				until()
				if err := w.proxy.Restore(); err != nil {
					t.Fatal(err)
				}
			},
		},
		{"the database is disconnected", false, []string{
			"PostgresDown", "APIUnavailable", "APIUnavailable (ticket)", "ConsumerBehind", "ConsumerRetrying (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			w.proxy.Disconnect()
			until()
			if err := w.proxy.Restore(); err != nil {
				t.Fatal(err)
			}
		}},
		{"the dialer hangs, then continues", false, []string{
			"CallsDialedLate", "CallsDialedLate (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			// Stop the dialer until more than a seventh of the calls in one minute are late. The
			// alert covers an hour, which this test shortens to a minute.
			w.pauseProcesses(t, "dialer", func() {
				began := time.Now()
				await(t, "calls have waited for 20 s", func() bool { return time.Since(began) > 20*time.Second })
			})
			until()
		}},
		{"an endpoint refuses every request", false, []string{"WebhookAttemptsFailing (ticket)"},
			flagFault(func(w *testStack) *atomic.Bool { return &w.refusesAll })},
		{
			"every call fails",
			false,
			[]string{"CallsDropped"},
			flagFault(func(w *testStack) *atomic.Bool { return &w.failing }),
		},
		{"calls are charged late", false, []string{
			"CallsCompletedIncomplete (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			began := time.Now()
			for range 60 { // calls are placed before the stop, because without billing-wallet a POST fails
				w.placeLater(t, 15*time.Second-time.Since(began))
			}
			w.pauseProcesses(t, "billing-wallet", func() {
				await(t, "calls have ended without a charge", func() bool { return time.Since(began) > 25*time.Second })
			})
			until()
		}},
		{"a webhook secret cannot be decrypted", false, []string{
			"WebhookSecretsUnreadable",
		}, func(t *testing.T, w *testStack, until func()) {
			const other = `UPDATE webhook_dispatcher.subscriptions SET secret_sealed = set_byte(secret_sealed, 20, 255 - get_byte(secret_sealed, 20)) WHERE name = 'moody' AND workspace_id = $1`
			w.exec(t, other, w.tenant.ID)
			until()
			w.exec(t, other, w.tenant.ID)
		}},
		{"the table of the delivery queue is locked", false, []string{
			"WebhookQueueStuck", "WebhookQueueStuck (ticket)", "ConsumerStopped",
			"EventsDeliveredLate", "EventsDeliveredLate (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			w.locked(t, "webhook_dispatcher.delivery_queue", 50*time.Second)
			until()
		}},
		{"a call request is not dialed within a day", false, []string{
			"CallsExpired",
		}, func(t *testing.T, w *testStack, until func()) {
			late := w.placeLater(t, 24*time.Hour)
			await(t, "the dialer has the call", func() bool {
				return w.exec(t, `UPDATE dialer.dial_queue SET due_at = now() - interval '25 hours', look_at = now() WHERE call_request_id = $1 AND state = 'queued'`, late.ID) == 1
			})
			until()
		}},
		{"a process reaches its limit of open files", false, []string{
			"OpenFilesNearLimit (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			w.limitOpenFiles(t, "billing-wallet", until)
		}},
		{"a record cannot be decoded", false, []string{
			"DeadLetterRecordsWaiting",
		}, func(t *testing.T, w *testStack, until func()) {
			w.publish(t, "dial-events.v1", "no event")
			until()
		}},
		{"a balance differs from its ledger entries", false, []string{
			"WalletReconciliationDifferences",
		}, func(t *testing.T, w *testStack, until func()) {
			const move = `UPDATE billing_wallet.wallets SET wallet_micro = wallet_micro + $2, funding_micro = funding_micro - $2 WHERE workspace_id = $1`
			w.exec(t, move, w.tenant.ID, 1)
			until()
			w.exec(t, move, w.tenant.ID, -1)
		}},
	}
}

// endpointAlerts lists the alerts that must not fire while an endpoint is slow. They must not count
// deliveries that are late only because of their endpoint.
var endpointAlerts = []string{"EventsDeliveredLate", "EventsDeliveredLate (ticket)"}

// checkAlerts waits until no alert of the fault is active, and injects the fault. When every alert
// has fired, it repairs the fault and waits until the alerts have resolved.
func (f fault) checkAlerts(t *testing.T, w *testStack, p *prometheus) {
	t.Helper()
	watched, asked := f.alerts, time.Now()
	if len(watched) == 0 {
		watched = endpointAlerts
	}
	p.silent(t, f.name+": its alerts are inactive before the fault", active, watched)
	began, missing := time.Now(), f.alerts
	firedNames, stopRecording := p.recordFiring(t)
	defer stopRecording()
	f.makes(t, w, func() {
		err := kit.Until(t.Context(), kit.HangTimeout, f.name+": its alerts fire", func() (bool, error) {
			missing = slices.DeleteFunc(slices.Clone(f.alerts),
				func(name string) bool { return slices.Contains(firedNames(), name) })
			return len(missing) == 0, nil
		})
		if err != nil {
			t.Errorf("%v: missing alerts %v, firing alerts %v", err, missing, firedNames())
		}
	})
	fired := time.Since(began)
	p.silent(t, f.name+": its alerts resolve", firing, f.alerts)
	t.Logf("%s: alerts that fired: %v", f.name, firedNames())
	if len(f.alerts) == 0 && slices.ContainsFunc(endpointAlerts,
		func(name string) bool { return slices.Contains(firedNames(), name) }) {
		t.Errorf("%s: alerts fired, want none of %v", f.name, endpointAlerts)
	}
	t.Logf("%s: injected after %s; %s fired within %s and resolved %s later", f.name,
		began.Sub(asked).Round(100*time.Millisecond),
		strings.Join(f.alerts, ", "), fired.Round(100*time.Millisecond), (time.Since(began) - fired).Round(100*time.Millisecond))
}

func (p *prometheus) silent(t *testing.T, what, state string, names []string) {
	t.Helper()
	var left map[string]time.Duration
	err := kit.Until(t.Context(), kit.HangTimeout, what, func() (bool, error) {
		left = p.rules(t.Context(), state)
		maps.DeleteFunc(left, func(name string, _ time.Duration) bool { return !slices.Contains(names, name) })
		return left != nil && len(left) == 0, nil
	})
	if err != nil {
		t.Fatalf("%v: alerts that are %s, with the time since their start: %v", err, state, left)
	}
}

// recordFiring records the firing alerts twice a second until stopRecording is called. firedNames
// returns their names.
func (p *prometheus) recordFiring(t *testing.T) (firedNames func() []string, stopRecording func()) {
	t.Helper()
	var mu sync.Mutex
	fired := map[string]time.Duration{}
	ended := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			now := p.rules(ctx, firing)
			mu.Lock()
			maps.Copy(fired, now)
			mu.Unlock()
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	firedNames = func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Sorted(maps.Keys(fired))
	}
	return firedNames, func() { stop(); <-ended }
}
