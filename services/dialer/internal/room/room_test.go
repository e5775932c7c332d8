package room_test

import (
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/services/dialer/internal/room"
)

func ago(seconds float64) *float64 { return &seconds }

// ample is a scope without an end.
func ample() room.Scope { return scope(1_000_000, 1_000_000, 0) }

func scope(live, perSecond, taken int) room.Scope {
	l := room.Limit{Live: live, PerSecond: perSecond}
	return room.Scope{Limit: l, Taken: taken, All: room.Pace{Rate: float64(perSecond)}, Crowd: room.Pace{Rate: l.CrowdRate()}}
}

func queue(waiting, taken, maxLive int) room.Queue {
	return room.Queue{WorkspaceID: uuid.New(), Waiting: waiting, Taken: taken, MaxLive: maxLive, Pace: room.Pace{Rate: 1_000_000}}
}

func TestDeal(t *testing.T) {
	t.Parallel()
	barred := queue(50, 9, 1)
	barred.Barred = true
	slow := queue(50, 0, 500)
	slow.Pace = room.Pace{Rate: 5, Rested: ago(60)}
	spent := queue(50, 3, 500)
	spent.Pace = room.Pace{Rate: 5, Rested: ago(0.05)}
	indebted := scope(1_000_000, 500, 0)
	indebted.Crowd.Rested = ago(-0.5)
	tests := []struct {
		name   string
		scopes []room.Scope
		free   int
		queues []room.Queue
		want   []int
		last   int
	}{
		{"what one leaves the others get", []room.Scope{ample()}, 10, []room.Queue{queue(50, 0, 500), queue(1, 0, 500), queue(50, 0, 500)}, []int{5, 1, 4}, 0},
		{"a single hand goes to the first in turn", []room.Scope{ample()}, 1, []room.Queue{queue(50, 0, 500), queue(1, 0, 500)}, []int{1, 0}, 0},
		{"a workspace has its own limit", []room.Scope{ample()}, 10, []room.Queue{queue(50, 497, 500), queue(50, 500, 500)}, []int{3, 0}, 0},
		{"the last tenth of the channels is not for one that has much", []room.Scope{scope(100, 1_000_000, 85)}, 64, []room.Queue{queue(50, 85, 500)}, []int{5}, 0},
		{"the last tenth is for those that have nothing", []room.Scope{scope(100, 1_000_000, 95)}, 64, []room.Queue{queue(50, 95, 500), queue(50, 0, 500)}, []int{0, 1}, 1},
		{"a full trunk is full", []room.Scope{scope(100, 1_000_000, 100)}, 64, []room.Queue{queue(50, 0, 500)}, []int{0}, -1},
		{"over all trunks the same", []room.Scope{ample(), scope(100, 1_000_000, 90)}, 64, []room.Queue{queue(50, 45, 500), queue(2, 0, 500)}, []int{0, 1}, 1},
		{"a single channel can be used", []room.Scope{scope(1, 10, 0)}, 64, []room.Queue{queue(2, 0, 500)}, []int{1}, 0},
		{"a pace keeps a tenth of a second, less the last tenth", []room.Scope{scope(10_000, 200, 0)}, 64, []room.Queue{queue(50, 0, 500)}, []int{18}, 0},
		{"a low pace keeps one dial", []room.Scope{ample()}, 64, []room.Queue{slow}, []int{1}, 0},
		{"a pace that was used up keeps none", []room.Scope{ample()}, 64, []room.Queue{spent}, []int{0}, -1},
		{"the crowd waits for its debt, who was quiet does not", []room.Scope{indebted}, 64, []room.Queue{spent, queue(3, 0, 500)}, []int{0, 1}, 1},
		{"what is only to be blocked needs no room", []room.Scope{scope(10, 10, 10)}, 64, []room.Queue{barred}, []int{50}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := room.Deal(tt.scopes, room.Hands{Free: tt.free}, tt.queues)
			for i, want := range tt.want {
				if got.Shares[i] != want {
					t.Errorf("shares = %v, want %v", got.Shares, tt.want)
					break
				}
			}
			if got.Last != tt.last {
				t.Errorf("last = %d, want %d", got.Last, tt.last)
			}
		})
	}
}

func TestDeal_HandsKeepTheLastTenth(t *testing.T) {
	t.Parallel()
	big, small := queue(50, 0, 500), queue(50, 0, 500)
	hands := room.Hands{All: 64, Free: 7, Busy: map[uuid.UUID]int{big.WorkspaceID: 57}}
	switch got := room.Deal([]room.Scope{ample()}, hands, []room.Queue{big, small}); {
	case got.Shares[0] != 0:
		t.Errorf("got.Shares[0] = %v, want 0", got.Shares[0])
	case got.Shares[1] != 1:
		t.Errorf("got.Shares[1] = %v, want 1", got.Shares[1])
	case got.Crowded[0]:
		t.Error("got.Crowded[0] = true, want false")
	}
}

