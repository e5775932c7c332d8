package httpapi_test

import (
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/proto/billingv1"
)

// keyState is the expected state of one idempotency key in one workspace.
type keyState struct {
	// requestID is the id of the key's request. If the first POST failed, a repeated POST gets the
	// same id.
	requestID string
	// toNumber is the phone number in the body that claimed the key.
	toNumber string
	done     bool
}

// The test uses the same keys in two workspaces, one after the other and concurrently. Each POST is
// accepted, is refused, or fails at its hold. A POST that fails at its hold leaves an expired claim
// without a request.
func TestCreate_KeyHasOneRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rapid.Check(t, func(rt *rapid.T) {
		workspaces := []uuid.UUID{newID(t), newID(t)}
		agents := map[uuid.UUID]string{}
		for _, w := range workspaces {
			agents[w] = r.doAs(w, "POST", "/admin/v1/workspaces/"+w.String()+"/agents", map[string]any{"name": "Ada"}).id()
		}
		slots := map[string]*keyState{}
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			w := rapid.SampledFrom(workspaces).Draw(rt, "workspace")
			key := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "key")
			to := rapid.SampledFrom([]string{number(1), number(2)}).Draw(rt, "to")
			fate := rapid.SampledFrom([]string{"accepted", "accepted", "refused", "broken"}).Draw(rt, "fate")
			clients := rapid.SampledFrom([]int{1, 1, 3}).Draw(rt, "clients")
			if fate == "broken" {
				clients = 1
			}
			s := slots[w.String()+key]
			if s == nil {
				s = &keyState{}
				slots[w.String()+key] = s
			}
			r.peers.set(func(p *fakePeers) {
				p.preCheck, p.hold = allow, held
				switch fate {
				case "refused":
					p.preCheck = refuse("recipient_dnd")
				case "broken":
					p.hold = down[billingv1.HoldRequest, billingv1.HoldResponse]
				}
			})
			answers := make([]answer, clients)
			var all sync.WaitGroup
			for i := range answers {
				all.Go(func() {
					answers[i] = r.doAs(w, "POST", "/v1/calls", map[string]any{"agent_id": agents[w], "to": to, "idempotency_key": key})
				})
			}
			all.Wait()
			s.checkAnswers(rt, fate, to, answers)
			if fate == "broken" && !s.done {
				held := r.peers.heldIDs()
				s.requestID, s.toNumber = held[len(held)-1], to
			}
		}
		for _, w := range workspaces {
			want := 0
			for _, key := range []string{"a", "b"} {
				if s := slots[w.String()+key]; s != nil && s.done {
					want++
				}
			}
			if n := r.count(`SELECT count(*) FROM call_requests WHERE workspace_id = $1`, w); n != want {
				rt.Fatalf("%d requests, want %d", n, want)
			}
		}
	})
}

// checkAnswers compares the responses with the expected state of the key, and updates that state.
func (s *keyState) checkAnswers(rt *rapid.T, fate, to string, answers []answer) {
	statuses := make([]int, len(answers))
	for i, a := range answers {
		statuses[i] = a.status
	}
	slices.Sort(statuses)
	want := slices.Repeat([]int{http.StatusOK}, len(answers))
	switch {
	case s.done:
	case fate == "accepted":
		want[len(want)-1] = http.StatusAccepted
	case fate == "refused":
		want = slices.Repeat([]int{http.StatusUnprocessableEntity}, len(answers))
	default:
		want[0] = http.StatusServiceUnavailable
	}
	if !slices.Equal(statuses, want) {
		rt.Fatalf("%s: statuses %v, want %v (the key was %+v)", fate, statuses, want, *s)
	}
	switch {
	case s.done || fate == "accepted":
		if !s.done && s.requestID != "" && s.toNumber == to && answers[0].id() != s.requestID {
			rt.Fatalf("takeover created request %s, want %s", answers[0].id(), s.requestID)
		}
		if !s.done {
			s.requestID = answers[0].id()
		}
		for _, a := range answers {
			if a.id() != s.requestID {
				rt.Fatalf("answered with %s, want %s", a.id(), s.requestID)
			}
		}
		s.done = true
	case fate == "refused":
		*s = keyState{}
	}
}
