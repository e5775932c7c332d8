package sipcarrier_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/emiago/sipgo/sip"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/carrier"
	"ringfence.dev/services/dialer/internal/sip/siptest"
	"ringfence.dev/services/dialer/internal/trunks"
)

type changing struct {
	mu  sync.Mutex
	now []trunks.Trunk
}

func (c *changing) Active(context.Context) ([]trunks.Trunk, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, nil
}

func (c *changing) set(now ...trunks.Trunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

func TestRun_MonitorsTheActiveTrunks(t *testing.T) {
	t.Parallel()
	x := newFixture(t)
	var mu sync.Mutex
	heard := map[string]int{}
	x.far.HandleOutside(func(req *sip.Request, tx *sip.ServerTx) bool {
		what := string(req.Method)
		if expires := req.GetHeader("Expires"); expires != nil && expires.Value() == "0" {
			what += " no more"
		}
		mu.Lock()
		defer mu.Unlock()
		heard[what]++
		return false
	})
	x.far.On("70", func(c *siptest.Call) { c.Respond(503, "") })
	known := &changing{}
	var good trunks.Trunk
	p := x.startWithTrunks(loopback, func(one trunks.Trunk) activeTrunks {
		good = one
		good.TrunkID, good.Version, good.Username, good.Register = uuid.New(), 1, "ringfence", true
		return known
	})
	comes := func(what string, times int) {
		t.Helper()
		testkit.NoError(t, func() error {
			mu.Lock()
			defer mu.Unlock()
			if got := heard[what]; got < times {
				return fmt.Errorf("requests %s = %d, want %d", what, got, times)
			}
			return nil
		})
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(p.Carrier)
	wantMetrics := func(want string) {
		t.Helper()
		testkit.NoError(t, func() error {
			if got := gathered(t, metrics); got != want {
				return fmt.Errorf("metrics = %q, want %q", got, want)
			}
			return nil
		})
	}
	known.set(good)
	comes("OPTIONS", 1)
	comes("REGISTER", 1)
	wantMetrics("invites answered 0, invites refused 0, invites silent 0, registered 1, up 1, trunks_active 1")
	p.awaitAnswers(t, good)
	for number, taken := range map[string]bool{"+14155550199": true, "+14155550170": false} {
		o := carrier.Originate{CallID: uuid.Must(uuid.NewV7()), From: "+14155550100", To: number}
		_, err := p.Originate(t.Context(), o)
		if taken != (err == nil) {
			t.Errorf("%s: %v", number, err)
		}
	}
	wantMetrics("invites answered 1, invites refused 1, invites silent 0, registered 1, up 1, trunks_active 1")
	changed := good
	changed.Version, changed.Register = 2, false
	known.set(changed)
	comes("REGISTER no more", 1)
	comes("OPTIONS", 2)
	wantMetrics("invites answered 1, invites refused 1, invites silent 0, up 1, trunks_active 1")
	known.set(good)
	comes("REGISTER", 2)
	known.set()
	comes("REGISTER no more", 2)
	wantMetrics("trunks_active 0")
}

func gathered(t *testing.T, metrics *prometheus.Registry) string {
	t.Helper()
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, family := range families {
		if strings.Contains(family.GetName(), "circuit") || strings.Contains(family.GetName(), "refusals") {
			continue // trunk_health_test.go tests these metrics
		}
		name := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(family.GetName(), "ringfence_dialer_sip_"), "trunk_"), "_total")
		for _, m := range family.GetMetric() {
			if name == "invites" {
				values = append(values, fmt.Sprintf("invites %s %v", m.GetLabel()[0].GetValue(), m.GetCounter().GetValue()))
				continue
			}
			values = append(values, fmt.Sprintf("%s %v", name, m.GetGauge().GetValue()))
		}
	}
	return strings.Join(values, ", ")
}
