package alerts

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"ringfence.dev/test/kit"
)

// restartedService is the service that a fault restarts in another version.
const restartedService = "gateway"

// localProgram is the program that starts a stack. It starts the other programs from its own
// folder.
const localProgram = "ringfence-local"

// secondStack is a stack that calls a phone over a SIP trunk. Only injected faults place calls in
// it, so its calls do not affect the first stack.
type secondStack struct {
	*testStack
	phone *phone
	// bin contains links to the programs that the stack starts. real contains the programs
	// themselves.
	bin, real string
	pair      string
	agent     string
	trunk     struct{ ID string }
}

func (b *secondStack) setTrunk(t *testing.T, status string) {
	t.Helper()
	path, body := "/admin/v1/trunks/"+b.trunk.ID, map[string]any{"status": status}
	if err := b.tenant.Admin.Into(t.Context(), http.MethodPatch, path, body, http.StatusOK, nil); err != nil {
		t.Fatalf("set the trunk's status to %s: %v", status, err)
	}
}

func (w *testStack) second(t *testing.T) *secondStack {
	t.Helper()
	b := &secondStack{testStack: &testStack{hooks: w.hooks}, phone: newPhone(t), bin: t.TempDir(),
		real: os.Getenv("RINGFENCE_BIN")}
	b.filled(t)
	b.pair = filepath.Join(t.TempDir(), "pair.pem")
	keep(t, b.pair, certificate(t, longValidity))
	db, err := kit.StartPostgres(b.real)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Stop() })
	b.url = db.URL
	b.home, b.Stack = raise(t, b.bin, "POSTGRES_URL="+db.URL, "CARRIER=sip", "SIP_UDP_ADDR=127.0.0.1:0", "SIP_ADVERTISED_ADDR=127.0.0.1", "RTP_ADDR=127.0.0.1", "CIRCUIT_FAILURES=1000", "RINGFENCE_RESTART_PAUSE=1s",
		"SIP_TLS_ADDR=127.0.0.1:0", "SIP_TLS_CERT_FILE="+b.pair, "SIP_TLS_KEY_FILE="+b.pair)
	if b.tenant, err = b.NewWorkspace(t.Context(), t.Name(), "1000"); err != nil {
		t.Fatal(err)
	}
	b.markReconciled(t)
	for n := range 3 {
		if err := b.tenant.API.Into(t.Context(), http.MethodPost, "/v1/opt-outs", map[string]any{"phone_e164": fmt.Sprintf("+1415555%04d", n)}, http.StatusOK, nil); err != nil {
			t.Fatal(err)
		}
	}
	trunk := map[string]any{"name": "phone", "host": "127.0.0.1", "port": b.phone.port, "register": true, "username": "ringfence", "password": "none", "channels": 50, "calls_per_second": 50, "caller_ids": []string{"+14155550100"}}
	if err := b.tenant.Admin.Into(t.Context(), http.MethodPost, "/admin/v1/trunks", trunk, http.StatusCreated,
		&b.trunk); err != nil {
		t.Fatal(err)
	}
	return b
}

// markReconciled marks every wallet as reconciled. Otherwise the alert on an overdue reconciliation
// would fire. This test shortens the alert's three hours to three minutes, but the stack reconciles
// only once an hour.
func (b *secondStack) markReconciled(t *testing.T) {
	t.Helper()
	b.exec(t, `INSERT INTO billing_wallet.reconciliations (workspace_id, checked_at, differences) SELECT workspace_id, now() + interval '1 day', 0 FROM billing_wallet.wallets
		ON CONFLICT (workspace_id) DO UPDATE SET checked_at = excluded.checked_at`)
}

func (b *secondStack) filled(t *testing.T) {
	t.Helper()
	programs, err := os.ReadDir(b.real)
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		if !program.IsDir() && program.Name() != localProgram {
			b.linkProgram(t, program.Name(), b.real)
		}
	}
	copied, err := os.ReadFile(filepath.Join(b.real, localProgram))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.bin, localProgram), copied, 0o755); err != nil {
		t.Fatal(err)
	}
}

// linkProgram replaces a program of the stack by a link to the program in binFolder. The stack uses
// the link at the next start of the program.
func (b *secondStack) linkProgram(t *testing.T, program, binFolder string) {
	t.Helper()
	path := filepath.Join(b.bin, program)
	_ = os.Remove(path)
	if err := os.Symlink(filepath.Join(binFolder, program), path); err != nil {
		t.Fatal(err)
	}
}

// runUpgraded calls action while the gateway has another version and the certificate of the dialer
// expires in one hour. Then it restores both.
func (b *secondStack) runUpgraded(t *testing.T, action func()) {
	t.Helper()
	folder := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build",
		"-ldflags=-s -X ringfence.dev/libs/service.version=another", "-o", filepath.Join(folder, restartedService),
		"ringfence.dev/services/"+restartedService+"/cmd/"+restartedService)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build another %s: %v\n%s", restartedService, err, output)
	}
	b.restarted(t, folder, time.Hour)
	action()
	b.restarted(t, b.real, longValidity)
}

func (b *secondStack) restarted(t *testing.T, folder string, good time.Duration) {
	t.Helper()
	b.linkProgram(t, restartedService, folder)
	keep(t, b.pair, certificate(t, good))
	for _, process := range []string{restartedService, "dialer"} {
		if !b.KillOne(process, 0) {
			t.Errorf("there is no process %s", process)
		}
	}
}

// longValidity is the validity of a certificate for which no alert fires. In this test, the first
// alert fires 8.4 hours before the end of a certificate.
const longValidity = 24 * time.Hour

func certificate(t *testing.T, good time.Duration) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(good)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) + string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// killRepeatedly returns a function that kills a service repeatedly, each time after Prometheus has
// scraped the new process.
func (b *secondStack) killRepeatedly(t *testing.T, service string) func(context.Context) {
	t.Helper()
	addresses, err := b.PrivateAddresses(service)
	if err != nil {
		t.Fatalf("%s has no private port: Privates: %v", service, err)
	}
	if len(addresses) == 0 {
		t.Fatalf("%s has no private port: length of addresses = 0, want more", service)
	}
	private := kit.NewClient("http://"+addresses[0], "")
	up := func(ctx context.Context) bool {
		status, _, err := private.Do(ctx, http.MethodGet, "/metrics", nil)
		return err == nil && status == http.StatusOK
	}
	return func(ctx context.Context) {
		for seen := 0; ctx.Err() == nil; {
			every(ctx, 300*time.Millisecond)
			if seen++; !up(ctx) {
				seen = 0
			}
			if seen > 5 { // six probes take longer than the scrape interval, so Prometheus has scraped the process
				b.KillOne(service, 0)
				seen = 0
			}
		}
	}
}

func (b *secondStack) calls(pause time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			_, _ = b.tenant.Place(ctx, map[string]any{"to": fmt.Sprintf("+1415%07d", b.numbers.Add(1))})
			every(ctx, pause)
		}
	}
}

func every(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func meanwhile(t *testing.T, until func(), deed func(context.Context)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); deed(ctx) }()
	defer func() { stop(); <-done }()
	until()
}
