// Package failover kills the primary Postgres and a dialer at the same time, promotes an
// asynchronous standby, restores backups, and counts how often each person was called. A test
// workspace calls over the simulated carrier, and a live workspace over a SIP trunk.
package failover

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const (
	// burstSize and sipBurstSize are the numbers of requests that are due at the time of the kill,
	// over the simulated carrier and over SIP.
	burstSize, sipBurstSize = 300, 60
	// dialedBeforeStall and sipDialedBeforeStall are the numbers of dials after which Kafka receives
	// no more records. The standby receives no WAL of these dials, so it lacks their fences (the rows
	// that permit one dial).
	dialedBeforeStall, sipDialedBeforeStall = 60, 20
	// talkingAtKill is the number of simulated conversations that must be in progress before the kill,
	// so that the remaining dialer has some of them.
	talkingAtKill = 20
	// sipTalking is the number of calls over SIP that are ordered before the burst, so that people
	// talk with both dialers when the standby receives its last WAL.
	sipTalking = 20
	// stallTime is the time before the kill in which no record reaches Kafka. A dialer must not
	// dial before Kafka has acknowledged its intent. Without the stall, the test could not detect a
	// dialer that violates this rule.
	stallTime = 300 * time.Millisecond
	// kafkaDelay is the mean delay of Kafka's responses in milliseconds.
	kafkaDelay = 120
)

// TestFailover_NoPersonIsCalledTwice kills the primary Postgres and one of two dialers during a
// burst of dials whose WAL the standby has not received. Afterwards the services connect to the
// promoted standby.
func TestFailover_NoPersonIsCalledTwice(t *testing.T) {
	bin := sharedstack.Binaries(t)
	for n := range sharedstack.Trials(2, 20) {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			x, standby, killed := failOver(t, bin, n, func(*server) {})
			x.awaitPhones(killed)
			r := x.awaitSettled()
			r.took = time.Since(killed)
			r.continued, r.broken = x.countConversations(standby, killed)
			r.sip = x.checkPhones(standby, killed)
			t.Log(r)
			if got := len(r.twice); got != 0 {
				t.Errorf("people called twice = %d (%v), want 0", got, r.twice)
			}
			if r.continued == 0 {
				t.Error("simulated conversations of living dialers that continued = 0, want more")
			}
			if r.broken != 0 {
				t.Errorf("simulated conversations of living dialers that broke off = %d, want 0", r.broken)
			}
			r.sip.assert(t)
		})
	}
}

// TestFailover_PersonIsCalledTwiceWithoutReconciliation shows that the failover trial can detect
// double calls. The trial marks the promoted standby as reconciled. The dialers then do not read
// the intents of the calls whose fences are lost, and dial these requests again.
func TestFailover_PersonIsCalledTwiceWithoutReconciliation(t *testing.T) {
	bin := sharedstack.Binaries(t)
	trials, want := sharedstack.Trials(3, 20), sharedstack.Trials(1, 10)
	detected, overSIP := 0, 0
	for n := 0; n < trials && (detected < want || overSIP < want); n++ {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) {
			x, _, killed := failOver(t, bin, n, func(standby *server) {
				standby.exec("ringfence", `
SET search_path = dialer;
UPDATE reconciled_servers SET server = server_identity()`)
			})
			x.phones.release()
			x.awaitNone("every request ends", (*customer).openRequests) // the first of two calls can stay open
			r := x.count()
			r.took = time.Since(killed)
			t.Log(r)
			if len(r.twice) > 0 {
				detected++
			}
			if len(r.sip.twice) > 0 {
				overSIP++
			}
		})
	}
	if detected < want {
		t.Errorf("trials with people called twice = %d of %d, want at least %d", detected, trials, want)
	}
	if overSIP < want {
		t.Errorf("trials with people called twice over SIP = %d of %d, want at least %d", overSIP, trials, want)
	}
}

type result struct {
	// unreplicated is the number of dials after the last WAL that the standby received.
	accepted, lost, originates, unreplicated int
	twice                                    []string
	// states counts the call requests by status and error code.
	states map[string]int
	// continued and broken count the conversations of the remaining dialers during the failover.
	continued, broken int
	sip               sipResult
	took              time.Duration
}

func (r result) String() string {
	return fmt.Sprintf("accepted %d, lost %d, originates %d, dialed without WAL %d, twice %d, requests %v, "+
		"conversations continued %d, broken %d; SIP: %v; ended after %s", r.accepted, r.lost, r.originates,
		r.unreplicated, len(r.twice), r.states, r.continued, r.broken, r.sip, r.took.Round(time.Millisecond))
}

