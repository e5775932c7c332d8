package dialqueue_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"ringfence.dev/services/dialer/internal/dialqueue"
)

func ampleShared() dialqueue.Shared { return shared(1_000_000, 1_000_000, 0) }

func shared(live, perSecond, inUse int) dialqueue.Shared {
	return dialqueue.Shared{
		Limit: dialqueue.Limit{Live: live, PerSecond: perSecond}, InUse: inUse,
		Bucket: dialqueue.NewBucket(float64(perSecond), nil, 0),
	}
}

func workspace(waiting, inUse, maxLive int) dialqueue.WorkspaceDemand {
	return dialqueue.WorkspaceDemand{
		ID: uuid.New(), Waiting: waiting, InUse: inUse, MaxLive: maxLive, Bucket: dialqueue.NewBucket(1_000_000, nil, 0),
	}
}

func pacedWorkspace(tokens float64) dialqueue.WorkspaceDemand {
	w := workspace(50, 0, 500)
	w.Bucket = dialqueue.NewBucket(5, &tokens, 0)
	w.SinceClaim = new(time.Duration)
	return w
}

func TestAllocate_SharesCapacityWithinTheLimits(t *testing.T) {
	t.Parallel()
	barred := workspace(50, 9, 1)
	barred.Barred = true
	almostEmpty := shared(1_000_000, 500, 0)
	almostEmpty.Bucket.Tokens = 4
	tests := []struct {
		name       string
		shared     []dialqueue.Shared
		free       int
		workspaces []dialqueue.WorkspaceDemand
		want       []int
		wantLast   int
	}{
		{
			name:   "other workspaces receive the unused share",
			shared: []dialqueue.Shared{ampleShared()}, free: 10,
			workspaces: []dialqueue.WorkspaceDemand{workspace(50, 0, 500), workspace(1, 0, 500), workspace(50, 0, 500)},
			want:       []int{5, 1, 4}, wantLast: 2,
		},
		{
			name:   "one worker serves the first workspace",
			shared: []dialqueue.Shared{ampleShared()}, free: 1,
			workspaces: []dialqueue.WorkspaceDemand{
				workspace(50, 0, 500),
				workspace(1, 0, 500),
			}, want: []int{1, 0}, wantLast: 0,
		},
		{
			name:   "a workspace reaches its own limit of live calls",
			shared: []dialqueue.Shared{ampleShared()}, free: 10,
			workspaces: []dialqueue.WorkspaceDemand{workspace(50, 497, 500), workspace(50, 500, 500)},
			want:       []int{3, 0}, wantLast: 0,
		},
		{
			name:   "limit lowered below the live calls",
			shared: []dialqueue.Shared{ampleShared()}, free: 10,
			workspaces: []dialqueue.WorkspaceDemand{workspace(50, 400, 100)}, want: []int{0}, wantLast: -1,
		},
		{
			name:   "last tenth of the channels, large workspace",
			shared: []dialqueue.Shared{shared(100, 1_000_000, 85)}, free: 64,
			workspaces: []dialqueue.WorkspaceDemand{workspace(50, 85, 500)}, want: []int{5}, wantLast: 0,
		},
		{
			name:   "last tenth of the channels, small workspace",
			shared: []dialqueue.Shared{shared(100, 1_000_000, 95)}, free: 64,
			workspaces: []dialqueue.WorkspaceDemand{
				workspace(50, 95, 500),
				workspace(50, 0, 500),
			}, want: []int{0, 1}, wantLast: 1,
		},
		{
			name:   "all channels in use",
			shared: []dialqueue.Shared{shared(100, 1_000_000, 100)}, free: 64,
			workspaces: []dialqueue.WorkspaceDemand{workspace(50, 0, 500)}, want: []int{0}, wantLast: -1,
		},
		{
			name:   "last tenth of the second shared limit",
			shared: []dialqueue.Shared{ampleShared(), shared(100, 1_000_000, 90)}, free: 64,
			workspaces: []dialqueue.WorkspaceDemand{
				workspace(50, 45, 500),
				workspace(2, 0, 500),
			}, want: []int{0, 1}, wantLast: 1,
		},
		{
			name:   "a single channel",
			shared: []dialqueue.Shared{shared(1, 10, 0)}, free: 64,
			workspaces: []dialqueue.WorkspaceDemand{workspace(2, 0, 500)}, want: []int{1}, wantLast: 0,
		},
		{
			name:   "a large workspace uses the tokens of a tenth of a second except the reserve",
			shared: []dialqueue.Shared{shared(10_000, 200, 0)}, free: 64,
			workspaces: []dialqueue.WorkspaceDemand{workspace(50, 0, 500)}, want: []int{18}, wantLast: 0,
		},
		{
			name:   "a low rate allows one dial",
			shared: []dialqueue.Shared{ampleShared()}, free: 64,
			workspaces: []dialqueue.WorkspaceDemand{pacedWorkspace(1)}, want: []int{1}, wantLast: 0,
		},
		{
			name:   "no workspace starts a request without a token",
			shared: []dialqueue.Shared{ampleShared()}, free: 64,
			workspaces: []dialqueue.WorkspaceDemand{pacedWorkspace(0.25)}, want: []int{0}, wantLast: -1,
		},
		{
			name:   "the reserve of tokens is for a workspace that has not dialed lately",
			shared: []dialqueue.Shared{almostEmpty}, free: 64,
			workspaces: []dialqueue.WorkspaceDemand{pacedWorkspace(1), workspace(3, 0, 500)}, want: []int{0, 1}, wantLast: 1,
		},
		{
			name:   "requests of a barred workspace need no capacity",
			shared: []dialqueue.Shared{shared(10, 10, 10)}, free: 64,
			workspaces: []dialqueue.WorkspaceDemand{barred}, want: []int{50}, wantLast: 0,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := dialqueue.Allocate(tt.shared, dialqueue.Workers{Free: tt.free}, tt.workspaces)
			if diff := cmp.Diff(tt.want, got.Shares); diff != "" {
				t.Errorf("shares (-want +got):\n%s", diff)
			}
			if got.Last != tt.wantLast {
				t.Errorf("last = %d, want %d", got.Last, tt.wantLast)
			}
		})
	}
}

