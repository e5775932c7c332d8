package e2e

import (
	"syscall"
	"testing"

	"ringfence.dev/test/kit"
	"ringfence.dev/test/kit/sharedstack"
)

const firstHung = 6_000_000

// For each service in turn, the test stops one of two replicas (SIGSTOP). Meanwhile calls must end
// and their webhooks must arrive. Without -large, the test stops only dialers.
func TestHangs_CallsCompleteWhileAReplicaIsStopped(t *testing.T) {
	system := stack(t)
	s, hooks := system.Stack, system.Hooks
	w := tenant(t, s, hooks, "1000")
	posting := &load{w: w, accepted: map[string]string{}, answers: map[int]int{}}
	victims := []string{"dialer", "billing-wallet", "calls", "webhook-dispatcher", "contacts-compliance", "gateway"}
	if !sharedstack.Large() {
		victims = victims[:1]
	}
	next := firstHung
	settles := func(what string) {
		t.Helper()
		next++
		// The replicas share a port. A connection to the stopped replica times out, and the client
		// repeats the request.
		posting.place(t.Context(), number(next))
		until(t, what+": every terminal event has arrived", func() bool { return terminalEvents(hooks, w) == next-firstHung })
	}
	settles("nothing hangs")
	for _, name := range victims {
		pids := s.Processes()[name]
		if len(pids) != 2 {
			t.Fatalf("there are %d processes of %s, want 2", len(pids), name)
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			settles("a " + name + " hangs")
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
	}
	settles("nothing hangs any more")
	posting.check(t)
	judge(t, s, w, hooks, posting.accepted)
}

func terminalEvents(hooks *kit.Receiver, w *kit.Workspace) int {
	ended := map[string]bool{}
	for _, d := range hooks.Deliveries(w.ID) {
		if d.Type != "call.ringing" && d.Type != "call.answered" {
			ended[d.CallID] = true
		}
	}
	return len(ended)
}
