package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/proto/compliancev1"
)

// crashPoints returns the names of all failpoints, except those of SIP trunks, which have their own
// test.
func crashPoints(t *testing.T) (points []string) {
	t.Helper()
	named := regexp.MustCompile(`failpoint\.Inject\("([^"]+)"\)`)
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		code, err := os.ReadFile(path)
		for _, match := range named.FindAllStringSubmatch(string(code), -1) {
			if !slices.Contains(points, match[1]) && !strings.Contains(match[1], "over sip") {
				points = append(points, match[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatalf("WalkDir: %v", err)
	}
	if len(points) < 8 {
		t.Fatalf("length of points = %d, want at least 8", len(points))
	}
	return points
}

// The test starts three independent dialers. Each dialer crashes at one third of the failpoints,
// one after the other.
func TestCrash_CrashAtAFailpointCausesNoSecondDial(t *testing.T) {
	t.Parallel()
	const dialers = 3
	points := crashPoints(t)
	for first := range dialers {
		t.Run(fmt.Sprintf("dialer %d", first+1), func(t *testing.T) {
			t.Parallel()
			c := crashingDialer{rig: newRig(t, "0.2"), failpointFile: filepath.Join(t.TempDir(), "armed")}
			c.process = c.dialer("CRASH_FILE=" + c.failpointFile)
			for i := first; i < len(points); i += dialers {
				t.Run(strings.ReplaceAll(points[i], " ", "_"), func(t *testing.T) { c.dieAt(t, points[i], i) })
			}
		})
	}
}

// crashingDialer is a dialer that reads the name of its failpoint from failpointFile.
type crashingDialer struct {
	*rig
	process       *process
	failpointFile string
}

func (c *crashingDialer) dieAt(t *testing.T, point string, i int) {
	t.Helper()
	r := c.within(t)
	to := func(digits string) string { return fmt.Sprintf("+1415555%02d%s", i, digits) }
	r.awaitIdle(to("90"))
	if err := os.WriteFile(c.failpointFile, []byte(point), 0o600); err != nil {
		t.Fatal(err)
	}
	talks, optsOut := r.request(to("01")), r.request(to("96"))
	far := r.request(to("02"), func(o *order) { o.dueAt = time.Now().Add(time.Hour) })
	await(t, "the process dies at the failpoint", func() bool {
		if strings.Contains(point, "withdraw") {
			if _, err := r.withdraw(c.process, far); err == nil {
				t.Fatal("withdraw was answered, want no answer")
			}
		}
		if strings.Contains(point, "hangup") {
			if _, err := r.hangUp(c.process, r.workspace, uuid.NewString()); err == nil {
				t.Fatal("hang-up was answered, want no answer")
			}
		}
		return c.process.ended()
	})
	c.process = c.dialer("CRASH_FILE=" + c.failpointFile)
	taken := false
	await(t, "the dialer answers the withdrawal", func() bool {
		var err error
		taken, err = r.withdraw(c.process, far)
		return err == nil
	})
	if !taken {
		t.Error("withdraw of the request for later = false, want true")
	}
	for to, id := range map[string]uuid.UUID{to("01"): talks, to("96"): optsOut} {
		wantOneDial(t, r, to, r.ends(id))
	}
	if got := names(r.ends(far)); got != "withdrawn" {
		t.Errorf("events of the withdrawn request = %q, want withdrawn", got)
	}
	await(t, "no call request is claimed or in a call", func() bool { return r.inUse() == 0 })
}

func (r *rig) inUse() (n int) {
	r.t.Helper()
	const query = `SELECT count(*) FROM dial_queue
		WHERE state = 'dialing' OR state = 'queued' AND claimed_by IS NOT NULL AND look_at > now()`
	if err := r.pool.QueryRow(r.t.Context(), query).Scan(&n); err != nil {
		r.t.Fatalf("count requests in use: %v", err)
	}
	return n
}

// awaitIdle sends a call request to the number and waits until it has ended. Then it waits until
// all opt-outs are reported.
func (r *rig) awaitIdle(to string) {
	r.t.Helper()
	r.ends(r.request(to))
	await(r.t, "every opt-out is reported", func() bool {
		var waiting int
		err := r.pool.QueryRow(r.t.Context(), "SELECT count(*) FROM opt_outs WHERE acknowledged_at IS NULL").Scan(&waiting)
		return err == nil && waiting == 0
	})
}

// wantOneDial checks how a call request ended, and that it was dialed at most once. An interrupted
// call must not be charged.
func wantOneDial(t *testing.T, r *rig, to string, facts []eventRecord) {
	t.Helper()
	finals := 0
	for _, f := range facts {
		if slices.Contains([]string{"ended", "failed", "blocked"}, f.name) {
			finals++
		}
	}
	if finals != 1 {
		t.Errorf("%s has %d ends: %s", to, finals, names(facts))
	}
	if n := len(r.log("originate", to)); n > 1 {
		t.Errorf("%s was dialed %d times: %s", to, n, names(facts))
	}
	if c := last(facts).GetCall(); c.GetStatus() == "failed" && (c.GetErrorCode() != "dial_state_unknown" || c.GetBillableSeconds() != 0) {
		t.Errorf("%s ended as %v", to, c)
	}
}

func inProgress(t *testing.T, r *rig, id uuid.UUID) string {
	t.Helper()
	callID := ""
	await(t, "the call is answered", func() bool {
		for _, f := range r.factsOf(id.String()) {
			if f.name == "answered" {
				callID = f.event.GetCall().GetCallId()
			}
		}
		return callID != ""
	})
	return callID
}

func TestCrash_RestartedDialerHangsUpTheCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, "8") // all durations are multiplied by 8, so a simulated person talks for at least 16 s
	first := r.dialer()
	id := r.request("+14155550101")
	inProgress(t, r, id)
	first.kill()
	r.dialer()
	facts := r.ends(id)
	c := last(facts).GetCall()
	switch {
	case c.GetStatus() != "failed":
		t.Errorf(`c.GetStatus() = %v, want "failed"`, c.GetStatus())
	case c.GetErrorCode() != "dial_state_unknown":
		t.Errorf(`c.GetErrorCode() = %v, want "dial_state_unknown"`, c.GetErrorCode())
	case c.GetBillableSeconds() != 0:
		t.Errorf("c.GetBillableSeconds() = %v, want 0", c.GetBillableSeconds())
	case c.GetTalkSeconds() == 0:
		t.Error("c.GetTalkSeconds() = 0, want another value")
	}
	if dials, ends := len(r.log("originate", "+14155550101")), len(r.log("hangup", "+14155550101")); dials != 1 {
		t.Errorf("dials = %v, want 1", dials)
	} else if ends != 1 {
		t.Errorf("ends = %v, want 1", ends)
	}
}

func TestCrash_CallThatEndedWhileNoDialerRanKeepsItsResult(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0.3")
	first := r.dialer()
	id := r.request("+14155550102")
	inProgress(t, r, id)
	first.kill()
	await(t, "the person hangs up", func() bool { return len(r.log("hangup", "+14155550102")) == 1 })
	r.dialer()
	facts := r.ends(id)
	switch c := last(facts).GetCall(); {
	case c.GetStatus() != "completed":
		t.Errorf(`c.GetStatus() = %v, want "completed"`, c.GetStatus())
	case c.GetBillableSeconds() == 0:
		t.Error("c.GetBillableSeconds() = 0, want another value")
	case names(facts) != talked:
		t.Errorf("names(facts) = %v, want %v", names(facts), talked)
	}
}

func TestCrash_CallsOfTheOtherReplicaContinue(t *testing.T) {
	t.Parallel()
	r := newRig(t, "2")
	first := r.dialer()
	orphan := r.request("+14155550103")
	inProgress(t, r, orphan)
	r.dialer()
	owners := func() (n int) {
		_ = r.pool.QueryRow(t.Context(), "SELECT count(*) FROM instances").Scan(&n)
		return n
	}
	await(t, "both replicas send heartbeats", func() bool { return owners() == 2 })
	// Either replica can claim a call request. So the test sends requests until the second replica has
	// a call. The simulated persons whose numbers end in 00 to 89 talk.
	var ids []uuid.UUID
	ofFirst := map[string]bool{}
	await(t, "the second replica has a call", func() bool {
		ids = append(ids, r.request(fmt.Sprintf("+1415556%02d%02d", len(ids)/90, len(ids)%90)))
		rows, err := r.pool.Query(t.Context(), "SELECT call_request_id, owner = (SELECT owner FROM calls WHERE call_request_id = $1) FROM calls", orphan)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		others := 0
		for rows.Next() {
			var id uuid.UUID
			var same bool
			if err := rows.Scan(&id, &same); err != nil {
				t.Fatal(err)
			}
			if ofFirst[id.String()] = same; !same {
				others++
			}
		}
		return others > 0
	})
	await(t, "each call request has a call of one of the replicas", func() bool {
		var n int
		err := r.pool.QueryRow(t.Context(), "SELECT count(*) FROM calls").Scan(&n)
		return err == nil && n == len(ids)+1
	})
	firstOwner := uuid.Nil
	if err := r.pool.QueryRow(t.Context(), "SELECT owner FROM calls WHERE call_request_id = $1", orphan).Scan(&firstOwner); err != nil {
		t.Fatal(err)
	}
	owned := map[uuid.UUID]uuid.UUID{}
	for _, id := range ids {
		var owner uuid.UUID
		if err := r.pool.QueryRow(t.Context(), "SELECT owner FROM calls WHERE call_request_id = $1", id).Scan(&owner); err != nil {
			t.Fatal(err)
		}
		owned[id] = owner
	}
	first.kill()
	for id, owner := range owned {
		c := last(r.ends(id)).GetCall()
		if owner != firstOwner && c.GetStatus() != "completed" {
			t.Errorf("call of the living replica = %v", c)
		}
	}
	if c := last(r.ends(orphan)).GetCall(); c.GetStatus() == "failed" && c.GetErrorCode() != "dial_state_unknown" {
		t.Errorf("orphan = %v", c)
	}
}

func TestStop_RestartedDialerContinuesTheCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, "2")
	first := r.dialer()
	id := r.request("+14155550104")
	inProgress(t, r, id)
	if err := first.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-first.done
	r.dialer()
	if facts := r.ends(id); names(facts) != talked {
		t.Errorf("facts = %s %v", names(facts), last(facts))
	}
}