func TestDeal_WaitsForPaceAlone(t *testing.T) {
	t.Parallel()
	spent := queue(1, 0, 500)
	spent.Pace = room.Pace{Rate: 5, Rested: ago(0.05)}
	if got := room.Deal([]room.Scope{ample()}, room.Hands{Free: 5},
		[]room.Queue{spent}); got.Wait.Milliseconds() != 150 {
		t.Errorf("Deal: got.Wait.Milliseconds() = %v, want 150", got.Wait.Milliseconds())
	} else if !got.Crowded[0] {
		t.Error("Deal: got.Crowded[0] = false, want true")
	}
	full := queue(1, 500, 500)
	full.Pace = spent.Pace
	if got := room.Deal([]room.Scope{ample()}, room.Hands{Free: 5}, []room.Queue{full}); got.Wait != 0 {
		t.Errorf("Deal: got.Wait = %v, want 0", got.Wait)
	} else if !got.Crowded[0] {
		t.Error("Deal: got.Crowded[0] = false, want true")
	}
}

// TestDeal_TellsWhoseRoomWasMissing: a workspace is late by its own limits only when those are what is used up.
func TestDeal_TellsWhoseRoomWasMissing(t *testing.T) {
	t.Parallel()
	slow, barred := queue(50, 0, 500), queue(50, 500, 500)
	slow.Pace = room.Pace{Rate: 5, Rested: ago(60)}
	barred.Barred = true
	tests := []struct {
		name  string
		scope room.Scope
		queue room.Queue
		want  bool
	}{
		{"its live calls", ample(), queue(50, 497, 500), true},
		{"its pace", ample(), slow, true},
		{"a full trunk", scope(100, 1_000_000, 100), queue(50, 0, 500), false},
		{"hands", ample(), queue(50, 0, 500), false},
		{"nothing", ample(), queue(3, 497, 500), false},
		{"barred work needs no room", ample(), barred, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := room.Deal([]room.Scope{tt.scope}, room.Hands{Free: 10}, []room.Queue{tt.queue}); got.Own[0] != tt.want {
				t.Errorf("dealt %+v, want own %v", got, tt.want)
			}
		})
	}
}

// TestDeal_NobodyTakesTheLastTenth deals at random, again and again, and never finds a limit passed.
func TestDeal_NobodyTakesTheLastTenth(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		live := rapid.IntRange(1, 300).Draw(t, "live")
		queues := make([]room.Queue, rapid.IntRange(1, 6).Draw(t, "queues"))
		for i := range queues {
			queues[i] = queue(rapid.IntRange(0, 400).Draw(t, "waiting"), 0, rapid.IntRange(0, 400).Draw(t, "max live"))
		}
		all := 0
		for range 5 {
			s := scope(live, 1_000_000, all)
			free := rapid.IntRange(0, 400).Draw(t, "free")
			got := room.Deal([]room.Scope{s}, room.Hands{Free: free}, queues)
			dealt := 0
			for i, n := range got.Shares {
				dealt += n
				if n > queues[i].Waiting {
					t.Fatalf("dealt %d of %d", n, queues[i].Waiting)
				}
				queues[i].Taken += n
				queues[i].Waiting -= n
				if q := queues[i]; q.Taken > q.MaxLive {
					t.Fatalf("q.Taken = %v, want at most %v", q.Taken, q.MaxLive)
				} else if q.Taken > max(1, live-(live+9)/10) {
					t.Fatalf("q.Taken = %v, want at most %v", q.Taken, max(1, live-(live+9)/10))
				}
			}
			if all += dealt; dealt > free {
				t.Fatalf("dealt = %v, want at most %v", dealt, free)
			} else if all > live {
				t.Fatalf("all = %v, want at most %v", all, live)
			}
		}
	})
}

func TestPace_BehindForgetsNothingThatWasNotUsed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		pace room.Pace
		n    int
		want float64
	}{
		{"nothing taken", room.Pace{Rate: 10, Rested: ago(5)}, 0, 5},
		{"one of a tenth of a second's", room.Pace{Rate: 100, Rested: ago(5)}, 1, 0.09},
		{"debt has a bound", room.Pace{Rate: 10, Rested: ago(0)}, 50, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.pace.Behind(tt.n); got < tt.want-1e-9 {
				t.Errorf("behind: got = %v, want at least %v", got, tt.want-1e-9)
			} else if got > tt.want+1e-9 {
				t.Errorf("behind: got = %v, want at most %v", got, tt.want+1e-9)
			}
		})
	}
}
