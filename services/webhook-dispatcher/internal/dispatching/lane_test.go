package dispatching

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/webhook-dispatcher/internal/delivery"
)

func TestLanes_RememberTroubleForAWhileOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLanes(100)
		bad, good := delivery.Work{SubscriptionID: uuid.New()}, delivery.Work{SubscriptionID: uuid.New()}
		for _, w := range []delivery.Work{bad, good} {
			l.take(w)
		}
		l.done(bad, delivery.Answer{Code: 503})
		l.done(good, delivery.Answer{Code: 200})
		free, rooms := l.room()
		if free != 100 || len(rooms) != 1 || rooms[0].SubscriptionID != bad.SubscriptionID || rooms[0].Total != startWindow/2 {
			t.Errorf("after one failure and one success: %d free, %+v; want the failing one alone, with half its window", free, rooms)
		}
		time.Sleep(memory + time.Second)
		if _, rooms := l.room(); len(rooms) != 0 {
			t.Errorf("after %s without work: %+v, want it forgotten", memory, rooms)
		}
	})
}
