package trunks_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/trunks"
)

func TestCandidates_AreSortedByPriorityAndThenByChannelsInUse(t *testing.T) {
	t.Parallel()
	var all []trunks.Trunk
	for i, row := range []struct {
		name               string
		priority, channels int32
	}{
		{name: "first", priority: 1, channels: 10},
		{name: "second", priority: 2, channels: 10},
		{name: "large", priority: 2, channels: 100},
	} {
		trunk := trunks.New(uuid.UUID{15: byte(i)})
		trunk.Name, trunk.Priority, trunk.Channels = row.name, row.priority, row.channels
		all = append(all, trunk)
	}
	first, second, large := all[0].TrunkID, all[1].TrunkID, all[2].TrunkID
	for _, tt := range []struct {
		name        string
		live        map[uuid.UUID]int
		unavailable []uuid.UUID
		want        []string
	}{
		{name: "no live calls", want: []string{"first", "second", "large"}},
		{
			name: "smaller share of channels in use comes first", live: map[uuid.UUID]int{second: 2, large: 10},
			want: []string{"first", "large", "second"},
		},
		{name: "full trunk is excluded", live: map[uuid.UUID]int{first: 10}, want: []string{"second", "large"}},
		{name: "unavailable trunks are excluded", unavailable: []uuid.UUID{first, second}, want: []string{"large"}},
		{name: "all trunks are full", live: map[uuid.UUID]int{first: 10, second: 11, large: 100}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			unavailable := func(id uuid.UUID) bool { return slices.Contains(tt.unavailable, id) }
			for _, trunk := range trunks.Candidates(all, tt.live, unavailable) {
				got = append(got, trunk.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelectorNext_CallsPerSecondOfATrunkAreNotExceeded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	limited := trunks.New(uuid.UUID{1})
	limited.CallsPerSecond = 2
	// withoutRate is the first trunk of the list and never has a token. So Next returns it only if the
	// other trunk has no token either.
	withoutRate := trunks.Trunk{TrunkID: uuid.New()}
	for _, tt := range []struct {
		name      string
		processes int
		at        []time.Duration
		want      []bool
	}{
		{
			name: "one process", processes: 1,
			at: []time.Duration{
				0, 0, 0, 499 * time.Millisecond, 500 * time.Millisecond, 10 * time.Second, 10 * time.Second, 10 * time.Second,
			},
			want: []bool{true, true, false, false, true, true, true, false},
		},
		{
			name: "one of four processes", processes: 4,
			at:   []time.Duration{0, 0, 1900 * time.Millisecond, 2 * time.Second},
			want: []bool{true, false, false, true},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var selector trunks.Selector
			selector.SetProcesses(tt.processes)
			var got []bool
			for _, at := range tt.at {
				next, _ := selector.Next([]trunks.Trunk{withoutRate, limited}, "", now.Add(at))
				got = append(got, next.TrunkID == limited.TrunkID)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("limited trunk is next (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSelectorNext_ReservedTrunkNeedsNoSecondToken(t *testing.T) {
	t.Parallel()
	now := time.Now()
	first, second := trunks.New(uuid.UUID{1}), trunks.New(uuid.UUID{2})
	var selector trunks.Selector
	next, _ := selector.Next([]trunks.Trunk{first, second}, "", now)
	if next.TrunkID != first.TrunkID {
		t.Fatalf("next trunk = %s, want %s", next.TrunkID, first.TrunkID)
	}
	next, others := selector.Next([]trunks.Trunk{first, second}, first.TrunkID.String(), now)
	if next.TrunkID != first.TrunkID {
		t.Errorf("next trunk with a reservation = %s, want %s", next.TrunkID, first.TrunkID)
	}
	if len(others) != 1 {
		t.Fatalf("other trunks = %d, want 1", len(others))
	}
	if others[0].TrunkID != second.TrunkID {
		t.Errorf("other trunk = %s, want %s", others[0].TrunkID, second.TrunkID)
	}
}
