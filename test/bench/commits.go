package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"ringfence.dev/test/kit"
)

const (
	// statisticsDelay is longer than 10 s. An idle backend of Postgres reports its statistics after at
	// most 10 s.
	statisticsDelay = 11 * time.Second
	// measuredPosts is the number of measured POST requests. postInterval is so long that two requests
	// do not share a commit.
	measuredPosts = 40
	postInterval  = 100 * time.Millisecond
	// commitTolerance is in commits per POST. It is needed because the background work can differ
	// between the idle period and the period with POST requests.
	commitTolerance = 0.5
)

type transactions struct {
	// allCommits is xact_commit of pg_stat_database. It includes transactions that only read.
	allCommits int64
	// writeCommits is the number of transaction ids that Postgres has assigned. It equals the
	// number of transactions that wrote a row.
	writeCommits int64
	// limitWrites is the number of writes to the table of the rate limit. The table is unlogged, so
	// these writes do not wait for the disk.
	limitWrites int64
	at          time.Time
}

const readTransactions = `
SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
       (SELECT n_tup_ins + n_tup_upd FROM pg_stat_user_tables WHERE schemaname = 'gateway' AND relname = 'rate_limits')`

// countTransactions reads the counters after every backend has reported its statistics. The stack
// must be idle.
func countTransactions(ctx context.Context, db *pgx.Conn) (t transactions, err error) {
	if err = rest(ctx, statisticsDelay); err != nil {
		return t, err
	}
	t.at = time.Now()
	err = db.QueryRow(ctx, readTransactions).Scan(&t.allCommits, &t.writeCommits, &t.limitWrites)
	return t, err
}

// perPOST returns the transactions of one POST. It subtracts the background work, which is measured
// between the readings `idle` and `before`.
func perPOST(idle, before, after transactions, posts int) (all, writing, counting float64) {
	share := after.at.Sub(before.at).Seconds() / before.at.Sub(idle.at).Seconds()
	of := func(idle, before, after int64) float64 {
		return (float64(after-before) - float64(before-idle)*share) / float64(posts)
	}
	return of(idle.allCommits, before.allCommits, after.allCommits),
		of(idle.writeCommits, before.writeCommits, after.writeCommits),
		of(idle.limitWrites, before.limitWrites, after.limitWrites)
}

// measureCommits counts the transactions of one POST on an idle stack. It returns an error if there
// are more durable commits than expectedCommits.
func measureCommits(ctx context.Context, b *bench) error {
	w, err := b.stack.NewWorkspace(ctx, "bench commits", "1000000")
	if err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, b.db)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()
	if err := placeApart(ctx, w, 10); err != nil { // these requests open connections and prepare statements
		return err
	}
	var read [3]transactions
	for i := range read {
		if i == 2 {
			if err := placeApart(ctx, w, measuredPosts); err != nil {
				return err
			}
		}
		if read[i], err = countTransactions(ctx, db); err != nil {
			return err
		}
	}
	all, writing, counting := perPOST(read[0], read[1], read[2], measuredPosts)
	made := writing - counting
	fmt.Printf("  transactions of a POST   %8.1f      "+
		"(pg_stat_database.xact_commit of %d POSTs %s apart, less the background's)\n", all, measuredPosts, postInterval)
	fmt.Printf("    that wait for no disk  %8.1f      (reads, and %.1f of the rate limit's unlogged table)\n", all-made, counting)
	fmt.Printf("    durable commits        %8.1f      (expected: %d, of which the POST awaits %d before it answers)\n", made, expectedCommits, awaitedCommits)
	if made > expectedCommits+commitTolerance {
		return fmt.Errorf(
			"REGRESSION: a POST makes %.1f durable commits and made %d before: "+
				"remove the new commit, or change expectedCommits in limit.go and explain why",
			made,
			expectedCommits,
		)
	}
	return nil
}

// placeApart sends n POST requests one after the other. The pause after each request is long enough
// for the work that the request causes in other services.
func placeApart(ctx context.Context, w *kit.Workspace, n int) error {
	for i := range n {
		if err := place(ctx, w, int64(i), tomorrow()); err != nil {
			return err
		}
		if err := rest(ctx, postInterval); err != nil {
			return err
		}
	}
	return nil
}

func tomorrow() string { return time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339) }

func place(ctx context.Context, w *kit.Workspace, n int64, scheduledFor string) error {
	body := map[string]any{"to": phoneNumber(n)}
	if scheduledFor != "" {
		body["scheduled_for"] = scheduledFor
	}
	_, err := w.Place(ctx, body)
	return err
}