// SIGSTOP halts the first dialer after the commit of the fence, for longer than its lease.
// Meanwhile, the second dialer takes over the call and ends it.
func TestFence_HaltedDialerDoesNotDialACallThatWasTakenOver(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	hold := make(chan struct{})
	var once sync.Once
	goOn := func() { once.Do(func() { close(hold) }) }
	t.Cleanup(goOn)
	var fenced, again atomic.Bool
	r.gate.answer = func(*compliancev1.CheckRequest, int) (*compliancev1.CheckResponse, error) {
		if fenced.Load() {
			again.Store(true)
			<-hold
		}
		return open(), nil
	}
	p := r.dialer()
	release := lockFences(t, r)
	id := r.request("+14155550105")
	waitUntilTooOld(t, r, id)
	fenced.Store(true)
	release()
	await(t, "the gates are checked again after the fence", again.Load)
	resume := pause(t, p)
	r.dialer()
	// The halted dialer still holds the lease of the relay, so the events of the call are not
	// published yet.
	await(t, "the second dialer ends the call", func() bool {
		var code string
		err := r.pool.QueryRow(t.Context(), "SELECT error_code FROM calls WHERE call_request_id = $1", id).Scan(&code)
		return err == nil && code == "dial_state_unknown"
	})
	resume()
	goOn()
	await(t, "the first dialer has detected that it does not own the call", func() bool {
		return strings.Contains(p.output(), "result=fault")
	})
	if facts := r.ends(id); names(facts) != "dialing ended" {
		t.Errorf("facts = %s", names(facts))
	}
	if n := len(r.log("originate", "+14155550105")); n != 0 {
		t.Errorf("dialed %d times after it had ended", n)
	}
}

