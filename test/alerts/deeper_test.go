package alerts

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// firstStackFaults returns the faults of the first stack that need more than a stopped process.
func firstStackFaults() []fault {
	return []fault{
		{"the table of call requests is locked repeatedly", false, []string{
			"PostgresPoolExhausted",
		}, func(t *testing.T, w *testStack, until func()) {
			conn := w.connectSuperuser(t)
			defer func() { _ = conn.Close(t.Context()) }()
			// Lock the table only for short times, because the service must respond to Prometheus
			// within a second.
			meanwhile(t, until, func(ctx context.Context) {
				for ; ctx.Err() == nil; every(ctx, 300*time.Millisecond) {
					if _, err := conn.Exec(t.Context(), `BEGIN; LOCK TABLE calls.call_requests IN EXCLUSIVE MODE`); err != nil {
						t.Error(err)
						return
					}
					every(ctx, 900*time.Millisecond)
					if _, err := conn.Exec(t.Context(), `ROLLBACK`); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}},
		{"another process has the lease of the relay", false, []string{
			"OutboxWithoutLeader",
		}, func(t *testing.T, w *testStack, until func()) {
			w.secondStack.pauseProcesses(t, "calls", func() { w.takeRelayLease(t, "calls", until) })
		}},
		{"every channel of the trunks is in use", false, []string{
			"TrunkChannelsFull (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			const house = `'00000000-0000-7000-8000-000000000000'::uuid`
			w.exec(t, `INSERT INTO dialer.dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, due_at, look_at)
				SELECT gen_random_uuid(), `+house+`, 'dialing', '+14155550000', gen_random_uuid(), now(), now()
				FROM generate_series(1, 9500)`)
			until()
			w.exec(t, `DELETE FROM dialer.dial_queue WHERE workspace_id = `+house)
		}},
		{"a due call request stays in the queue", false, []string{
			"DialQueueStuck (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			late := w.placeLater(t, 24*time.Hour)
			await(t, "the dialer has the call", func() bool {
				return w.exec(t, `UPDATE dialer.dial_queue SET due_at = now() - interval '2 minutes' WHERE call_request_id = $1 AND state = 'queued'`, late.ID) == 1
			})
			until()
			if err := w.tenant.API.Into(t.Context(), http.MethodPost, "/v1/call-requests/"+late.ID+"/cancel", nil, http.StatusOK, nil); err != nil {
				t.Error(err)
			}
		}},
		{"the dialer loses a call request", false, []string{
			"CallsRepublished (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			lost := w.placeLater(t, 6*time.Second)
			await(t, "the dialer has the call request, which the test deletes", func() bool {
				return w.exec(t, `DELETE FROM dialer.dial_queue WHERE call_request_id = $1 AND state = 'queued'`, lost.ID) == 1
			})
			until()
		}},
		{"an endpoint responds slowly", false, nil, func(t *testing.T, w *testStack, _ func()) {
			const held = `ringfence_webhooks_terminal_event_to_delivery_seconds_%s{held="endpoint",%stry="first"}`
			late := func() float64 {
				return w.metricValue(t, "webhook-dispatcher", fmt.Sprintf(held, "count", "")) - w.metricValue(t,
					"webhook-dispatcher", fmt.Sprintf(held, "bucket", `le="30",`))
			}
			// While the endpoint responds late, webhook-dispatcher must count late deliveries with
			// the label held="endpoint".
			before := late()
			w.respondsLate.Store(true)
			await(t, "more than 20 late deliveries are attributed to the endpoint", func() bool {
				return late()-before > 20
			})
			w.respondsLate.Store(false)
		}},
		{"an endpoint refuses until its subscription is disabled", false, []string{
			"WebhookSubscriptionsFailed (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			w.refusesAll.Store(true)
			const long = `UPDATE webhook_dispatcher.subscription_health SET failures = 1000, exhausted = 100, failing_since = now() - interval '1 hour' WHERE failures > 0 AND subscription_id = $1`
			meanwhile(t, until, func(ctx context.Context) {
				for ; ctx.Err() == nil; every(ctx, time.Second) {
					w.exec(t, long, w.unreliableID)
				}
			})
			w.refusesAll.Store(false)
			if err := w.tenant.API.Into(t.Context(), http.MethodPatch, "/v1/webhook-subscriptions/"+w.unreliableID,
				map[string]any{"status": "active"}, http.StatusOK, nil); err != nil {
				t.Error(err)
			}
		}},
	}
}

// secondStackFaults returns the faults of the second stack. One of them also stops the dialer of
// the first stack.
func secondStackFaults() []fault {
	return []fault{
		{"an upgrade is incomplete and a certificate expires soon", false, []string{
			"ServiceVersionsMixed (ticket)", "CertificateExpiresSoon", "CertificateExpiresSoon (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			// Stop the load of the first stack. In this test, the alert covers one minute. Under
			// load, a scrape could fail in this minute, and the alert would not fire.
			w.quiet.Store(true)
			w.secondStack.runUpgraded(t, until)
			w.quiet.Store(false)
		}},
		{"a process restarts repeatedly", false, []string{
			"ServiceRestarting (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			meanwhile(t, until, w.secondStack.killRepeatedly(t, "gateway"))
		}},
		{"a dialer sends audio late", false, []string{"RTPSendDelayed (ticket)"}, func(
			t *testing.T, w *testStack, until func(),
		) {
			before := w.secondStack.phone.talks.Load()
			meanwhile(t, until, func(ctx context.Context) {
				for talking := false; ctx.Err() == nil; every(ctx, 500*time.Millisecond) {
					if !talking || w.secondStack.phone.talks.Load() == before {
						_, err := w.secondStack.tenant.Place(ctx, map[string]any{"to": fmt.Sprintf("+1415%07d",
							w.secondStack.numbers.Add(1)), "agent_id": w.secondStack.talker(t)})
						talking = err == nil
					}
					for _, pid := range w.secondStack.Processes()["dialer"] {
						_ = syscall.Kill(pid, syscall.SIGSTOP)
						every(ctx, 400*time.Millisecond)
						_ = syscall.Kill(pid, syscall.SIGCONT)
					}
				}
			})
		}},
		{"a trunk refuses calls", false, []string{
			"CarrierRefusalsHigh", "SIPTrunkRefusalsHigh (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			w.quiet.Store(true)
			w.secondStack.phone.full.Store(true)
			meanwhile(t, until, w.secondStack.calls(200*time.Millisecond))
			w.secondStack.phone.full.Store(false)
			w.quiet.Store(false)
		}},
		{"a trunk does not respond", false, []string{"SIPTrunkDown"}, func(_ *testing.T, w *testStack, until func()) {
			w.secondStack.phone.deaf.Store(true)
			until()
			w.secondStack.phone.deaf.Store(false)
		}},
		{"no trunk is active", false, []string{"SIPTrunkMissing"}, func(t *testing.T, w *testStack, until func()) {
			w.secondStack.setTrunk(t, "disabled")
			until()
			w.secondStack.setTrunk(t, "active")
		}},
		{"the broker has fewer records than the service has read", false, []string{
			"KafkaRecordsExpired",
		}, func(t *testing.T, w *testStack, until func()) {
			w.secondStack.pauseProcesses(t, "webhook-dispatcher", func() {
				w.secondStack.exec(t,
					`UPDATE webhook_dispatcher.inbox_positions SET next_offset = 1000000 WHERE topic = 'call-events.v1'`)
			})
			until()
		}},
		{"the database is older than the offsets of the consumer group", false, []string{"DatabaseRestored (ticket)"},
			func(t *testing.T, w *testStack, until func()) {
				w.secondStack.pauseProcesses(t, "webhook-dispatcher",
					func() { w.secondStack.commitOffsetAhead(t, "webhook-dispatcher", "call-events.v1") })
				until()
			}},
		{"no dialer exports metrics", false, []string{
			"SLOMetricsMissing (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			w.pauseProcesses(t, "dialer", func() { w.secondStack.pauseProcesses(t, "dialer", until) })
		}},
		{"holds are not settled and wallets are not reconciled", false, []string{
			"WalletHoldsStuck", "WalletLateSettlement (ticket)", "WalletReconciliationOverdue (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			b := w.secondStack
			b.exec(t, `INSERT INTO billing_wallet.holds (request_id, workspace_id, amount_micro, currency, per_minute_micro, increment_seconds, max_call_seconds, state, created_at)
				VALUES (gen_random_uuid(), $1, 0, 'USD', 0, 1, 60, 'held', now() - interval '1 minute')`, b.tenant.ID)
			b.exec(t, `INSERT INTO billing_wallet.pending_settlements (workspace_id, request_id, reason, billable_seconds) VALUES ($1, gen_random_uuid(), 'normal_clearing', 0)`, b.tenant.ID)
			b.exec(t, `UPDATE billing_wallet.reconciliations SET checked_at = now() - interval '10 minutes'`)
			until()
			b.exec(t, `UPDATE billing_wallet.holds SET confirmed_at = now() WHERE confirmed_at IS NULL AND state = 'held'`)
			b.markReconciled(t)
		}},
		{"consent records are changed and an erasure does not complete", false, []string{
			"ConsentChainBroken", "ErasuresStuck (ticket)",
		}, func(t *testing.T, w *testStack, until func()) {
			b := w.secondStack
			b.exec(t, `UPDATE contacts_compliance.consent_heads SET seq = seq - 1, moved_at = now() WHERE seq > 1`)
			b.exec(t, `INSERT INTO contacts_compliance.erasures (id, workspace_id, key_id, subject, actor, contact_id, erasures, requested_at, published_at)
				SELECT gen_random_uuid(), c.workspace_id, 'none', decode(repeat('00', 32), 'hex'), 'another', c.id,
					1, now(), now() - interval '1 hour' FROM contacts_compliance.contacts c LIMIT 1`)
			until()
		}},
	}
}

// takeRelayLease takes the lease of a service's outbox relay while action runs. The service then
// publishes no events.
func (w *testStack) takeRelayLease(t *testing.T, schema string, action func()) {
	t.Helper()
	conn := w.connectSuperuser(t)
	defer func() { _ = conn.Close(t.Context()) }()
	set := func(expires string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), `UPDATE `+schema+
			`.outbox_leases SET holder = gen_random_uuid(), fence = fence + 1, expires_at = $1::timestamptz`, expires)
		if err != nil {
			t.Fatal(err)
		}
	}
	set("infinity")
	defer set("-infinity")
	action()
}

func (b *secondStack) talker(t *testing.T) string {
	t.Helper()
	if b.agent == "" {
		var made struct{ ID string }
		settings := map[string]any{"name": "Ada", "script": map[string]any{"tone_hz": 440, "tone_millis": 60_000, "end_after_millis": 60_000}}
		if err := b.tenant.Admin.Into(t.Context(), http.MethodPost, "/admin/v1/workspaces/"+b.tenant.ID+"/agents", settings, http.StatusCreated, &made); err != nil {
			t.Error(err)
		}
		b.agent = made.ID
	}
	return b.agent
}
