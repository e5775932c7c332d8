package main

import (
	"context"

	"ringfence.dev/test/kit"
)

// withCallStack returns a function that calls measure with the CallStack of the bench. If the
// bench has no CallStack yet, the function creates it first.
func withCallStack(measure func(context.Context, *CallStack) error) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) (err error) {
		if b.callStack == nil {
			setup := CallSetup{
				Stack: b.stack, Bin: b.bin, Home: b.home, DB: b.db, Hooks: b.hooks, Landing: b.landing, Meter: b.meter,
				Each: b.each, Held: b.held,
				TurnCPU: b.turnCPU,
			}
			if b.callStack, err = OpenCalls(ctx, setup); err != nil {
				return err
			}
		}
		return measure(ctx, b.callStack)
	}
}

// runClaimBench runs the benchmark of the claim statement in a separate Postgres, because the
// benchmark creates roles.
func runClaimBench(ctx context.Context, b *bench) error {
	server, err := kit.StartPostgres(b.bin, "--durable")
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop() }()
	return Claims(ctx, b.bin, server.URL)
}