// trial is a stack with proxies in its connections to Postgres and Kafka.
type trial struct {
	t     *testing.T
	stack *kit.Stack
	sql   *kit.Proxy
	kafka *kit.Proxy
	// sim calls over the simulated carrier, sip over the trunk to phones.
	sim, sip *customer
	phones   *phones

	unreplicated, sipUnreplicated int
	// owners maps the call of each fence on the killed primary to the dialer instance that
	// committed the fence.
	owners map[string]string
	// killedSIP is the SIP address of the killed dialer. standbyLegs contains the answered SIP legs
	// that the standby had received.
	killedSIP   string
	standbyLegs map[string]bool
}

// customer is a workspace and the call requests that the API has accepted from it.
type customer struct {
	*kit.Workspace
	t *testing.T
	// number returns the phone number of the n-th call request.
	number func(n int) string

	mu       sync.Mutex
	accepted map[string]string // phone number by call_request_id
	posted   int
}

func newProxy(t *testing.T, target string) *kit.Proxy {
	t.Helper()
	p, err := kit.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Disconnect)
	return p
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := testkit.Port()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func newTrial(t *testing.T, bin string, db *server) *trial {
	t.Helper()
	home, err := os.MkdirTemp("", "ringfence-failover-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o755); err != nil { // an unprivileged Postgres must be able to read the folder
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kept %s, see stack.log there", home)
			return
		}
		_ = os.RemoveAll(home)
	})
	broker := freePort(t)
	x := &trial{t: t, sql: newProxy(t, db.address()), kafka: newProxy(t, fmt.Sprintf("127.0.0.1:%d", broker))}
	x.phones = startPhones(t, personOf)
	state, err := json.Marshal(map[string]any{"layout": 2, "ports": map[string]int{"kafka": broker}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "state.json"), state, 0o600); err != nil {
		t.Fatal(err)
	}
	x.stack, err = kit.Start(t.Context(), kit.Options{Bin: bin, Home: home, Ready: kit.HangTimeout, Env: []string{
		fmt.Sprintf("RINGFENCE_PORT=%d", freePort(t)), fmt.Sprintf("RINGFENCE_ADMIN_PORT=%d", freePort(t)),
		"RINGFENCE_REPLICAS=2", "DIAL_ATTEMPTS=16", "SIMULATOR_TIME_SCALE=1", "RINGFENCE_RESTART_PAUSE=500ms",
		"POSTGRES_URL=" + urlAt(x.sql.Addr, "ringfence"), "RINGFENCE_DETOURS=everybody>kafka=" + x.kafka.Addr,
		"UNCONFIRMED_AFTER=5s", "REPUBLISH_AFTER=10s",
		"CARRIER=sip", fmt.Sprintf("SIP_UDP_ADDR=127.0.0.1:%d", freePort(t)), "RTP_PORT_LOW=61000", "RTP_PORT_HIGH=65534",
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.stack.Stop() })
	x.addCustomers()
	return x
}

func (x *trial) addCustomers() {
	x.t.Helper()
	simulated, err := x.stack.NewTestWorkspace(x.t.Context(), "simulated", "100000")
	if err != nil {
		x.t.Fatal(err)
	}
	overSIP, err := x.stack.NewWorkspace(x.t.Context(), "SIP", "100000")
	if err != nil {
		x.t.Fatal(err)
	}
	x.sim = &customer{Workspace: simulated, t: x.t, accepted: map[string]string{}, number: func(n int) string {
		return fmt.Sprintf("+1415%05d%02d", n, n%90)
	}}
	x.sip = &customer{Workspace: overSIP, t: x.t, accepted: map[string]string{}, number: func(n int) string {
		return fmt.Sprintf("+1212%07d", n)
	}}
	x.addTrunk()
}

// post orders one call and never repeats the POST. If the database has lost the idempotency key, a
// repeated POST would order another call.
func (c *customer) post(due time.Time) {
	c.mu.Lock()
	c.posted++
	to := c.number(c.posted)
	c.mu.Unlock()
	body := map[string]any{"agent_id": c.AgentID, "to": to}
	if !due.IsZero() {
		body["scheduled_for"] = due.UTC().Format(time.RFC3339Nano)
	}
	status, answer, err := c.API.Do(c.t.Context(), http.MethodPost, "/v1/calls", body)
	if err != nil || status != http.StatusAccepted {
		return
	}
	var req kit.Request
	if err := json.Unmarshal(answer, &req); err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepted[req.ID] = to
}

