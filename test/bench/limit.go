package main

import (
	"context"
	"fmt"

	"ringfence.dev/test/bench/internal/probe"
)

// The numbers of commits that one POST makes on an idle stack (see sixCommits). awaitedCommits is
// the number before the response, and expectedCommits the total. More commits are a regression.
const (
	awaitedCommits  = 3
	expectedCommits = 6
)

// makeCopies creates the tables of the baseline loop (see package probe). Each goroutine has its
// own wallet.
func makeCopies(ctx context.Context, c probe.Copies, lanes int) error {
	if err := c.Make(ctx, sixCommits()); err != nil {
		return err
	}
	for n := range lanes {
		_, err := c.DB.Exec(ctx, `INSERT INTO bench.billing_wallet_wallets (workspace_id, currency, wallet_micro, funding_micro)
			VALUES ($1, 'USD', 1000000000000, -1000000000000)`, probe.LaneID(n))
		if err != nil {
			return fmt.Errorf("make wallets: %w", err)
		}
	}
	return nil
}

// phoneNumber returns the n-th of ten million numbers. None of them is busy, silent or invalid.
func phoneNumber(n int64) string {
	return fmt.Sprintf("+1415%05d%02d", n/90%100_000, n%90)
}
