package dial_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/services/dialer/internal/dial"
	"ringfence.dev/services/dialer/internal/dialqueue"
	"ringfence.dev/services/dialer/internal/store"
)

func TestQueueMetrics_CountRequestsAndCalls(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(
		t,
		"dialer",
		outbox.Migrations,
		inbox.Migrations,
		pg.Migrations{Name: "dialer", FS: store.Migrations},
	)
	id := uuid.Must(uuid.NewV7())
	for _, due := range []string{"-10 minutes", "1 day"} {
		if _, err := pool.Exec(t.Context(), `INSERT INTO dial_queue (call_request_id, workspace_id, state, to_e164, agent_id, contact_id, max_call_seconds, queued_at, due_at, look_at)
			VALUES ($1, $2, 'queued', '+14155550100', $2, $2, 600, now(), now() + $3::interval, now() + $3::interval)`, uuid.Must(uuid.NewV7()), id, due); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pool.Exec(t.Context(), `INSERT INTO calls (call_id, workspace_id, direction, from_number, to_e164, agent_id, status, max_call_seconds, deadline_at)
		VALUES ($1, $1, 'inbound', '+14155550111', '+14155550100', $1, 'in_progress', 600, now())`, id); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	limit := func(context.Context) (dialqueue.Limit, error) { return dialqueue.Limit{Live: 30}, nil }
	if err := dial.NewQueueMetrics(pool, limit, registry).Measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"queue_requests ahead": 1, "queue_requests due": 1, "queue_requests paused": 0, "live_calls inbound": 1,
		"live_calls outbound": 0,
		"requests_in_use":     0, "trunk_channels": 30, "unreported_opt_outs": 0,
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		name := family.GetName()[len("ringfence_dialer_"):]
		for _, metric := range family.GetMetric() {
			series := name
			for _, label := range metric.GetLabel() {
				series += " " + label.GetValue()
			}
			got := metric.GetGauge().GetValue()
			if name == "queue_oldest_due_seconds" {
				if got < 600 {
					t.Errorf("%s = %v, want at least 600", series, got)
				} else if got > 700 {
					t.Errorf("%s = %v, want at most 700", series, got)
				}
				continue
			}
			if value, known := want[series]; !known {
				t.Errorf("unexpected series %s", series)
			} else if value != got {
				t.Errorf("%s = %v, want %v", series, got, value)
			}
			delete(want, series)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing series: %v", want)
	}
}
