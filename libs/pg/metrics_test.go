package pg_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/testkit/pgtest"
)

func TestPoolMetrics_ShowAvailabilityAndClockOffsetOfTheDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, "watched")
	registry := prometheus.NewPedanticRegistry()
	pg.Pool(pool, registry)

	seen := values(t, registry)
	if seen["ringfence_postgres_up"] != 1 {
		t.Errorf(`seen["ringfence_postgres_up"] = %v, want 1`, seen["ringfence_postgres_up"])
	} else if seen["ringfence_postgres_pool_max_connections"] < 1 {
		t.Errorf(`seen["ringfence_postgres_pool_max_connections"] = %v, want at least 1`, seen["ringfence_postgres_pool_max_connections"])
	}
	if offset := seen["ringfence_postgres_clock_offset_seconds"]; offset < -1 {
		t.Errorf("offset = %v, want at least -1", offset)
	} else if offset > 1 {
		t.Errorf("offset = %v, want at most 1", offset)
	}
	pool.Close()
	seen = values(t, registry)
	if _, found := seen["ringfence_postgres_clock_offset_seconds"]; seen["ringfence_postgres_up"] != 0 {
		t.Errorf(`without a database: seen["ringfence_postgres_up"] = %v, want 0`, seen["ringfence_postgres_up"])
	} else if found {
		t.Error("without a database: found = true, want false")
	}
}

func values(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if len(metric.GetLabel()) == 0 {
				seen[family.GetName()] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			}
		}
	}
	return seen
}
