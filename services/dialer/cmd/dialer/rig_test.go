package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"ringfence.dev/libs/kafka"
	"ringfence.dev/libs/serviceauth"
	"ringfence.dev/libs/testkit"
	"ringfence.dev/libs/testkit/kafkatest"
	"ringfence.dev/libs/testkit/pgtest"
	"ringfence.dev/proto/billingv1"
	"ringfence.dev/proto/compliancev1"
	"ringfence.dev/proto/dialerv1"
	"ringfence.dev/proto/eventv1"
	"ringfence.dev/services/dialer/internal/dialqueue"
)

// waitTimeout only ends tests that hang. Kafka needs half a minute to replace a consumer that was
// killed during a rebalance.
const waitTimeout = 2 * time.Minute

// simToken is the token of the simulated carrier.
const simToken = "token-of-the-simulator"

// binaries builds the dialer with failpoints, and the simulated carrier.
var binaries = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "dialer-test"); err != nil {
		return "", err
	}
	for target, args := range map[string][]string{
		"dialer":     {"-tags", "crashpoints", "."},
		"simcarrier": {"ringfence.dev/cmd/simcarrier"},
	} {
		build := exec.Command("go", append([]string{"build", "-ldflags=-s -w", "-o", filepath.Join(dir, target)}, args...)...)
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", target, err, out)
		}
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	flag.Parse()
	// The tests mostly wait, so more tests can run in parallel than there are processors.
	if err := flag.Set("test.parallel", "10"); err != nil {
		panic(err)
	}
	code := m.Run()
	if dir, err := binaries(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// rig contains dialers and the services that they use. Only contacts-compliance and billing-wallet
// are fakes.
type rig struct {
	t         testing.TB
	pool      *pgxpool.Pool
	bus       *kafka.Client
	brokers   string
	gate      *gate
	wallet    *wallet
	gateURL   string
	simURL    string
	sim       *process
	simEnv    []string
	calls     *serviceauth.Keys
	gateway   *serviceauth.Keys
	env       []string
	workspace uuid.UUID
	agent     uuid.UUID
	test      bool // whether the workspace is a test workspace
	inbound   *eventv1.InboundSettings
	// replicas contains the newest process of each replica. The index is the number in the
	// replica's name.
	replicas *[]*process

	receivedFacts *receivedFacts
}

func (r *rig) within(t testing.TB) *rig {
	own := *r
	own.t = t
	return &own
}

// newRig returns a rig without dialers. Each simulated duration is multiplied by timeScale.
func newRig(t testing.TB, timeScale string) *rig {
	t.Helper()
	r := &rig{t: t, workspace: uuid.Must(uuid.NewV7()), agent: uuid.Must(uuid.NewV7()), gate: &gate{}, wallet: &wallet{},
		receivedFacts: &receivedFacts{},
		replicas:      &[]*process{},
	}
	r.pool = pgtest.New(t, serviceName, spec().Tracks()...)
	cfg := kafkatest.New(t)
	r.brokers = strings.Join(cfg.Brokers, ",")
	bus, err := kafka.NewClient(cfg, "dialer-test", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.bus = bus
	t.Cleanup(r.bus.Close)
	routes := http.NewServeMux()
	routes.Handle(compliancev1.NewDialCheckServiceHandler(r.gate))
	routes.Handle(billingv1.NewHoldServiceHandler(r.wallet))
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	r.gateURL = server.URL

	simAddr := freeAddr(t)
	r.simURL = "http://" + simAddr
	r.simEnv = []string{"SIMCARRIER_ADDR=" + simAddr, "SIMCARRIER_DIR=" + t.TempDir(), "SIMULATOR_TIME_SCALE=" + timeScale,
		"SIMCARRIER_TOKEN=" + simToken}
	r.startCarrier()
	own, _ := seed(t)
	callsSeed, callsPublic := seed(t)
	gatewaySeed, gatewayPublic := seed(t)
	r.calls, r.gateway = keysOf(t, "calls", callsSeed), keysOf(t, "gateway", gatewaySeed)
	r.env = []string{
		"POSTGRES_URL=" + r.pool.Config().ConnString(), "KAFKA_BROKERS=" + r.brokers, "CONTACTS_URL=" + r.gateURL,
		"WALLET_URL=" + r.gateURL,
		"SIM_URL=" + r.simURL, "SIM_TOKEN=" + simToken,
		"SIGNING_KEY=" + own, "TRUSTED_KEYS=calls=" + callsPublic + ",gateway=" + gatewayPublic,
		"SEALING_KEYS=test=" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"INSTANCE_LEASE=1s", "CLAIM_LEASE=4s", "OUTBOX_LEASE=1s", "LOG_FORMAT=text",
		// These ports are above the ephemeral ports of Linux and above the ports that libs/testkit
		// assigns.
		"RTP_PORT_LOW=61000", "RTP_PORT_HIGH=65534",
	}
	go r.listen(cfg)
	r.announce(true, false)
	return r
}

func (r *rig) startCarrier() {
	r.t.Helper()
	bin, err := binaries()
	if err != nil {
		r.t.Fatal(err)
	}
	r.sim = startProcess(r.t, filepath.Join(bin, "simcarrier"), r.simEnv)
	await(r.t, "the carrier is up", func() bool {
		resp, err := http.Get(r.simURL + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	})
}

// A new replica gets the name of a replica that has ended, like a pod of a StatefulSet. So Kafka
// assigns it the old partitions immediately.
func (r *rig) dialer(extra ...string) *process {
	r.t.Helper()
	bin, err := binaries()
	if err != nil {
		r.t.Fatal(err)
	}
	addr := freeAddr(r.t)
	replica := slices.IndexFunc(*r.replicas, (*process).ended)
	if replica < 0 {
		replica, *r.replicas = len(*r.replicas), append(*r.replicas, nil)
	}
	env := slices.Concat(r.env, []string{"HTTP_ADDR=" + addr, fmt.Sprintf("KAFKA_INSTANCE_ID=dialer-%d", replica)}, extra)
	p := startProcess(r.t, filepath.Join(bin, "dialer"), env)
	p.addr, (*r.replicas)[replica] = addr, p
	await(r.t, "the dialer listens", func() bool {
		if p.ended() {
			return true
		}
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return p
}

func (r *rig) announce(enabled, deleted bool) {
	r.t.Helper()
	version := time.Now().UnixNano()
	workspace := &eventv1.Workspace{
		Status: "active", ApiEnabled: enabled, MaxLiveCalls: 500, CallsPerSecond: 500,
		Destinations: []string{"+1415", "+4420", "+1900"}, Inbound: r.inbound,
	}
	event := &eventv1.WorkspaceEvent{
		WorkspaceId: r.workspace.String(), Version: version,
		Event: &eventv1.WorkspaceEvent_Workspace{Workspace: workspace},
	}
	if r.test {
		event.Event = &eventv1.WorkspaceEvent_TestWorkspace{TestWorkspace: workspace}
	}
	r.publish(kafka.Workspaces, r.workspace, event)
	r.publish(kafka.Agents, r.agent, &eventv1.AgentEvent{
		AgentId: r.agent.String(), WorkspaceId: r.workspace.String(), Version: version,
		Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{
			Name: "Ida", FromE164: dialqueue.DefaultFrom, MaxCallSeconds: 600, Deleted: deleted,
		}},
	})
}

func (r *rig) withoutNumber() {
	r.t.Helper()
	r.publish(kafka.Agents, r.agent, &eventv1.AgentEvent{
		AgentId: r.agent.String(), WorkspaceId: r.workspace.String(), Version: time.Now().UnixNano(),
		Event: &eventv1.AgentEvent_Agent{Agent: &eventv1.Agent{Name: "Ida", MaxCallSeconds: 600}},
	})
	await(r.t, "the agent has no number", func() bool {
		var from string
		err := r.pool.QueryRow(r.t.Context(), "SELECT from_e164 FROM agents WHERE agent_id = $1", r.agent).Scan(&from)
		return err == nil && from == ""
	})
}

type order struct {
	id       uuid.UUID
	to       string
	maxCall  int32
	dueAt    time.Time
	agent    uuid.UUID
	waitable bool
}

func (r *rig) request(to string, change ...func(*order)) uuid.UUID {
	r.t.Helper()
	o := order{id: uuid.Must(uuid.NewV7()), to: to, maxCall: 600, dueAt: time.Now(), agent: r.agent}
	for _, f := range change {
		f(&o)
	}
	r.publish(kafka.CallRequests, o.id, &eventv1.CallRequestEvent{
		CallRequestId: o.id.String(), WorkspaceId: r.workspace.String(),
		Event: &eventv1.CallRequestEvent_Requested{Requested: &eventv1.Requested{
			ToE164: o.to, AgentId: o.agent.String(), ScheduledFor: timestamppb.New(o.dueAt), QueuedAt: timestamppb.Now(),
			MaxCallSeconds: o.maxCall, ScheduleIfOutsideHours: o.waitable,
		}},
	})
	return o.id
}

func (r *rig) publish(topic kafka.Topic, key uuid.UUID, message proto.Message) {
	r.t.Helper()
	value, err := proto.Marshal(message)
	if err != nil {
		r.t.Fatal(err)
	}
	record := &kgo.Record{Topic: topic.Name, Key: []byte(key.String()), Value: value, Headers: []kgo.RecordHeader{
		{Key: kafka.HeaderID, Value: []byte(uuid.NewString())},
		{Key: kafka.HeaderType, Value: []byte(message.ProtoReflect().Descriptor().FullName())},
		{Key: kafka.HeaderWorkspaceID, Value: []byte(r.workspace.String())},
	}}
	if err := r.bus.ProduceSync(r.t.Context(), record).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

type logLine struct {
	Kind   string `json:"kind"`
	CallID string `json:"call_id"`
	From   string `json:"from"`
	To     string `json:"to"`
}

func (r *rig) log(kind, to string) (lines []logLine) {
	r.t.Helper()
	var page struct{ Data []logLine }
	r.carrier(http.MethodGet, "/log?after=0", "", &page)
	for _, line := range page.Data {
		if line.Kind == kind && line.To == to {
			lines = append(lines, line)
		}
	}
	return lines
}

func (r *rig) carrier(method, path, body string, into any) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.simURL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+simToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		r.t.Fatalf("%s %s = %d %s", method, path, resp.StatusCode, answer)
	}
	if err := json.Unmarshal(answer, into); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) withdraw(p *process, id uuid.UUID) (bool, error) {
	client := dialerv1.NewWithdrawServiceClient(http.DefaultClient, "http://"+p.addr,
		connect.WithInterceptors(r.calls.ClientInterceptor(serviceName)))
	ctx, cancel := context.WithTimeout(r.t.Context(), waitTimeout)
	defer cancel()
	resp, err := client.Withdraw(ctx, connect.NewRequest(&dialerv1.WithdrawRequest{
		CallRequestId: id.String(), WorkspaceId: r.workspace.String(),
	}))
	if err != nil {
		return false, err
	}
	return resp.Msg.GetWithdrawn(), nil
}

func (r *rig) admin(p *process, method, path, body string) (status int, answer map[string]any) {
	r.t.Helper()
	return r.asOperator(method, "http://"+p.addr+"/admin/v1/workspaces/"+r.workspace.String()+path, body)
}

func (r *rig) asOperator(method, url, body string) (status int, answer map[string]any) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	token, err := r.gateway.SignCaller(serviceName, serviceauth.Caller{WorkspaceID: r.workspace, Access: serviceauth.Write,
		Operator: "ops"})
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set(serviceauth.CallerHeader, token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, answer
}

func seed(t testing.TB) (private, public string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(key.Seed()), base64.StdEncoding.EncodeToString(pub)
}

func keysOf(t testing.TB, self, private string) *serviceauth.Keys {
	t.Helper()
	keys, err := serviceauth.New(self, serviceauth.Config{SigningKey: private})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func freeAddr(t testing.TB) string {
	t.Helper()
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ticker, timeout := time.NewTicker(20*time.Millisecond), time.After(waitTimeout)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ticker.C:
		case <-timeout:
			t.Fatalf("condition not met within %v: %s", waitTimeout, what)
		}
	}
}

// This trigger delays each insert of a fence while another transaction has the advisory lock. It
// polls, because lock_timeout would end an insert that waits for the lock.
const holdFences = `
CREATE FUNCTION hold_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT pg_try_advisory_xact_lock_shared(hashtextextended('test of fences', 0)) LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
	RETURN NEW;
END $$;
CREATE TRIGGER hold_fence BEFORE INSERT ON fences FOR EACH ROW EXECUTE FUNCTION hold_fence()`

// lockFences blocks inserts of fences until release is called. Other transactions can still read
// fences.
func lockFences(t testing.TB, r *rig) (release func()) {
	t.Helper()
	super := pgtest.Super(t, r.pool, serviceName)
	if _, err := super.Exec(t.Context(), holdFences); err != nil {
		t.Fatal(err)
	}
	tx, err := super.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const lock = `SELECT pg_advisory_xact_lock(hashtextextended('test of fences', 0))`
	if _, err := tx.Exec(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// waitUntilTooOld waits until the last dial-time check of the request is older than 2 s. The dialer
// can check a request several times.
func waitUntilTooOld(t testing.TB, r *rig, id uuid.UUID) {
	t.Helper()
	var asked time.Time
	times := 0
	await(t, "the last result of the gates is too old", func() bool {
		if now := r.gate.asked(id); now > times {
			times, asked = now, time.Now()
		}
		return times > 0 && time.Since(asked) > 2100*time.Millisecond
	})
}