func TestWatchdog_CallEndsAtItsMaximumDuration(t *testing.T) {
	t.Parallel()
	r := newRig(t, "8")
	r.dialer()
	id := r.request("+14155551107", func(o *order) { o.maxCall = 2 })
	c := last(r.ends(id)).GetCall()
	if got, want := c.GetStatus(), "completed"; got != want {
		t.Errorf("status = %q, want %q", got, want)
	}
	if got, want := c.GetHangupCause(), "max_duration"; got != want {
		t.Errorf("hangup cause = %q, want %q", got, want)
	}
	if got := c.GetBillableSeconds(); got < 2 {
		t.Errorf("billable seconds = %d, want at least 2", got)
	}
}

func TestWatchdog_EndsTheCallIfTheCarrierIsUnreachable(t *testing.T) {
	t.Parallel()
	r := newRig(t, "8")
	r.dialer("WATCHDOG_GRACE=1s")
	id := r.request("+14155550108", func(o *order) { o.maxCall = 1 })
	inProgress(t, r, id)
	r.sim.kill()
	c := last(r.ends(id)).GetCall()
	switch {
	case c.GetStatus() != "failed":
		t.Errorf(`c.GetStatus() = %v, want "failed"`, c.GetStatus())
	case c.GetHangupCause() != "recovery_on_timer_expire":
		t.Errorf(`c.GetHangupCause() = %v, want "recovery_on_timer_expire"`, c.GetHangupCause())
	case c.GetErrorCode() != "provider_unavailable":
		t.Errorf(`c.GetErrorCode() = %v, want "provider_unavailable"`, c.GetErrorCode())
	case c.GetBillableSeconds() != 0:
		t.Errorf("c.GetBillableSeconds() = %v, want 0", c.GetBillableSeconds())
	}
	// The carrier cannot be reached now. The dial of the first call request fails, and the request is
	// queued again. Other call requests wait in the queue.
	released := r.request("+14155550109", func(o *order) { o.maxCall = 1 })
	await(t, "the request is queued again", func() bool {
		void, _ := r.released(released)
		return void > 0
	})
	waits := r.request("+14155550110", func(o *order) { o.maxCall = 1 })
	r.startCarrier()
	if got := names(r.ends(waits)); !strings.HasPrefix(got, "dialing dialing ringing answered") {
		t.Errorf("facts = %s", got)
	}
	if got := last(r.ends(released)).GetCall().GetHangupCause(); got != "max_duration" {
		t.Errorf("hangup cause of the released request = %q, want max_duration", got)
	}
}

func TestQueue_OldRequestFailsWithQueueExpired(t *testing.T) {
	t.Parallel()
	r := newRig(t, "0")
	r.dialer()
	id := r.request("+14155550111", func(o *order) { o.dueAt = time.Now().Add(-25 * time.Hour) })
	facts := r.ends(id)
	if got := names(facts); got != "failed" {
		t.Errorf(`facts: names(facts) = %q, want "failed"`, got)
	} else if got := last(facts).GetFailed().GetErrorCode(); got != "queue_expired" {
		t.Errorf(`facts: last(facts).GetFailed().GetErrorCode() = %q, want "queue_expired"`, got)
	}
}
