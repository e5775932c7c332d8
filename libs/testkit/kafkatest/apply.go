package kafkatest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
)

// Apply calls a handler with one record in tx. If the handler skips or parks the record, Apply
// returns the reason as an error; see kafka.IsSkip and kafka.IsPark. The id is not stored, so a
// test can apply a record several times. OnCommit is not called.
func Apply(ctx context.Context, tx pgx.Tx, handler inbox.Handler, rec kafka.Record) error {
	_, err := apply(ctx, tx, handler, rec)
	return err
}

// Commit does what Apply does, in a new transaction. After the transaction has committed, Commit
// calls OnCommit.
func Commit(ctx context.Context, pool *pgxpool.Pool, handler inbox.Handler, rec kafka.Record) error {
	var onCommit func()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
		onCommit, err = apply(ctx, tx, handler, rec)
		return err
	})
	if err == nil && onCommit != nil {
		onCommit()
	}
	return err
}

func apply(ctx context.Context, tx pgx.Tx, handler inbox.Handler, rec kafka.Record) (onCommit func(), err error) {
	outcome, err := handler(ctx, tx, []inbox.Record{{Record: rec, Span: trace.SpanFromContext(ctx)}})
	if err != nil {
		return nil, err
	}
	if len(outcome.Results) != 1 {
		return nil, fmt.Errorf("the handler returned %d results for one record", len(outcome.Results))
	}
	if outcome.Last != nil {
		if err := tx.SendBatch(ctx, outcome.Last).Close(); err != nil {
			return nil, fmt.Errorf("send the last statements: %w", err)
		}
	}
	return outcome.OnCommit, outcome.Results[0].Reason()
}
