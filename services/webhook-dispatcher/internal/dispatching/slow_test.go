package dispatching

import (
	"testing"
	"testing/synctest"
	"time"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

// Who needs longer than a second for each answer is no hanging endpoint: it keeps what a stranger has.
func TestLanes_ASlowEndpointKeepsAFirstWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(512, 128)
		e := newEndpoint(l)
		slowly := func() (open int) {
			e.caught()
			flights := e.open(100)
			time.Sleep(3 * time.Second)
			e.end(flights, delivery.Answer{Code: 200, Took: 3 * time.Second})
			return len(flights)
		}
		for i := range 5 {
			if n := slowly(); n != startWindow {
				t.Fatalf("%d requests at once in round %d, want a first window", n, i)
			}
		}
		e.caught()
		e.end(e.open(100), delivery.Answer{Code: 503})
		slowly()
		slowly()
		for i := range 5 {
			n := slowly()
			wantAtLeast(t, "first window, for the requests after the trouble", startWindow, n)
			if i == 4 {
				wantEqual(t, "requests four rounds after the trouble", n, startWindow)
			}
		}
		for range 4 {
			e.caught()
			e.end(e.open(100), good)
		}
		for range 4 {
			slowly()
		}
		if n := slowly(); n != startWindow {
			t.Errorf("%d requests at once of an endpoint that became slow, want a first window", n)
		}
		check(t, l)
	})
}