func (c *customer) postMany(n int, due time.Time) {
	work := make(chan struct{})
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range work {
				c.post(due)
			}
		})
	}
	for range n {
		work <- struct{}{}
	}
	close(work)
	clients.Wait()
}

// load orders calls at the interval until stop is called.
func (c *customer) load(interval time.Duration) (stop func()) {
	ticker, done := time.NewTicker(interval), make(chan struct{})
	var posts sync.WaitGroup
	posts.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				posts.Go(func() { c.post(time.Time{}) })
			}
		}
	})
	return func() {
		ticker.Stop()
		close(done)
		posts.Wait()
	}
}

func (x *trial) originates() map[string]int {
	x.t.Helper()
	log, err := x.stack.CarrierLog(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	count := map[string]int{}
	for _, line := range log {
		if line.Kind == "originate" {
			count[line.To]++
		}
	}
	return count
}

func (x *trial) until(what string, cond func() (bool, error)) {
	x.t.Helper()
	if err := kit.Until(x.t.Context(), kit.HangTimeout, what, cond); err != nil {
		x.t.Fatalf("%v; the end of the stack's log:\n%s", err, x.stack.Tail(30))
	}
}

// awaitSettled waits until every call request has ended, no call is live and no credit is held.
func (x *trial) awaitSettled() result {
	x.t.Helper()
	x.awaitNone("every request ends", (*customer).openRequests, (*customer).openCalls, (*customer).heldCredit)
	for _, c := range []*customer{x.sim, x.sip} {
		differences, err := c.Differences(x.t.Context())
		if err != nil {
			x.t.Error(err)
		}
		if diff := cmp.Diff([]string(nil), differences); diff != "" {
			x.t.Errorf("differences in the wallet of workspace %s (-want +got):\n%s", c.ID, diff)
		}
	}
	return x.count()
}

// awaitNone waits until the lists of both customers are empty.
func (x *trial) awaitNone(what string, lists ...func(*customer) (string, error)) {
	x.t.Helper()
	open := ""
	err := kit.Until(x.t.Context(), kit.HangTimeout, what, func() (bool, error) {
		open = ""
		for _, c := range []*customer{x.sim, x.sip} {
			for _, list := range lists {
				found, err := list(c)
				if err != nil {
					found = err.Error() // a service can still be reconnecting
				}
				open += found
			}
		}
		return open == "", nil
	})
	if err != nil {
		x.t.Errorf("%v: %.2000s", err, open)
	}
}

func (x *trial) count() (r result) {
	x.t.Helper()
	r = result{unreplicated: x.unreplicated, states: map[string]int{}}
	for _, c := range []*customer{x.sim, x.sip} {
		states := c.requestStates()
		for _, state := range states {
			r.states[state]++
		}
		r.accepted += len(c.accepted)
		for id := range c.accepted {
			if states[id] == "" {
				r.lost++
			}
		}
	}
	for _, n := range x.originates() {
		r.originates += n
	}
	r.twice = x.twice()
	r.sip = x.countDials()
	return r
}

// openRequests lists the call requests that have not ended according to the API.
func (c *customer) openRequests() (list string, err error) {
	requests, err := c.Requests(c.t.Context())
	for _, req := range requests {
		if !req.Final() {
			list += " " + req.ID + "=" + req.Status
		}
	}
	return list, err
}

// openCalls lists the calls that have not ended according to the API.
func (c *customer) openCalls() (list string, err error) {
	type listed struct{ ID, Status string }
	for _, status := range []string{"initiated", "ringing", "in_progress"} {
		query := url.Values{"status": {status}}
		calls, err := kit.All(c.t.Context(), c.API, "/v1/calls", query, func(one listed) string { return one.ID })
		if err != nil {
			return "", err
		}
		for _, call := range calls {
			list += " call " + call.ID + "=" + call.Status
		}
	}
	return list, nil
}

func (c *customer) heldCredit() (held string, err error) {
	var wallet struct {
		Held json.Number `json:"held"`
	}
	path := "/admin/v1/workspaces/" + c.ID + "/wallet"
	if err := c.Admin.Into(c.t.Context(), http.MethodGet, path, nil, http.StatusOK, &wallet); err != nil {
		return "", err
	}
	if amount, _ := wallet.Held.Float64(); amount != 0 {
		held = " held=" + wallet.Held.String()
	}
	return held, nil
}

func (x *trial) twice() (numbers []string) {
	x.t.Helper()
	for to, n := range x.originates() {
		if n > 1 {
			numbers = append(numbers, to)
		}
	}
	return numbers
}

// failOver kills the primary and one dialer during a burst of dials. It calls promoted before a
// service connects to the standby. n varies the amount of WAL that the standby lacks.
func failOver(
	t *testing.T, bin string, n int, promoted func(standby *server),
) (x *trial, standby *server, killed time.Time) {
	t.Helper()
	primary := newPrimary(t)
	wal := newProxy(t, primary.address())
	standby = copyFrom(t, wal.Addr, "-R")
	standby.start()
	x = newTrial(t, bin, primary)
	if err := x.kafka.DelayResponses(kafkaDelay); err != nil {
		t.Fatal(err)
	}
	stop, stopSIP := x.sim.load(100*time.Millisecond), x.sip.load(500*time.Millisecond)
	due := time.Now().Add(15 * time.Second)
	x.sip.postMany(sipTalking, time.Time{})
	x.sip.postMany(sipBurstSize, due)
	x.sim.postMany(burstSize, due)
	publisher := x.relayProcess()
	x.killedSIP = environment(t, publisher, "SIP_UDP_ADDR")
	x.until("people talk with both dialers", func() (bool, error) { return x.dialersThatTalk() == 2, nil })
	time.Sleep(time.Until(due.Add(-time.Duration(n%4) * 100 * time.Millisecond)))
	if err := wal.DropResponses(); err != nil {
		t.Fatal(err)
	}
	before, sipBefore := len(x.originates()), len(x.phones.received())
	x.until("the burst has begun, and people talk", func() (bool, error) {
		dialed, sipDialed := len(x.originates())-before, len(x.phones.received())-sipBefore
		talking := len(x.talking(time.Now()))
		return dialed >= dialedBeforeStall && sipDialed >= sipDialedBeforeStall && talking >= talkingAtKill, nil
	})
	if err := x.kafka.DropRequests(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(stallTime)
	x.owners = fenceOwners(primary)
	primary.kill()
	if err := syscall.Kill(publisher, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed = time.Now()
	x.unreplicated, x.sipUnreplicated = len(x.originates())-before, len(x.phones.received())-sipBefore
	standby.exec("postgres", "SELECT pg_promote()")
	x.standbyLegs = answeredLegs(standby)
	promoted(standby)
	if err := x.sql.Retarget(standby.address()); err != nil {
		t.Fatal(err)
	}
	if err := x.kafka.Restore(); err != nil {
		t.Fatal(err)
	}
	x.until("calls are dialed again", func() (bool, error) { return x.dialedSince(killed), nil })
	stop()
	stopSIP()
	return x, standby, killed
}

// relayProcess returns the dialer process whose relay publishes the events of all dialers. The test
// must kill it. Otherwise the relay would later publish events that it read from the lost database.
func (x *trial) relayProcess() (pid int) {
	x.t.Helper()
	x.until("a dialer publishes events", func() (bool, error) {
		for _, pid = range x.stack.Processes()["dialer"] {
			address := environment(x.t, pid, "PRIVATE_ADDR")
			_, metrics, err := kit.NewClient("http://"+address, "").Do(x.t.Context(), http.MethodGet, "/metrics", nil)
			if err != nil {
				return false, err
			}
			if strings.Contains(string(metrics), "\nringfence_outbox_leader 1\n") {
				return true, nil
			}
		}
		return false, nil
	})
	return pid
}

// environment returns a variable in the environment of a process.
func environment(t *testing.T, pid int, variable string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, value, _ := strings.Cut("\x00"+string(data), "\x00"+variable+"=")
	value, _, _ = strings.Cut(value, "\x00")
	return value
}

// dialedSince reports whether both carriers received calls a second after the time or later.
func (x *trial) dialedSince(at time.Time) bool {
	x.t.Helper()
	log, err := x.stack.CarrierLog(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	simulated := slices.ContainsFunc(log, func(line kit.LogLine) bool {
		return line.Kind == "originate" && line.At.After(at.Add(time.Second))
	})
	return simulated && slices.ContainsFunc(x.phones.received(), func(c phoneCall) bool {
		return c.begun.After(at.Add(time.Second))
	})
}

// talking returns the simulated calls that were answered before the time and had not ended then.
func (x *trial) talking(at time.Time) map[string]bool {
	x.t.Helper()
	log, err := x.stack.CarrierLog(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	talking := map[string]bool{}
	for _, line := range log {
		switch {
		case line.Kind == "answer" && line.At.Before(at):
			talking[line.CallID] = true
		case line.Kind == "hangup" && line.At.Before(at):
			delete(talking, line.CallID)
		}
	}
	return talking
}

// countConversations counts the simulated calls that were answered before the kill and had not
// ended then.
// Calls of the killed dialer are ignored. A call that is missing in the new database is broken.
func (x *trial) countConversations(db *server, killed time.Time) (continued, broken int) {
	living, status := map[string]bool{}, pairs(db, `SELECT call_id::text, status FROM dialer.calls`)
	for _, id := range db.column(`
SELECT instance_id::text FROM dialer.instances WHERE seen_at > now() - interval '10 seconds'`) {
		living[id] = true
	}
	for id := range x.talking(killed) {
		owner, fenced := x.owners[id]
		switch {
		case fenced && !living[owner]: // the dialer of this call was killed, so the call is not counted
		case status[id] == "completed":
			continued++
		default:
			x.t.Logf("conversation %s of dialer %q has the status %q in the new database", id, owner, status[id])
			broken++
		}
	}
	return continued, broken
}

// fenceOwners maps each call to the dialer instance that committed the call's fence.
func fenceOwners(db *server) map[string]string {
	return pairs(db, `SELECT call_id::text, instance_id::text FROM dialer.fences`)
}

func pairs(db *server, sql string) map[string]string {
	db.t.Helper()
	values := map[string]string{}
	for _, row := range db.column(`SELECT a || ' ' || b FROM (` + sql + `) AS q (a, b)`) {
		key, value, _ := strings.Cut(row, " ")
		values[key] = value
	}
	return values
}

// requestStates returns the status of each call request that the API returns, with its error code.
func (c *customer) requestStates() map[string]string {
	c.t.Helper()
	requests, err := c.Requests(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	states := map[string]string{}
	for _, req := range requests {
		states[req.ID] = state(req)
	}
	return states
}

func state(req kit.Request) string {
	if req.ErrorCode != nil {
		return req.Status + " " + *req.ErrorCode
	}
	return req.Status
}

// TestRestore_NoPersonIsCalledTwice restores a backup that was made before 1,000 calls. Half of the
// calls were ordered before the backup and have ended. The other calls were ordered after the
// backup, and the last of them are live. Further calls, a tenth as many, are over SIP.
func TestRestore_NoPersonIsCalledTwice(t *testing.T) {
	bin := sharedstack.Binaries(t)
	db := newPrimary(t)
	x := newTrial(t, bin, db)
	due := time.Now().Add(20 * time.Second)
	calls := sharedstack.Trials(200, 1000)
	overSIP := calls / 10
	x.sip.postMany(overSIP/2, due)
	x.sim.postMany(calls/2, due) // the backup contains these call requests, but not their calls
	backup := copyFrom(t, db.address())
	var before map[string]string
	x.until("the requests of the backup complete", func() (bool, error) {
		before = x.sim.requestStates()
		maps.DeleteFunc(before, func(_, state string) bool { return state != "completed" })
		return len(before) == calls/2, nil
	})
	x.sim.postMany(calls-calls/2, time.Time{})
	x.sip.postMany(overSIP-overSIP/2, time.Time{})
	x.until("every request is dialed", func() (bool, error) {
		return len(x.originates()) >= calls && len(x.phones.received()) >= overSIP, nil
	})
	x.phones.release()
	if err := x.stack.Stop(); err != nil {
		t.Fatal(err)
	}
	db.kill()
	backup.start()
	if err := x.sql.Retarget(backup.address()); err != nil {
		t.Fatal(err)
	}
	again, err := x.stack.Restart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x.stack = again
	x.sim.postMany(20, time.Time{})
	x.sip.postMany(20, time.Time{})
	r := x.awaitSettled()
	after := x.sim.requestStates()
	maps.DeleteFunc(after, func(id, state string) bool { return before[id] == "" || state == before[id] })
	t.Logf("%v; of %d requests that had completed before, %d have another end", r, len(before), len(after))
	if diff := cmp.Diff(map[string]string{}, after); diff != "" {
		t.Errorf("requests that had completed before have another end (-want +got):\n%.2000s", diff)
	}
	if got := len(r.twice); got != 0 {
		t.Errorf("people called twice = %d (%.300s), want 0", got, strings.Join(r.twice, " "))
	}
	if got := len(r.sip.twice); got != 0 {
		t.Errorf("people called twice over SIP = %d (%v), want 0", got, r.sip.twice)
	}
	if got, want := r.originates, calls+20; got < want {
		t.Errorf("calls in the carrier's log = %d, want at least %d", got, want)
	}
	if got, want := r.sip.dialogs, overSIP+20; got < want {
		t.Errorf("calls that the phones received = %d, want at least %d", got, want)
	}
}
