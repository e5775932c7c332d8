package main

import (
	"context"

	"ringfence.dev/deploy/bench/internal/calling"
	"ringfence.dev/deploy/e2e/rig"
)

// called is a measurement of calls. The first one makes what they share.
func called(measure func(context.Context, *calling.House) error) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) (err error) {
		if b.dialing == nil {
			setup := calling.Setup{
				Stack: b.stack, Bin: b.bin, Home: b.home, DB: b.db, Hooks: b.hooks, Landing: b.landing, Meter: b.meter, Each: b.each, Held: b.held, Profile: b.profile,
			}
			if b.dialing, err = calling.Open(ctx, setup); err != nil {
				return err
			}
		}
		return measure(ctx, b.dialing)
	}
}

// claims measures in databases of a Postgres of its own: it makes roles there.
func claims(ctx context.Context, b *bench) error {
	server, err := rig.StartPostgres(b.bin, "--durable")
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	return calling.Claims(ctx, b.bin, server.URL)
}
