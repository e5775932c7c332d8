package app

import (
	"context"
	"errors"
	"testing"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/service"
)

type config struct{ Config }

func TestSpec_TracksDependOnHandlers(t *testing.T) {
	t.Parallel()
	none := Spec[config]{Name: "billing-wallet"}
	reads := none
	reads.Handlers = func(config, *Runtime) (inbox.Handlers, error) { return nil, nil }
	tests := []struct {
		name string
		spec Spec[config]
		want []string
	}{
		{name: "no handlers", spec: none, want: []string{outbox.Migrations.Name, "billing_wallet"}},
		{name: "handlers", spec: reads, want: []string{outbox.Migrations.Name, inbox.Migrations.Name, "billing_wallet"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tracks := test.spec.Tracks()
			if len(tracks) != len(test.want) {
				t.Fatalf("tracks = %v, want %v", tracks, test.want)
			}
			for i, track := range tracks {
				if track.Name != test.want[i] {
					t.Errorf("track %d = %q, want %q", i, track.Name, test.want[i])
				}
			}
		})
	}
}

// TestServe_ChecksBeforeItConnects uses a database that does not exist. Serve returns the fault of
// the configuration.
func TestServe_ChecksBeforeItConnects(t *testing.T) {
	t.Parallel()
	fault := errors.New("WAIT must be positive")
	s := Spec[config]{
		Name:  "example",
		Check: func(config) error { return fault },
		Start: func(context.Context, config, *Runtime) ([]service.Part, error) {
			t.Error("Start was called")
			return nil, nil
		},
	}
	var cfg config
	cfg.Postgres = pg.Config{URL: "postgres://127.0.0.1:1/none"}
	cfg.Telemetry.PrivateAddr = "127.0.0.1:0"
	cfg.Telemetry.LogFormat = "text"
	if err := s.Serve(t.Context(), cfg); !errors.Is(err, fault) {
		t.Errorf("Serve = %v, want %v", err, fault)
	}
}
