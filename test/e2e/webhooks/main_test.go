package webhooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"ringfence.dev/test/kit/sharedstack"
)

// These settings are shorter than the defaults. The tests of webhook-dispatcher use the defaults.
const (
	attemptTimeout = 3 * time.Second
	lease          = 4 * time.Second
	// A subscription is disabled if three conditions are true: ruleFailures attempts in a row have
	// failed, the failures span at least ruleFor, and ruleExhausted deliveries have used up all
	// their attempts.
	ruleFailures  = 12
	ruleFor       = 2 * time.Second
	ruleExhausted = 2
	replicas      = 2
)

// retryDelays returns the delays before the second and later attempts. Retry-After can extend each
// delay, but at most to the last delay.
func retryDelays() []time.Duration {
	return []time.Duration{200 * time.Millisecond, 300 * time.Millisecond, 400 * time.Millisecond, 2 * time.Second}
}

func settings() []string {
	text := ""
	for _, d := range retryDelays() {
		text += "," + d.String()
	}
	return []string{
		"RINGFENCE_RESTART_PAUSE=500ms", "OUTBOX_LEASE=1s", "WEBHOOK_POLL=200ms", "RETRY_DELAYS=" + text[1:],
		"WEBHOOK_TIMEOUT=" + attemptTimeout.String(), "WEBHOOK_LEASE=" + lease.String(),
		fmt.Sprintf("WEBHOOK_FAILED_AFTER_FAILURES=%d", ruleFailures), "WEBHOOK_FAILED_AFTER=" + ruleFor.String(),
		fmt.Sprintf("WEBHOOK_FAILED_AFTER_EXHAUSTED=%d", ruleExhausted),
	}
}

type testStack struct {
	*sharedstack.TestStack
	db    *pgxpool.Pool
	bus   *kgo.Client
	ports map[string]int
	env   []string
}

var shared = &sharedstack.Shared[*testStack]{
	Begin: func() (*testStack, error) { return begin(fmt.Sprintf("RINGFENCE_REPLICAS=%d", replicas)) },
}

func TestMain(m *testing.M) { os.Exit(shared.Main(m, 1)) }

func stack(t *testing.T) *testStack {
	t.Helper()
	return shared.Get(t)
}

func begin(env ...string) (*testStack, error) {
	base, err := sharedstack.New()
	if err != nil {
		return nil, err
	}
	w := &testStack{TestStack: base}
	db, err := w.Postgres()
	if err != nil {
		return w, err
	}
	w.env = append(append(settings(), "POSTGRES_URL="+db.URL), env...)
	if w.db, err = pgxpool.New(context.Background(), db.URL); err != nil {
		return w, err
	}
	w.AtEnd(func() error { w.db.Close(); return nil })
	return w, w.start()
}

// After a Stop, start can start the stack again with more variables.
func (w *testStack) start(more ...string) error {
	if err := w.Start(append(slices.Clone(w.env), more...)...); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(w.Home, "state.json"))
	if err != nil {
		return err
	}
	var state struct {
		Ports map[string]int `json:"ports"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return err
	}
	w.ports = state.Ports
	if w.bus != nil {
		w.bus.Close()
	} else {
		w.AtEnd(func() error { w.bus.Close(); return nil })
	}
	w.bus, err = kgo.NewClient(kgo.SeedBrokers(fmt.Sprintf("127.0.0.1:%d", w.ports["kafka"])))
	return err
}
