package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/libs/testkit"
	"ringfence.dev/services/dialer/internal/callstate"
)

func ringAtSipp(t *testing.T, number string, env ...string) (r *rig, p *process, id uuid.UUID, received func() string) {
	t.Helper()
	r = newRig(t, "0")
	port, received := startLogging(t, ringing)
	p = r.dialer(append([]string{"CARRIER=sip", "SIP_UDP_ADDR=" + freeAddr(t)}, env...)...)
	r.addTrunk(p, port, "")
	id = r.request(number)
	await(t, "the phone rings", func() bool { return r.statusOf(id) == string(callstate.Ringing) })
	return r, p, id, received
}

func (r *rig) statusOf(id uuid.UUID) (status string) {
	r.t.Helper()
	err := r.pool.QueryRow(r.t.Context(),
		"SELECT coalesce(max(status), '') FROM calls WHERE call_request_id = $1", id).Scan(&status)
	if err != nil {
		r.t.Fatal(err)
	}
	return status
}

func TestWithdraw_IsRefusedWhileThePhoneRings(t *testing.T) {
	t.Parallel()
	r, p, id, received := ringAtSipp(t, "+14155551314", "RING_LIMIT=15s")
	withdrawn, err := r.withdraw(p, id)
	if err != nil {
		t.Fatalf("withdraw: %v", err)
	}
	if withdrawn {
		t.Error("withdrawn = true, want false")
	}
	if got, want := r.statusOf(id), string(callstate.Ringing); got != want {
		t.Errorf("status after the withdrawal = %q, want %q", got, want)
	}
	if strings.Contains(received(), "CANCEL sip:") {
		t.Error("the phone received a CANCEL, want it to ring on")
	}
	facts := r.ends(id)
	if got := names(facts); strings.Contains(got, "withdrawn") {
		t.Errorf("events = %q, want no withdrawn", got)
	}
	if got, want := last(facts).GetCall().GetHangupCause(), string(callstate.NoAnswer); got != want {
		t.Errorf("hangup cause = %q, want %q", got, want)
	}
}

func TestStop_CancelsARingingPhone(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		limit   string
		signals []syscall.Signal
	}{
		{name: "after DRAIN_LIMIT", limit: "300ms", signals: []syscall.Signal{syscall.SIGTERM}},
		{name: "at the second signal", limit: "1h", signals: []syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r, p, id, received := ringAtSipp(t, "+14155551315", "RING_LIMIT=1h", "DRAIN_LIMIT="+test.limit)
			sendStops(t, p, test.signals)
			select {
			case <-p.done:
			case <-time.After(testkit.Timeout):
				t.Fatal("the dialer did not end")
			}
			if code := p.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("exit status = %d, want 0", code)
			}
			if !strings.Contains(received(), "CANCEL sip:") {
				t.Error("the phone received no CANCEL, so it rings on")
			}
			if got, want := r.statusOf(id), string(callstate.Canceled); got != want {
				t.Errorf("status = %q, want %q", got, want)
			}
		})
	}
}
