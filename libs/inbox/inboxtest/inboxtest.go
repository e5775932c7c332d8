// Package inboxtest calls handlers of libs/inbox in tests, without Kafka.
package inboxtest

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"

	"ringfence.dev/libs/inbox"
	"ringfence.dev/libs/kafka"
)

// Apply calls a handler with one record in tx and returns the reason if it skips or parks the record:
// kafka.IsSkip and kafka.IsPark tell them apart. The record's id is not stored, so a handler can be
// tested with repeated records. OnCommit is not called.
func Apply(ctx context.Context, tx pgx.Tx, handler inbox.Handler, rec kafka.Record) error {
	outcome, err := handler(ctx, tx, []inbox.Record{{Record: rec, Span: trace.SpanFromContext(ctx)}})
	if err != nil {
		return err
	}
	if len(outcome.Results) != 1 {
		return fmt.Errorf("the handler returned %d results for one record", len(outcome.Results))
	}
	return outcome.Results[0].Reason()
}
