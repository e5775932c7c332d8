package contract

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"ringfence.dev/deploy/e2e/rig"
	"ringfence.dev/deploy/e2e/validating"
	"ringfence.dev/proto/openapi"
)

// world is what all tests of the package share.
type world struct {
	*rig.Stack
	// hooks receives webhooks; the stack trusts its certificate.
	hooks *rig.Receiver
	// database connects as superuser.
	database string
	home     string
	// document is what answers and deliveries are held against.
	document *validating.Document
	// faults are deliveries that were not as documented.
	faults *faults
	stop   func() error
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // they wait for a stack more than they work
		panic(err)
	}
	code := m.Run()
	if code == 0 && begun.w != nil {
		code = begun.w.judge(flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "")
	}
	if err := begun.end(code == 0); err != nil {
		fmt.Fprintln(os.Stderr, "end the stack:", err)
		code = 1
	}
	os.Exit(code)
}

// begun is the shared world, begun by the first test that needs it.
var begun = &beginning{}

type beginning struct {
	once sync.Once
	w    *world
	err  error
}

// stack is the shared world.
func stack(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the whole stack is not started")
	}
	begun.once.Do(func() { begun.w, begun.err = begin() })
	if begun.err != nil {
		t.Fatal(begun.err)
	}
	return begun.w
}

func (b *beginning) end(well bool) error {
	if b.w == nil {
		return nil
	}
	err := b.w.stop()
	if well && err == nil {
		return os.RemoveAll(b.w.home)
	}
	fmt.Fprintf(os.Stderr, "kept %s; the end of the stack's log:\n%s\n", b.w.home, b.w.Tail(60))
	return err
}

func begin() (*world, error) {
	bin := os.Getenv("RINGFENCE_BIN")
	if bin == "" {
		return nil, errors.New("RINGFENCE_BIN is not set: run `make test`, which builds the programs and sets it")
	}
	home, err := os.MkdirTemp("", "ringfence-contract-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(home, 0o755); err != nil { // an unprivileged Postgres must reach it
		return nil, err
	}
	hooks, err := rig.NewReceiver(home)
	if err != nil {
		return nil, err
	}
	document, err := validating.Load(openapi.Description)
	if err != nil {
		return nil, err
	}
	wrong := &faults{}
	hooks.OnDelivery = func(d rig.Delivery) { wrong.add(document.Delivery(d.Header, d.Body)) }
	db, err := rig.StartPostgres(bin)
	if err != nil {
		return nil, err
	}
	env := []string{
		"RINGFENCE_REPLICAS=2", "SIMULATOR_TIME_SCALE=0.02", "POSTGRES_URL=" + db.URL, "SSL_CERT_FILE=" + hooks.CAFile,
		"TRUSTED_PROXIES=127.0.0.1", // so that a test may say which address it comes from
	}
	for _, variable := range []string{"RINGFENCE_PORT", "RINGFENCE_ADMIN_PORT"} {
		port, err := rig.FreePort()
		if err != nil {
			return nil, err
		}
		env = append(env, fmt.Sprintf("%s=%d", variable, port))
	}
	s, err := rig.Start(context.Background(), rig.Options{Bin: bin, Home: home, Env: env})
	if err != nil {
		return nil, errors.Join(err, db.Stop())
	}
	return &world{Stack: s, hooks: hooks, database: db.URL, home: home, document: document, faults: wrong, stop: func() error {
		defer hooks.Close()
		return errors.Join(s.Stop(), db.Stop())
	}}, nil
}