func TestAllocate_ReservesTheLastTenthOfTheWorkers(t *testing.T) {
	t.Parallel()
	big, small := workspace(50, 0, 500), workspace(50, 0, 500)
	workers := dialqueue.Workers{All: 64, Free: 7, Busy: map[uuid.UUID]int{big.ID: 57}}
	got := dialqueue.Allocate([]dialqueue.Shared{ampleShared()}, workers, []dialqueue.WorkspaceDemand{big, small})
	if diff := cmp.Diff([]int{0, 1}, got.Shares); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	if got.NoCapacity[0] {
		t.Error("NoCapacity of the large workspace = true, want false: a worker is missing, not capacity")
	}
}

func TestAllocate_WaitIsSetOnlyIfATokenIsMissing(t *testing.T) {
	t.Parallel()
	full := pacedWorkspace(0.25)
	full.InUse = 500
	tests := []struct {
		name      string
		workspace dialqueue.WorkspaceDemand
		want      time.Duration
	}{
		{name: "a token is missing", workspace: pacedWorkspace(0.25), want: 150 * time.Millisecond},
		{name: "a channel is missing", workspace: full, want: 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			workspaces := []dialqueue.WorkspaceDemand{tt.workspace}
			got := dialqueue.Allocate([]dialqueue.Shared{ampleShared()}, dialqueue.Workers{Free: 5}, workspaces)
			if got.Wait.Round(time.Millisecond) != tt.want {
				t.Errorf("wait = %v, want %v", got.Wait, tt.want)
			}
			if !got.NoCapacity[0] {
				t.Error("NoCapacity = false, want true")
			}
		})
	}
}

