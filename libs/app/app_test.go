package app

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5/pgxpool"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/outbox"
	"ringfence.dev/libs/pg"
	"ringfence.dev/libs/service"
	"ringfence.dev/libs/testkit/pgtest"
)

type config struct{ Config }

func TestSpec_MigratesTheInboxOnlyForServicesWithHandlers(t *testing.T) {
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

func TestOpenPools_ReservesConnectionsForHeartbeats(t *testing.T) {
	t.Parallel()
	s := Spec[config]{
		Name: "example", Heartbeats: 2,
		Migrations: fstest.MapFS{"0001_beats.sql": {Data: []byte("-- +goose Up\nCREATE TABLE beats (id integer);\n")}},
	}
	url := pgtest.New(t, s.Schema(), s.Tracks()...).Config().ConnString()
	tests := []struct {
		name           string
		maxConns, want int32
	}{
		{name: "the default", want: pg.DefaultMaxConns},
		{name: "three connections", maxConns: 3, want: 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rt := &Runtime{config: Config{Postgres: pg.Config{URL: url, MaxConns: tt.maxConns}}}
			if err := s.openPools(t.Context(), rt); err != nil {
				t.Fatalf("openPools = %v", err)
			}
			t.Cleanup(rt.closePools)
			beats, work := rt.Heartbeats.Config().MaxConns, rt.Pool.Config().MaxConns
			if beats != 2 {
				t.Errorf("connections for heartbeats = %d, want 2", beats)
			}
			if got := work + beats; got != tt.want {
				t.Errorf("connections of both pools = %d, want %d", got, tt.want)
			}
			takeAll(t, rt.Pool)
			slow, err := rt.Heartbeats.Acquire(t.Context()) // another heartbeat, which waits for the database
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(slow.Release)
			if _, err := rt.Heartbeats.Exec(t.Context(), "INSERT INTO beats VALUES (1)"); err != nil {
				t.Errorf("heartbeat while the other connections are in use = %v", err)
			}
		})
	}
}

func takeAll(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
}

func TestOpenPools_OpensNoHeartbeatPoolByDefault(t *testing.T) {
	t.Parallel()
	s := Spec[config]{
		Name:       "example",
		Migrations: fstest.MapFS{"0001_none.sql": {Data: []byte("-- +goose Up\nSELECT 1;\n")}},
	}
	url := pgtest.New(t, s.Schema(), s.Tracks()...).Config().ConnString()
	rt := &Runtime{config: Config{Postgres: pg.Config{URL: url, MaxConns: 3}}}
	if err := s.openPools(t.Context(), rt); err != nil {
		t.Fatalf("openPools = %v", err)
	}
	t.Cleanup(rt.closePools)
	if rt.Heartbeats != nil {
		t.Error("pool for heartbeats is open, want none")
	}
	if got := rt.Pool.Config().MaxConns; got != 3 {
		t.Errorf("connections = %d, want 3", got)
	}
}

func TestServe_ReportsInvalidSettingsBeforeItConnects(t *testing.T) {
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
