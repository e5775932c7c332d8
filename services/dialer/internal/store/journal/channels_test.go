package journal_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/store/journal"
)

// Calls in both directions that begin at the same time in four processes take no more channels than the trunk has.
func TestDial_ChannelsOfTheTrunk(t *testing.T) {
	t.Parallel()
	const channels, calls = 5, 40
	pool := newPool(t)
	trunk := uuid.New()
	var began atomic.Int64
	var all sync.WaitGroup
	for range 4 {
		j := journal.New(pool, pool, uuid.New(), lease)
		all.Go(func() {
			for n := range calls / 4 {
				err := begin(t, j, trunk, channels, n%2 == 0)
				switch {
				case err == nil:
					began.Add(1)
				case !errors.Is(err, journal.ErrChannels):
					t.Errorf("begin a call = %v, want ErrChannels", err)
				}
			}
		})
	}
	all.Wait()
	if got := began.Load(); got != channels {
		t.Errorf("calls that began = %d, want %d", got, channels)
	}
	if err := begin(t, journal.New(pool, pool, uuid.New(), lease), uuid.New(), channels, false); err != nil {
		t.Errorf("begin a call over another trunk: %v", err)
	}
}

// Calls begin and end all the time: the trunk never has more than its channels, and an end frees its channel.
func TestDial_AnEndFreesTheChannel(t *testing.T) {
	t.Parallel()
	pool := newPool(t)
	j := journal.New(pool, nil, uuid.New(), lease)
	trunk := uuid.New()
	for range 3 {
		id := uuid.Must(uuid.NewV7())
		if err := beginAs(t, j, id, trunk, 1, false); err != nil {
			t.Fatalf("begin a call: %v", err)
		}
		if err := begin(t, j, trunk, 1, false); !errors.Is(err, journal.ErrChannels) {
			t.Errorf("begin a second call = %v, want ErrChannels", err)
		}
		if err := beginAs(t, j, id, trunk, 2, false); !errors.Is(err, journal.ErrBegun) {
			t.Errorf("begin the call again = %v, want ErrBegun", err)
		}
		if _, err := pool.Exec(t.Context(), "UPDATE sip_calls SET ended_at = now() WHERE call_id = $1", id); err != nil {
			t.Fatalf("end the call: %v", err)
		}
	}
}

func begin(t *testing.T, j *journal.Journal, trunk uuid.UUID, channels int32, inbound bool) error {
	t.Helper()
	return beginAs(t, j, uuid.Must(uuid.NewV7()), trunk, channels, inbound)
}

func beginAs(t *testing.T, j *journal.Journal, id, trunk uuid.UUID, channels int32, inbound bool) error {
	t.Helper()
	c := journal.Call{
		CallID: id, TrunkID: trunk, Inbound: inbound, From: "+14155550100", To: "+14155550101", Channels: channels,
		Attempt: journal.Attempt{ID: uuid.New(), Trunk: "far", SIPCallID: id.String()},
	}
	return j.Dial(t.Context(), c)
}
