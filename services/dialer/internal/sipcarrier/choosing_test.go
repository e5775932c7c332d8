package sipcarrier

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/trunks"
)

func TestOrder_PriorityThenRoomWithoutTheClosed(t *testing.T) {
	t.Parallel()
	var all []trunks.Trunk
	for i, row := range []struct {
		name               string
		priority, channels int32
	}{{"first", 1, 10}, {"second", 2, 10}, {"wide", 2, 100}} {
		one := trunks.New(uuid.UUID{15: byte(i)})
		one.Name, one.Priority, one.Channels = row.name, row.priority, row.channels
		all = append(all, one)
	}
	first, second, wide := all[0].TrunkID, all[1].TrunkID, all[2].TrunkID
	for _, tt := range []struct {
		name string
		live map[uuid.UUID]int
		down []uuid.UUID
		want []string
	}{
		{"idle", nil, nil, []string{"first", "second", "wide"}},
		{"the emptier of a priority", map[uuid.UUID]int{second: 2, wide: 10}, nil, []string{"first", "wide", "second"}},
		{"a full one is none", map[uuid.UUID]int{first: 10}, nil, []string{"second", "wide"}},
		{"closed trunks are excluded", nil, []uuid.UUID{first, second}, []string{"wide"}},
		{"all full", map[uuid.UUID]int{first: 10, second: 11, wide: 100}, nil, nil},
	} {
		var got []string
		for _, one := range order(all, tt.live, func(id uuid.UUID) bool { return slices.Contains(tt.down, id) }) {
			got = append(got, one.Name)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestWire_ANameWithoutAPortLeadsWhereItsRecordsSay(t *testing.T) {
	t.Parallel()
	for _, transport := range []trunks.Transport{trunks.UDP, trunks.TCP, trunks.TLS} {
		one := trunks.New(uuid.UUID{1})
		one.Transport = transport
		if got := wire(one).Port; got != 0 {
			t.Errorf("%s: port %d, want none", transport, got)
		}
		if one.Port = 5070; wire(one).Port != 5070 {
			t.Errorf("%s: port %d, want the one that was set", transport, wire(one).Port)
		}
	}
}

func TestTake_ATrunksPace(t *testing.T) {
	t.Parallel()
	board, one, now := &switchboard{}, trunks.New(uuid.UUID{1}), time.Now()
	one.CallsPerSecond = 2
	other := trunks.Trunk{TrunkID: uuid.New()} // has no pace at all
	taken := func(at time.Duration) bool {
		first, _ := board.pick([]trunks.Trunk{other, one}, "", now.Add(at))
		return first.TrunkID == one.TrunkID
	}
	if got := []bool{taken(0), taken(0), taken(0), taken(499 * time.Millisecond), taken(500 * time.Millisecond), taken(10 * time.Second), taken(10 * time.Second), taken(10 * time.Second)}; !slices.Equal(got,
		[]bool{true, true, false, false, true, true, true, false}) {
		t.Errorf("taken: %v", got)
	}
	board.share(4) // half a call a second is this process's
	if got := []bool{taken(20 * time.Second), taken(20 * time.Second), taken(21900 * time.Millisecond), taken(22 * time.Second)}; !slices.Equal(got, []bool{true, false, false, true}) {
		t.Errorf("taken by one of four: %v", got)
	}
}