func TestAllocate_ReportsThatTheWorkspacesOwnLimitIsReached(t *testing.T) {
	t.Parallel()
	barred := workspace(50, 500, 500)
	barred.Barred = true
	tests := []struct {
		name      string
		shared    dialqueue.Shared
		workspace dialqueue.WorkspaceDemand
		want      bool
	}{
		{name: "the workspace reaches its own limit of live calls",
			shared: ampleShared(), workspace: workspace(50, 497, 500), want: true},
		{name: "the workspace has too few tokens", shared: ampleShared(), workspace: pacedWorkspace(1), want: true},
		{name: "only channels of the trunk are missing",
			shared: shared(100, 1_000_000, 100), workspace: workspace(50, 0, 500)},
		{name: "only workers are missing", shared: ampleShared(), workspace: workspace(50, 0, 500)},
		{name: "no limit is reached", shared: ampleShared(), workspace: workspace(3, 497, 500)},
		{name: "a barred workspace reports no own limit", shared: ampleShared(), workspace: barred},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			workspaces := []dialqueue.WorkspaceDemand{tt.workspace}
			got := dialqueue.Allocate([]dialqueue.Shared{tt.shared}, dialqueue.Workers{Free: 10}, workspaces)
			if got.OwnLimit[0] != tt.want {
				t.Errorf("OwnLimit = %v, want %v", got.OwnLimit[0], tt.want)
			}
		})
	}
}

func TestAllocate_NeverExceedsALimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		live := rapid.IntRange(1, 300).Draw(t, "live")
		workspaces := make([]dialqueue.WorkspaceDemand, rapid.IntRange(1, 6).Draw(t, "workspaces"))
		for i := range workspaces {
			workspaces[i] = workspace(
				rapid.IntRange(0, 400).Draw(t, "waiting"),
				0,
				rapid.IntRange(0, 400).Draw(t, "max live"),
			)
		}
		all, maxOfOne := 0, max(1, live-(live+9)/10)
		for range 5 {
			free := rapid.IntRange(0, 400).Draw(t, "free")
			limits := []dialqueue.Shared{shared(live, 1_000_000, all)}
			got := dialqueue.Allocate(limits, dialqueue.Workers{Free: free}, workspaces)
			out := 0
			for i, n := range got.Shares {
				out += n
				if n > workspaces[i].Waiting {
					t.Fatalf("share = %d, want at most the %d that wait", n, workspaces[i].Waiting)
				}
				workspaces[i].InUse += n
				workspaces[i].Waiting -= n
				if got, want := workspaces[i].InUse, workspaces[i].MaxLive; got > want {
					t.Fatalf("in use of a workspace = %d, want at most its limit %d", got, want)
				}
				if got := workspaces[i].InUse; got > maxOfOne {
					t.Fatalf("in use of a workspace = %d, want at most %d of %d", got, maxOfOne, live)
				}
			}
			if all += out; out > free {
				t.Fatalf("allocated = %d, want at most the %d free workers", out, free)
			}
			if all > live {
				t.Fatalf("in use = %d, want at most %d", all, live)
			}
		}
	})
}

func TestBucket_FillsOverTimeAndAcceptsReturnedTokens(t *testing.T) {
	t.Parallel()
	tokens := func(n float64) *float64 { return &n }
	tests := []struct {
		name   string
		rate   float64
		tokens *float64
		since  time.Duration
		take   int
		want   float64
	}{
		{name: "a bucket that was never used is full", rate: 100, want: 10},
		{name: "a low rate has room for one token", rate: 2, want: 1},
		{name: "one token is taken", rate: 100, tokens: tokens(10), take: 1, want: 9},
		{name: "refilled for 50 ms", rate: 100, tokens: tokens(2), since: 50 * time.Millisecond, want: 7},
		{name: "refilled up to the tokens of a tenth of a second", rate: 100, tokens: tokens(2), since: time.Hour, want: 10},
		{name: "tokens above the capacity of a lowered rate are dropped", rate: 20, tokens: tokens(10), want: 2},
		{name: "three tokens are returned", rate: 100, tokens: tokens(2), take: -3, want: 5},
		{name: "returned tokens fill the bucket only to its capacity", rate: 100, tokens: tokens(9), take: -3, want: 10},
		{name: "a clock that was set back adds no tokens", rate: 100, tokens: tokens(2), since: -time.Hour, want: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := dialqueue.NewBucket(tt.rate, tt.tokens, tt.since).Take(tt.take); got != tt.want {
				t.Errorf("tokens = %v, want %v", got, tt.want)
			}
		})
	}
}
