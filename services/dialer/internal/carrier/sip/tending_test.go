package sip_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/trunk"
)

// changing are trunks that a test changes.
type changing struct {
	mu  sync.Mutex
	now []trunk.Trunk
}

func (c *changing) Active(context.Context) ([]trunk.Trunk, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, nil
}

func (c *changing) set(now ...trunk.Trunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

func TestRun_LooksAfterTheTrunksThereAre(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	var mu sync.Mutex
	heard := map[string]int{}
	x.far.Outside(func(req *sip.Request, tx *sip.ServerTx) bool {
		what := string(req.Method)
		if expires := req.GetHeader("Expires"); expires != nil && expires.Value() == "0" {
			what += " no more"
		}
		mu.Lock()
		defer mu.Unlock()
		heard[what]++
		return false
	})
	known := &changing{}
	var good trunk.Trunk
	x.beginOver(loopback, func(one trunk.Trunk) trunks {
		good = one
		good.TrunkID, good.Version, good.Username, good.Register = uuid.New(), 1, "ringfence", true
		return known
	})
	comes := func(what string, times int) {
		t.Helper()
		for begun := time.Now(); ; time.Sleep(time.Millisecond) { // a poll of the condition
			mu.Lock()
			got := heard[what]
			mu.Unlock()
			if got >= times {
				return
			}
			if time.Since(begun) > 20*time.Second {
				t.Fatalf("%s came %d times, want %d", what, got, times)
			}
		}
	}
	known.set(good)
	comes("OPTIONS", 1)
	comes("REGISTER", 1)
	changed := good
	changed.Version, changed.Register = 2, false
	known.set(changed)
	comes("REGISTER no more", 1)
	comes("OPTIONS", 2)
	known.set(good)
	comes("REGISTER", 2)
	known.set()
	comes("REGISTER no more", 2)
}
