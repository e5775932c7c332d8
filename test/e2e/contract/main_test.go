package contract

import (
	"os"
	"testing"

	"ringfence.dev/proto/openapi"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

// testStack is the stack that all tests of the package share. It has the default settings and two
// replicas of each service.
type testStack struct {
	*sharedstack.TestStack
	// database is the superuser's URL of the stack's database.
	database string
	document *Document
	faults   *faults
}

var shared = &sharedstack.Shared[*testStack]{Begin: begin, Judge: (*testStack).checkCoverage}

// Only the tests of settings call t.Parallel, because they wait for requests to become due. Four of
// them run at the same time, after the other tests.
func TestMain(m *testing.M) { os.Exit(shared.Main(m, 4)) }

func stack(t *testing.T) *testStack {
	t.Helper()
	return shared.Get(t)
}

func begin() (w *testStack, err error) {
	base, err := sharedstack.New()
	if err != nil {
		return nil, err
	}
	w = &testStack{TestStack: base, faults: &faults{}}
	if w.document, err = Load(openapi.Description); err != nil {
		return w, err
	}
	w.Hooks.OnDelivery = func(d kit.Delivery) { w.faults.add(w.document.Delivery(d.Header, d.Body)) }
	db, err := w.Postgres()
	if err != nil {
		return w, err
	}
	w.database = db.URL
	return w, w.Start("RINGFENCE_REPLICAS=2", "POSTGRES_URL="+db.URL,
		"TRUSTED_PROXIES=127.0.0.1") // with this setting a test can choose its client address
}
