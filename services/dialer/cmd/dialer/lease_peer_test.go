package main

import (
	"path/filepath"
	"strings"
	"testing"

	"ringfence.dev/services/dialer/internal/callstate"
)

// SIGSTOP halts the first dialer for longer than its lease while it has two calls. The second
// dialer ends these calls and places calls itself. Then the first dialer continues.
func TestTrunk_ChannelLimitIsKeptAfterADialerLostItsLease(t *testing.T) {
	t.Parallel()
	const hungUp = `<recv request="BYE"><action><log message="ends [$us] [$them] [clock_tick]"/></action></recv>
<send next="end"><![CDATA[

SIP/2.0 200 OK
[last_Via:]
[last_From:]
[last_To:]
[last_Call-ID:]
[last_CSeq:]
Content-Length: 0

]]></send>
`
	r, file := newRig(t, "0"), filepath.Join(t.TempDir(), "calls")
	port := startTrunk(t, answersThen(audioOfSipp, hungUp), "-trace_logs", "-log_file", file)
	first := r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+freeAddr(t))
	path := r.addTrunk(first, port, `,"channels":3,"calls_per_second":100,"media_timeout_seconds":0`)
	r.setAgent(`{"script":{"tone_hz":440,"tone_millis":200,"end_after_millis":600000}}`)
	lost := r.requestMany(2, 1900)
	rows := func(query string) (n int) {
		if err := r.pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	await(t, "the first dialer has two answered calls", func() bool {
		return rows("SELECT count(*) FROM sip_legs WHERE answered_at IS NOT NULL AND ended_at IS NULL") == len(lost)
	})
	address := freeAddr(t)
	r.dialer("CARRIER=sip", "SIP_UDP_ADDR="+address)
	r.awaitTrunkOfReplicas(path, 2)
	r.setAgent(`{"script":{"tone_hz":440,"tone_millis":200,"end_after_millis":1000}}`)
	later := r.requestMany(8, 1910)
	await(t, "all call requests are in the queue", func() bool {
		return rows("SELECT count(*) FROM dial_queue") == len(lost)+len(later)
	})
	resume := pause(t, first)
	await(t, "the second dialer places more calls than the trunk has channels", func() bool {
		placed := 0
		for _, line := range readLog(t, file) {
			if strings.Contains(line.contact, address) {
				placed++
			}
		}
		return placed > 3
	})
	resume()
	for _, id := range lost {
		if got, want := last(r.ends(id)).GetCall().GetErrorCode(), callstate.CodeDialStateUnknown; got != want {
			t.Errorf("error code of a call of the paused dialer = %q, want %q", got, want)
		}
	}
	for _, id := range later {
		if got, want := last(r.ends(id)).GetCall().GetStatus(), "completed"; got != want {
			t.Errorf("status of a later call = %q, want %q", got, want)
		}
	}
	checkChannels(t, readLog(t, file))
}

// awaitTrunkOfReplicas waits until the trunk has answered the OPTIONS requests of all replicas.
func (r *rig) awaitTrunkOfReplicas(path string, replicas int) {
	r.t.Helper()
	await(r.t, "the trunk answers the OPTIONS of all replicas", func() bool {
		status, response := r.asOperator("GET", path, "")
		if status != 200 {
			r.t.Fatalf("GET trunk = %d %v, want 200", status, response)
		}
		answered := 0
		for _, each := range response["replicas"].([]any) {
			if each.(map[string]any)["last_answer"] != nil {
				answered++
			}
		}
		return answered == replicas
	})
}
