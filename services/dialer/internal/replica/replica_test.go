package replica_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/replica"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	early := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	late := early.Add(time.Minute)
	yes, no := true, false
	old, recent := &replica.Answer{At: early, Status: 404}, &replica.Answer{At: late, Status: 200}
	up := replica.Trunk{
		State: replica.Up, Registered: &yes, RegisteredUntil: &late, LastAnswer: recent,
		Recent: replica.Recent{Calls: 10, Failures: 1},
	}
	resting := replica.Trunk{
		State: replica.CircuitOpen, OpenUntil: &late, Registered: &no, RegisterError: "403", LastAnswer: old,
		Recent: replica.Recent{Calls: 5, Failures: 5},
	}
	other := replica.Trunk{State: replica.Up, Registered: &yes, RegisteredUntil: &early, LastAnswer: old}
	tests := []struct {
		name string
		seen []replica.Trunk
		want replica.Trunk
	}{
		{name: "no report", want: replica.Trunk{State: replica.Unknown}},
		{name: "one report", seen: []replica.Trunk{up}, want: up},
		{
			name: "two agree", seen: []replica.Trunk{up, other},
			want: replica.Trunk{
				State: replica.Up, Registered: &yes, RegisteredUntil: &early, LastAnswer: recent,
				Recent: replica.Recent{Calls: 10, Failures: 1},
			},
		},
		{
			name: "two differ", seen: []replica.Trunk{resting, up},
			want: replica.Trunk{
				State: replica.Mixed, OpenUntil: &late, Registered: &no, RegisteredUntil: &late, RegisterError: "403",
				LastAnswer: recent, Recent: replica.Recent{Calls: 15, Failures: 6},
			},
		},
	}
	for _, tt := range tests {
		var seen []replica.Seen
		for _, one := range tt.seen {
			seen = append(seen, replica.Seen{Trunk: one})
		}
		if diff := cmp.Diff(tt.want, replica.Merge(seen)); diff != "" {
			t.Errorf("%s: merged trunk differs (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestOfTrunk_LeavesOutOlderVersions(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	reports := []replica.Stored{
		{Name: "a", Report: replica.Report{Trunks: []replica.Trunk{{TrunkID: id, Version: 1}}}},
		{Name: "b", Report: replica.Report{Trunks: []replica.Trunk{
			{TrunkID: uuid.New(), Version: 2}, {TrunkID: id, Version: 2},
		}}},
	}
	seen := replica.OfTrunk(reports, id, 2)
	if len(seen) != 1 {
		t.Fatalf("reports of the trunk = %d, want 1", len(seen))
	}
	if got, want := seen[0].Replica, "b"; got != want {
		t.Errorf("replica = %q, want %q", got, want)
	}
}

// The report is stored until the process ends, also after a failure, and then removed.
func TestJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		puts, removed := 0, false
		put := func(context.Context, replica.Report) error {
			puts++
			return errors.New("the database is away")
		}
		remove := func(ctx context.Context) error {
			removed = true
			return ctx.Err()
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		job := replica.NewJob(func() replica.Report { return replica.Report{} }, put, remove)
		go func() { done <- job.Run(ctx) }()
		time.Sleep(5 * time.Second)
		stop()
		if err := <-done; err != nil {
			t.Errorf("error of the job = %v, want none", err)
		}
		if puts != 3 {
			t.Errorf("stored reports in 5 s = %d, want 3", puts)
		}
		if !removed {
			t.Error("the report was not removed at the end")
		}
	})
}
