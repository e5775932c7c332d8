package replicas_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"ringfence.dev/services/dialer/internal/replicas"
)

func TestMerge_CombinesTheReportsOfAllReplicas(t *testing.T) {
	t.Parallel()
	early := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	late := early.Add(time.Minute)
	yes, no := true, false
	old, recent := &replicas.Answer{At: early, Status: 404}, &replicas.Answer{At: late, Status: 200}
	up := replicas.Trunk{
		State: replicas.Up, Registered: &yes, RegisteredUntil: &late, LastAnswer: recent,
		Recent: replicas.Recent{Calls: 10, Failures: 1},
	}
	resting := replicas.Trunk{
		State: replicas.CircuitOpen, OpenUntil: &late, Registered: &no, RegisterError: "403", LastAnswer: old,
		Recent: replicas.Recent{Calls: 5, Failures: 5},
	}
	other := replicas.Trunk{State: replicas.Up, Registered: &yes, RegisteredUntil: &early, LastAnswer: old}
	tests := []struct {
		name string
		seen []replicas.Trunk
		want replicas.Trunk
	}{
		{name: "no report: state unknown", want: replicas.Trunk{State: replicas.Unknown}},
		{name: "one report: unchanged", seen: []replicas.Trunk{up}, want: up},
		{
			name: "two reports with the same state", seen: []replicas.Trunk{up, other},
			want: replicas.Trunk{
				State: replicas.Up, Registered: &yes, RegisteredUntil: &early, LastAnswer: recent,
				Recent: replicas.Recent{Calls: 10, Failures: 1},
			},
		},
		{
			name: "two reports with different states", seen: []replicas.Trunk{resting, up},
			want: replicas.Trunk{
				State: replicas.Mixed, OpenUntil: &late, Registered: &no, RegisteredUntil: &late, RegisterError: "403",
				LastAnswer: recent, Recent: replicas.Recent{Calls: 15, Failures: 6},
			},
		},
	}
	for _, tt := range tests {
		var seen []replicas.ReportedTrunk
		for _, one := range tt.seen {
			seen = append(seen, replicas.ReportedTrunk{Trunk: one})
		}
		if diff := cmp.Diff(tt.want, replicas.Merge(seen)); diff != "" {
			t.Errorf("%s: merged trunk differs (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestOfTrunk_OmitsReportsAboutOldVersionsOfTheTrunk(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	reports := []replicas.StoredReport{
		{Name: "a", Report: replicas.Report{Trunks: []replicas.Trunk{{TrunkID: id, Version: 1}}}},
		{Name: "b", Report: replicas.Report{Trunks: []replicas.Trunk{
			{TrunkID: uuid.New(), Version: 2}, {TrunkID: id, Version: 2},
		}}},
	}
	seen := replicas.OfTrunk(reports, id, 2)
	if len(seen) != 1 {
		t.Fatalf("reports of the trunk = %d, want 1", len(seen))
	}
	if got, want := seen[0].Replica, "b"; got != want {
		t.Errorf("replica = %q, want %q", got, want)
	}
}

func TestJob_StoresAndRemovesTheReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		puts, removed := 0, false
		put := func(context.Context, replicas.Report) error {
			puts++
			return errors.New("the database is away")
		}
		remove := func(ctx context.Context) error {
			removed = true
			return ctx.Err()
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		job := replicas.NewJob(func() replicas.Report { return replicas.Report{} }, put, remove)
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
