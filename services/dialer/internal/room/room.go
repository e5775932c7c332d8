// Package room owns how many dials may begin now, and whose: the live calls and the pace of a workspace, of a trunk and of all together, and the hands of
// one process, dealt one by one to the workspaces in turn. The last tenth of everything shared is for those who have little of it. It reads no
// clock and stores nothing.
package room

import (
	"math"
	"time"

	"github.com/google/uuid"
)

// Limit is what is shared by all workspaces: overall, or one trunk.
type Limit struct {
	// Live calls at once, and PerSecond originations.
	Live, PerSecond int
}

// Scope is a limit and how much of it is used.
type Scope struct {
	Limit
	Taken int
	// All is the pace of everybody; Crowd that of the nine tenths which are open to everybody.
	All, Crowd Pace
}

// CrowdRate is the pace, a second, that leaves the last tenth.
func (l Limit) CrowdRate() float64 { return 0.9 * float64(l.PerSecond) }

// Hands are the requests that one process can work on at once.
type Hands struct {
	All, Free int
	// Busy counts those at work by workspace.
	Busy map[uuid.UUID]int
}

// Queue is the due work of one workspace.
type Queue struct {
	WorkspaceID uuid.UUID
	// Barred work is only to be blocked: it needs hands and no room.
	Barred bool
	// Waiting requests are due; Taken slots are in use, of at most MaxLive.
	Waiting, Taken, MaxLive int
	Pace                    Pace
}

// Dealt is who may begin how many.
type Dealt struct {
	// Shares, Crowded and Own go with the queues. Crowded: due work was left because there was no room for it, whoever's hands were free. Own: the room that
	// was missing is the workspace's own.
	Shares       []int
	Crowded, Own []bool
	// Last is the queue that was dealt to last, after which the next turn begins; -1 when none was.
	Last int
	// Wait is how long until pace alone allows another dial; zero: it does not hang on that.
	Wait time.Duration
}

// Deal gives each queue in turn one dial until there is no room, no work or no hand left.
func Deal(scopes []Scope, hands Hands, queues []Queue) Dealt {
	t := table{scopes: scopes, hands: hands, dealt: Dealt{Shares: make([]int, len(queues)), Crowded: make([]bool, len(queues)), Own: make([]bool, len(queues)), Last: -1}}
	for going := true; going; {
		going = false
		for i, q := range queues {
			if t.give(q, t.dealt.Shares[i]) {
				t.dealt.Shares[i]++
				t.dealt.Last, going = i, true
			}
		}
	}
	for i, q := range queues {
		if n := t.dealt.Shares[i]; n < q.Waiting && t.hand(q, n) {
			t.dealt.Crowded[i], t.dealt.Own[i] = true, q.spent(n)
			if wait := t.pause(q, n); wait > 0 && (t.dealt.Wait == 0 || wait < t.dealt.Wait) {
				t.dealt.Wait = wait
			}
		}
	}
	return t.dealt
}

// table is a deal under way; out counts what was dealt of the scopes.
type table struct {
	scopes []Scope
	hands  Hands
	out    int
	dealt  Dealt
}

// give deals one more to a queue that has n, if it may have it.
func (t *table) give(q Queue, n int) bool {
	if n >= q.Waiting || !t.hand(q, n) || !q.Barred && (!t.room(q, n) || !t.pace(q, n)) {
		return false
	}
	t.hands.Free--
	if !q.Barred {
		t.out++
	}
	return true
}

func (t *table) hand(q Queue, n int) bool {
	return open(t.hands.All, t.hands.Free, t.hands.Busy[q.WorkspaceID]+n)
}

func (t *table) room(q Queue, n int) bool {
	for _, s := range t.scopes {
		if !open(s.Live, s.Live-s.Taken-t.out, q.Taken+n) {
			return false
		}
	}
	return q.Taken+n < q.MaxLive
}

// spent says that the workspace has used up its own limits once it was dealt n.
func (q Queue) spent(n int) bool {
	return !q.Barred && (q.Taken+n >= q.MaxLive || q.Pace.tokens() <= n)
}

func (t *table) pace(q Queue, n int) bool {
	for _, s := range t.scopes {
		if s.All.tokens() <= t.out || s.Crowd.tokens() <= t.out && (n > 0 || !q.Pace.quiet(s.PerSecond)) {
			return false
		}
	}
	return q.Pace.tokens() > n
}

// pause is how long a queue that has room waits for pace.
func (t *table) pause(q Queue, n int) (wait time.Duration) {
	if q.Barred || !t.room(q, n) {
		return 0
	}
	wait = q.Pace.wait(n)
	for _, s := range t.scopes {
		wait = max(wait, s.All.wait(t.out))
		if n > 0 || !q.Pace.quiet(s.PerSecond) {
			wait = max(wait, s.Crowd.wait(t.out))
		}
	}
	return wait
}

// open says whether somebody who has own of all may have one more while left are left. The last tenth, rounded up, is for those who have less than a
// hundredth; whoever has none may have one.
func open(all, left, own int) bool {
	return left > 0 && (left > (all+9)/10 || own < max(1, all/100))
}

// Pace is a rate and how long it has rested.
type Pace struct {
	// Rate is dials a second.
	Rate float64
	// Rested is how many seconds ago the pace was used up; below zero: how long until it is; nil: it never was used.
	Rested *float64
}

// forgotten is the longest rest that anybody remembers, in seconds.
const forgotten = 3600

// window is how long unused pace is kept, in seconds; at a low rate as long as one dial takes.
func (p Pace) window() float64 { return max(0.1, 1/p.Rate) }

func (p Pace) rested() float64 {
	if p.Rested == nil {
		return forgotten
	}
	return min(*p.Rested, forgotten)
}

func (p Pace) tokens() int {
	if p.Rate <= 0 {
		return 0
	}
	return int(max(0, math.Floor(min(p.rested(), p.window())*p.Rate+1e-6)))
}

func (p Pace) wait(n int) time.Duration {
	if p.Rate <= 0 {
		return 0
	}
	return time.Duration(max(0, (float64(n)+1)/p.Rate-min(p.rested(), p.window())) * float64(time.Second))
}

// quiet says that somebody has dialled so little lately that it is less than a hundredth of a rate.
func (p Pace) quiet(perSecond int) bool { return p.rested()*float64(perSecond) >= 100 }

// Behind is how far before now, in seconds, the pace stands once n dials were taken. It may fall a second into debt.
func (p Pace) Behind(n int) float64 {
	if n == 0 || p.Rate <= 0 {
		return p.rested()
	}
	return max(-1, min(p.rested(), p.window())-float64(n)/p.Rate)
}
